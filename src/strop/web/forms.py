"""Fields of forms: a name above, an explanation below, and what the server has to say about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.validation_element import ValidationElement

from strop.errors import InvalidRequest, StropError
from strop.services.field_errors import faults
from strop.web.theme import button, tag, tag_text, text

Changed = Callable[[Any], object]
Control = TypeVar("Control", bound=ValidationElement[Any])


class Complaining(Protocol):
    """What can show that something is wrong with it."""

    error: str | None


def text_field(
    label: str, value: str, on_change: Changed, *, hint: str = "", error: str = "", placeholder: str = ""
) -> ui.input:
    """A line of text."""
    with _field(label, hint) as name:
        field = ui.input(value=value, placeholder=placeholder, on_change=lambda event: on_change(event.value or ""))
        return _settled(field, name, error)


def number_field(
    label: str,
    value: float | None,
    on_change: Changed,
    *,
    hint: str = "",
    error: str = "",
    placeholder: str = "",
    step: float | None = None,
) -> ui.number:
    """A number; None where the field is empty. What is allowed is for the server to say."""
    with _field(label, hint) as name:
        field = ui.number(value=value, placeholder=placeholder, on_change=lambda event: on_change(event.value))
        field.props["step"] = "any" if step is None else step
        return _settled(field, name, error)


def choice_field(
    label: str,
    options: Mapping[Any, str] | Sequence[Any],
    value: Any,
    on_change: Changed,
    *,
    hint: str = "",
    error: str = "",
    several: bool = False,
) -> ui.select:
    """One of several, or some of them."""
    known = dict(options) if isinstance(options, Mapping) else {option: str(option) for option in options}
    with _field(label, hint) as name:
        field = ui.select(known, value=value, multiple=several, on_change=lambda event: on_change(event.value))
        if several:
            field.props("use-chips")
        return _settled(field, name, error)


def area_field(
    label: str, value: str, on_change: Changed, *, hint: str = "", error: str = "", rows: int = 4
) -> ui.textarea:
    """Several lines of text."""
    with _field(label, hint) as name:
        field = ui.textarea(value=value, on_change=lambda event: on_change(event.value or ""))
        field.props["rows"] = rows
        return _settled(field, name, error)


def radio(
    group: str, label: str, chosen: bool, on_choose: Callable[[], object], *, hint: str = "", enabled: bool = True
) -> Element:
    """One option of a single-choice group."""
    with tag("label", "s-choice") as whole:
        control = tag("input", "", 'type="radio"')
        control.props["name"] = group
        if chosen:
            control.props("checked")
        if not enabled:
            control.props("disabled")
        control.on("change", on_choose, args=[])
        with tag("span", "s-column s-tight"):
            text(label)
            if hint:
                text(hint, "s-small s-muted")
    return whole


@contextmanager
def _field(label: str, hint: str) -> Iterator[str]:
    """The frame of a field; gives the id of its control."""
    with tag("div", "s-field") as frame:
        name = f"field-{frame.id}"
        caption = tag_text("label", label, "s-field-label")
        caption.props["for"] = name
        yield name
        if hint:
            tag_text("p", hint, "s-small s-muted")


def _settled(field: Control, name: str, error: str) -> Control:
    field.props("outlined dense")
    field.props["for"] = name
    if error:
        complain(field, error)
    return field


class Complaint:
    """Error message for an element without one of its own, such as an editor."""

    def __init__(self) -> None:
        self._box = tag("p", "s-bad s-small s-break", 'role="alert"')
        self.error = None

    @property
    def error(self) -> str | None:
        """Error message; None without an error."""
        return self._error

    @error.setter
    def error(self, error: str | None) -> None:
        self._error = error
        self._box.clear()
        self._box.set_visibility(bool(error))
        if error:
            with self._box:
                text(error)


def complain(field: Complaining, error: str) -> None:
    """Show at a field what is wrong with it; nothing where it is empty."""
    field.error = error or None


def share_of(percent: float | None) -> float:
    """A share that was asked for in percent. InvalidRequest for what leaves nothing on one side."""
    if percent is None or not 0 < percent < 100:
        raise InvalidRequest("more than 0 and less than 100 percent", param="validation")
    return percent / 100


async def ask(
    title: str,
    build: Callable[[], Mapping[str, Complaining]],
    action: str,
    act: Callable[[], Awaitable[object]],
) -> None:
    """Fields in a dialog, and something that is done with them.

    `build` draws the fields and gives them by the names that faults have. What is refused is said
    there, and the dialog stays.
    """
    with ui.dialog() as dialog, tag("div", "s-dialog"), tag("form", "s-column") as form:
        dialog.props["aria-label"] = title
        tag_text("h2", title)
        fields = build()
        problem = tag("p", "s-error", 'role="alert"')
        problem.set_visibility(False)
        with tag("div", "s-row"):
            control = button(action, lambda: None, "primary")
            control.props("type=submit")
            button("Cancel", dialog.close)

    def show(found: Mapping[str, str]) -> None:
        for name, field in fields.items():
            complain(field, found.get(name, ""))
        others = [message for name, message in found.items() if name not in fields]
        problem.clear()
        with problem:
            text("\n".join(others))
        problem.set_visibility(bool(others))

    async def submit() -> None:
        control.disable()
        try:
            await act()
        except (StropError, ValueError) as error:
            show(faults(error))
            control.enable()
        else:
            if not dialog.is_deleted:  # it may have led to another page
                dialog.close()

    form.on("submit.prevent", submit, args=[])
    dialog.on("hide", dialog.delete)
    dialog.open()
