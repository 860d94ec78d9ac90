"""Query parameters of lists by cursor, in OpenAI's form.

`after` is the id of the last item of the page before. `has_more` is always there: OpenAI's
client never stops requesting pages without it.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from strop.services.objects import Page, page

__all__ = ["After", "Limit", "Page", "page"]

After = Annotated[str | None, Query(description="Id of the last item of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Items on a page.")]
