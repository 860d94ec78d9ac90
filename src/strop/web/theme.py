"""What every page is drawn in: the style sheet, the header, the help, small pieces of HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nicegui import app, ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from strop.errors import StropError

PLACES = (
    ("Jobs", "/"),
    ("Datasets", "/datasets"),
    ("Rewards", "/rewards"),
    ("Evaluations", "/evaluations"),
    ("Deployments", "/deployments"),
    ("Playground", "/playground"),
    ("Settings", "/settings"),
)
KEYS = (
    ("/", "go to the search field"),
    ("j  k", "next or previous row"),
    ("← ↑ → ↓", "move in the heat map"),
    ("Enter", "open"),
    ("Esc", "close"),
    ("?", "show this help"),
)
_TONES = {
    "running": "running",
    "starting": "running",
    "validating_files": "running",
    "loading": "running",
    "succeeded": "good",
    "loaded": "good",
    "paused": "warn",
    "failed": "bad",
    "error": "bad",
}


@dataclass(frozen=True)
class Theme:
    """Light, dark, or as the machine has it; kept for each browser."""

    name: str
    dark: bool | None


THEMES = (Theme("System", None), Theme("Light", False), Theme("Dark", True))


@contextmanager
def page(title: str, place: str = "") -> Iterator[None]:
    """The frame of a page. Inside it, the page's own content is built; `place` is its entry in the header."""
    ui.page_title(f"{title} · strop")
    ui.on_exception(once(failed))
    dark = ui.dark_mode(chosen_theme().dark)
    with ui.context.client.layout as layout:  # beside Quasar's <main>, which holds the content
        with tag("div", "s-top") as top:
            _header(place, dark)
        top.move(layout, 0)
    with tag("div", "s-main", 'id="main" tabindex="-1"'):
        yield


def missing(place: str, message: str) -> None:
    """The page of something that is not there; `message` says what."""
    with page("Not found", place):
        tag_text("h1", "Not found")
        tag_text("p", message, "s-empty")


def _header(place: str, dark: ui.dark_mode) -> None:
    with tag("a", "s-skip", 'href="#main"'):
        text("Skip to the content")
    with tag("header", "s-header"):
        ui.link("strop", "/").classes("s-brand")
        with tag("nav", "s-nav", 'aria-label="Main"'):
            for name, path in PLACES:
                link = ui.link(name, path)
                if name == place:
                    link.props('aria-current="page"')
        _theme_button(dark)
        _help_button()


def chosen_theme() -> Theme:
    """The theme of this browser."""
    name = app.storage.user.get("theme", "System")
    return next((theme for theme in THEMES if theme.name == name), THEMES[0])


def choose_theme(name: str) -> None:
    """Keep a theme for this browser; a page that is open stays as it is until it is loaded again."""
    app.storage.user["theme"] = name


def _theme_button(dark: ui.dark_mode) -> None:
    def turn() -> None:
        theme = THEMES[(THEMES.index(chosen_theme()) + 1) % len(THEMES)]
        choose_theme(theme.name)
        dark.value = theme.dark
        control.set_text(f"Theme: {theme.name}")

    control = button(f"Theme: {chosen_theme().name}", turn, "bare")


def _help_button() -> None:
    with ui.dialog() as dialog, tag("div", "s-dialog"):
        tag_text("h2", "Keyboard shortcuts")
        facts((key, meaning) for key, meaning in KEYS)
        button("Close", dialog.close)
    button("?", dialog.open, "bare").props('data-help aria-label="Keyboard shortcuts"')


def tag(name: str, classes: str = "", props: str = "") -> Element:
    """An HTML element to build in."""
    return ui.element(name).classes(classes).props(props)


def tag_text(name: str, content: str, classes: str = "", props: str = "") -> Element:
    """An HTML element that holds text; it is never taken for markup.

    A column without a title holds buttons; screen readers get a hidden title.
    """
    element = tag(name, classes, props)
    with element:
        if name == "th" and not content:
            text("Actions", "s-sr")
        else:
            text(content)
    return element


def text(content: str, classes: str = "") -> TextElement:
    """Text as a block of its own, in an element that may stand wherever text may: in a heading, a button, a cell."""
    return TextElement(tag="span", text=content).classes(f"s-text {classes}")


def button(label: str, on_click: Callable[..., object], kind: str = "") -> ui.button:
    """A button; kinds are primary, danger and bare."""
    return (
        ui.button(label, on_click=on_click, color=None)
        .props("no-caps unelevated :ripple=false")
        .classes(f"s-button {f's-button--{kind}' if kind else ''}")
    )


def badge(state: str) -> Element:
    """A state, as a word and as a colour."""
    tone = _TONES.get(state, "")
    return tag_text("span", state.replace("_", " "), f"s-badge {f's-badge--{tone}' if tone else ''}")


def facts(pairs: Iterator[tuple[str, str]] | tuple[tuple[str, str], ...]) -> None:
    """Names and values beside each other."""
    with tag("dl", "s-facts"):
        for name, value in pairs:
            tag_text("dt", name)
            tag_text("dd", value)


def since(seconds: float) -> Element:
    """A time as its age, the exact one on hover; grows older in the browser."""
    return tag("time", "s-muted", f'data-since="{seconds:.0f}"')


def failed(message: str) -> None:
    """Say that what a person asked for did not work, and leave it standing until it was read."""
    ui.notify(message, type="negative", timeout=0, close_button="Close", multi_line=True, position="bottom")


def once(say: Callable[[str], None]) -> Callable[[Exception], None]:
    """Tell a person what a handler of events did not catch: the same thing once, however often a timer meets it."""
    told: set[str] = set()

    def tell(error: Exception) -> None:
        unforeseen = f"Unexpected error ({type(error).__name__}). The server log has the details"
        message = error.message if isinstance(error, StropError) else unforeseen
        if message not in told:
            told.add(message)
            say(message)

    return tell


async def confirm(question: str, consequence: str, action: str) -> bool:
    """Ask before something that cannot be undone."""
    with ui.dialog() as dialog, tag("div", "s-dialog"):
        dialog.props["role"] = "alertdialog"
        dialog.props["aria-label"] = question
        tag_text("h2", question)
        text(consequence)
        with tag("div", "s-row"):
            button("Cancel", lambda: dialog.submit(False))
            button(action, lambda: dialog.submit(True), "danger")
    answer = await dialog
    dialog.delete()
    return bool(answer)
