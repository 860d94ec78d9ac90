"""Alembic's entry: runs the migrations over the connection that `store.db` hands it."""

from __future__ import annotations

from alembic import context

from strop.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
context.run_migrations()
