"""Code, to be read and changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from nicegui import ui

Language = Literal["Python", "JSON", "TOML", "Shell"]


def code_editor(
    label: str, value: str, language: Language, on_change: Callable[[str], object] | None = None
) -> ui.codemirror:
    """An editor with line numbers and completion; without `on_change` it can only be read."""
    editor = ui.codemirror(
        value, language=language, on_change=(lambda event: on_change(event.value)) if on_change else None
    )
    editor.classes("s-code")
    editor.props["data-label"] = label
    editor.props["data-language"] = language.lower()
    if on_change is None:
        editor.disable()
    return editor
