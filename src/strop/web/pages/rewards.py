"""`/rewards`: the library of reward functions."""

from __future__ import annotations

from nicegui import ui

from strop.errors import StropError
from strop.rewards.presets.index import Preset, presets
from strop.services import rewards
from strop.services.rewards import NewReward, RewardObject
from strop.web.context import Address, services
from strop.web.presets import content
from strop.web.theme import button, failed, page, since, tag, tag_text, text

PAGE = 50


@ui.page("/rewards")
async def rewards_page() -> None:
    """All reward functions, and what to start another one from."""
    address = Address.of_page()
    with page("Rewards", "Rewards"):
        tag_text("h1", "Rewards")
        text(
            "Functions and graders that score completions. Versions never change; each job records the version it "
            "uses.",
            "s-muted",
        )
        listing = Listing(address)
        with tag("section", "s-column", 'aria-labelledby="starts"'):
            tag_text("h2", "Templates", props='id="starts"')
            box = tag("div", "s-grid")
        await listing.load()
        for preset in presets().values():
            with box:
                _card(preset)


def _card(preset: Preset) -> None:
    async def make() -> None:
        control.disable()
        new = NewReward(name=preset.title.rpartition(": ")[2], **content(preset.kind, preset.source))
        try:
            made = await rewards.create_named_freely(services(), new)
        except StropError as error:
            control.enable()
            failed(error.message)
        else:
            ui.navigate.to(f"/rewards/{made.id}")

    with tag("section", "s-card"):
        with tag("div", "s-row"):
            tag_text("h3", preset.title, "s-grow")
            control = button("New", make)
            control.props["aria-label"] = f"New reward from {preset.title}"
        tag_text("p", preset.description, "s-muted")
        if preset.needs:
            tag_text("p", f"Rows need {', '.join(preset.needs)}.", "s-small s-muted")


class Listing:
    """The table of rewards."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._search = address.values.get("search", "")
        self._found: list[RewardObject] = []
        field = ui.input(placeholder="Search rewards", value=self._search)
        field.props('outlined dense clearable type=search data-search aria-label="Search rewards" debounce=200')
        field.on_value_change(lambda event: self._find(event.value))
        self._box = tag("div", "s-column", 'aria-live="polite"')

    async def load(self, after: str | None = None) -> None:
        """Read rewards, and show them."""
        found = await rewards.list_page(services(), after, PAGE, self._search)
        if self._box.is_deleted:
            return
        self._found = [*(self._found if after else []), *found.data]
        self._box.clear()
        with self._box:
            if not self._found:
                tag_text(
                    "p",
                    "No rewards match your search." if self._search else "No rewards yet. Start from a template below.",
                    "s-empty",
                )
                return
            self._table()
            if found.has_more:
                button("Show more", lambda: self.load(found.last_id))

    def _table(self) -> None:
        with tag("div", "s-table-wrap"), tag("table", "s-table"):
            with tag("thead"), tag("tr"):
                for name in ("Name", "Kind", "Version", "Secrets", "Changed", ""):
                    tag_text("th", name, "s-number" if name == "Version" else "")
            with tag("tbody", props="data-list"):
                for reward in self._found:
                    self._row(reward)

    def _row(self, reward: RewardObject) -> None:
        with tag("tr"):
            with tag("td"):
                ui.link(reward.name, f"/rewards/{reward.id}").classes("s-clip").props("data-item")
            tag_text("td", "Python" if reward.kind == "python" else "grader")
            tag_text("td", str(reward.latest), "s-number mono")
            tag_text("td", ", ".join(reward.env) or "–", "mono s-muted")
            with tag("td"):
                since(reward.updated_at)
            with tag("td"):
                train = button("Train with it", lambda: ui.navigate.to(f"/jobs/new?reward={reward.id}"))
                train.props["aria-label"] = f"Train with {reward.name}"

    async def _find(self, wanted: str | None) -> None:
        self._search = wanted or ""
        self._address.set({"search": self._search})
        await self.load()
