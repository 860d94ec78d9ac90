"""Step 4: what makes an answer good, and a test of it on answers of the base model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.rewards.presets.index import Preset, presets
from strop.services import providers, rewards
from strop.services.datasets import MANY
from strop.services.drafts.draft import JobDraft, RewardPart
from strop.services.reward_names import reward_name
from strop.services.rewards import NewReward, RewardObject, VersionObject
from strop.web.context import services
from strop.web.editor import code_editor
from strop.web.forms import Complaint, choice_field, number_field, text_field
from strop.web.pages.reward import source_of
from strop.web.presets import content, judges
from strop.web.secrets_field import SecretsField
from strop.web.theme import button, failed, tag, tag_text, text
from strop.web.wizard.frame import Wizard
from strop.web.wizard.steps.trial import TrialPanel

_SOURCE = ("python", "function", "grader", "reward", "version", "env", "source")


async def build(wizard: Wizard) -> None:
    """Draw the step."""
    await RewardStep(wizard).build()


class RewardStep:
    """The rewards of a draft, and the test of all of them together."""

    def __init__(self, wizard: Wizard) -> None:
        self._wizard = wizard
        self._stored: list[RewardObject] = []
        self._presets: dict[str, Preset] = {}

    async def build(self) -> None:
        """Draw it."""
        self._stored = (await rewards.list_page(services(), limit=MANY)).data
        self._presets = {**presets(), **judges(await providers.list_all(services()))}
        text(
            "Each reward scores every completion. The total reward is the weighted sum of the scores. A reward with "
            "weight 0 is logged only.",
            "s-muted",
        )
        self._parts = tag("div", "s-column")
        self._sum = tag("p", "mono s-small", 'aria-live="polite"')
        with tag("section", "s-card", 'aria-labelledby="add"'):
            tag_text("h2", "Add a reward", props='id="add"')
            with tag("div", "s-fields s-wide-fields"):
                titles = {name: preset.title for name, preset in self._presets.items()}
                self._preset = choice_field("Preset", titles, None, self._add, hint="Adds code that you edit here.")
                if self._stored:
                    names = {reward.id: reward.name for reward in self._stored}
                    self._library = choice_field(
                        "Saved reward", names, None, self._add_stored, hint="Uses a fixed version from Rewards."
                    )
        await self._draw_parts()
        with tag("section", "s-card", 'aria-labelledby="test"'):
            tag_text("h2", "Test", props='id="test"')
            TrialPanel(self._wizard)

    async def _draw_parts(self) -> None:
        self._parts.clear()
        with self._parts:
            for index, part in enumerate(self._wizard.draft.rewards):
                await RewardCard(self._wizard, index, part, self._changed, self._draw_parts).build()
        self._changed()

    def _changed(self) -> None:
        """Show the sum that is trained on."""
        parts = self._wizard.draft.rewards
        terms = [f"{part.weight or 0:g} × {part.name}" for part in parts]
        self._sum.clear()
        self._sum.set_visibility(len(parts) > 1)
        with self._sum:
            text(f"reward = {' + '.join(terms)}")

    async def _add(self, name: str | None) -> None:
        if name is None:
            return
        preset = self._presets[name]
        self._preset.value = None
        await self._take(
            RewardPart(name=reward_name(preset.title), kind=preset.kind, source=preset.source, env=preset.env)
        )

    async def _add_stored(self, reward_id: str | None) -> None:
        if reward_id is None:
            return
        reward = next(reward for reward in self._stored if reward.id == reward_id)
        self._library.value = None
        await self._take(
            RewardPart(name=reward_name(reward.name), kind="stored", reward=reward.id, version=reward.latest)
        )

    async def _take(self, part: RewardPart) -> None:
        self._wizard.change(lambda draft: with_another(draft, part), "strop.rewards")
        await self._draw_parts()


def with_another(draft: JobDraft, part: RewardPart) -> JobDraft:
    """The draft with one more reward under a unique name."""
    taken = {known.name for known in draft.rewards}
    name = next(
        name for name in (part.name, *(f"{part.name}_{number}" for number in range(2, MANY))) if name not in taken
    )
    return draft.model_copy(update={"rewards": (*draft.rewards, part.model_copy(update={"name": name}))})


class RewardCard:
    """One reward of the draft."""

    def __init__(
        self,
        wizard: Wizard,
        index: int,
        part: RewardPart,
        on_change: Callable[[], object],
        on_redraw: Callable[[], Any],
    ) -> None:
        self._wizard, self._index, self._part = wizard, index, part
        self._on_change, self._on_redraw = on_change, on_redraw

    async def build(self) -> None:
        """Draw it."""
        part = self._part
        with tag("section", "s-card") as card:
            card.props["aria-label"] = f"Reward {part.name}"
            with tag("div", "s-row s-reward-head"):
                name = text_field("Name", part.name, lambda value: self._set("name", name=value.strip()))
                self._at(name, "name")
                weight = number_field("Weight", part.weight, lambda value: self._set("weight", weight=value))
                self._at(weight, "weight")
                tag("span", "s-grow")
                if part.kind != "stored":
                    button("Save to Rewards", self._save)
                button("Remove", self._remove).props["aria-label"] = f"Remove {part.name}"
            if part.kind == "stored":
                await self._draw_stored()
            else:
                label = "Code of" if part.kind == "python" else "Grader"
                language = "Python" if part.kind == "python" else "JSON"
                code_editor(f"{label} {part.name}", part.source, language, self._set_source)  # type: ignore[arg-type]
            self._at(Complaint(), *_SOURCE)
            if part.kind != "stored":
                await SecretsField(part.env, lambda names: self._set("env", env=tuple(names))).build()

    def _at(self, control: Any, *names: str) -> None:
        self._wizard.at(control, *(f"strop.rewards[{self._index}].{name}" for name in names))

    def _set(self, *fields: str, **values: Any) -> None:
        self._part = self._part.model_copy(update=values)
        part, index = self._part, self._index
        names = [f"strop.rewards[{index}].{field}" for field in fields]
        self._wizard.change(lambda draft: draft.with_reward(index, part), *names)
        self._on_change()

    def _set_source(self, source: str) -> None:
        self._set(*_SOURCE, source=source)

    async def _draw_stored(self) -> None:
        """A reward of the library, at a version."""
        part = self._part
        try:
            reward = await rewards.get(services(), part.reward)
            versions = await rewards.versions(services(), part.reward)
        except StropError as error:
            tag_text("p", error.message, "s-error", 'role="alert"')
            return
        known: dict[int, VersionObject] = {version.version: version for version in versions}
        number = part.version if part.version in known else reward.latest
        with tag("div", "s-row s-bottom-aligned"):
            numbers = {version: f"version {version}" for version in known}
            choice_field("Version", numbers, number, self._set_version)
            ui.link(f"Open {reward.name}", f"/rewards/{reward.id}?version={number}")
        code_editor(f"Code of {part.name}", source_of(known[number]), "Python" if reward.kind == "python" else "JSON")
        if known[number].env:
            text(f"Environment variables: {', '.join(known[number].env)}.", "s-small s-muted")

    async def _set_version(self, version: int) -> None:
        self._set("version", version=version)
        await self._on_redraw()

    async def _remove(self) -> None:
        index = self._index
        self._wizard.change(lambda draft: draft.with_reward(index, None), "strop.rewards")
        await self._on_redraw()

    async def _save(self) -> None:
        """Put it into the library, and take it from there."""
        part = self._part

        try:
            body = NewReward(name=part.name, **content(part.kind, part.source), env=list(part.env))
            made = await rewards.create_named_freely(services(), body)
        except (StropError, ValueError) as error:
            failed(error.message if isinstance(error, StropError) else f"not valid JSON: {error}")
            return
        self._set(*_SOURCE, kind="stored", reward=made.id, version=made.latest, source="", env=())
        await self._on_redraw()
