"""`/rewards/{id}`: a reward function, its versions, and what it makes of answers."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.services import rewards
from strop.services.field_errors import faults
from strop.services.rewards import NewVersion, RewardChange, RewardObject, VersionObject
from strop.types import Json
from strop.web.context import Address, services
from strop.web.editor import code_editor
from strop.web.forms import ask, choice_field, text_field
from strop.web.presets import content, pretty
from strop.web.reward_test import RewardTest
from strop.web.secrets_field import SecretsField
from strop.web.theme import button, confirm, failed, missing, page, since, tag, tag_text, text


@ui.page("/rewards/{reward_id}")
async def reward_page(reward_id: str) -> None:
    """One reward: its code, its versions, and what it makes of answers."""
    try:
        reward = await rewards.get(services(), reward_id)
        versions = await rewards.versions(services(), reward_id)
    except StropError as error:
        missing("Rewards", f"{error.message}. It may have been deleted.")
        return
    with page(reward.name, "Rewards"):
        await _Reward(reward, versions, Address.of_page()).build()


class _Reward:
    """The page of a reward."""

    def __init__(self, reward: RewardObject, versions: list[VersionObject], address: Address) -> None:
        self._reward, self._versions, self._address = reward, versions, address
        wanted = address.values.get("version", "")
        number = int(wanted) if wanted.isdecimal() else reward.latest
        self._shown = next((version for version in versions if version.version == number), versions[0])
        self._source = source_of(self._shown)
        self._env = list(self._shown.env)

    async def build(self) -> None:
        """Draw it."""
        ui.link("Rewards", "/rewards").classes("s-small")
        self._head = tag("header", "s-row")
        self._draw_head()
        with tag("section", "s-card", 'aria-labelledby="code"'):
            await self._draw_editor()
        with tag("section", "s-card", 'aria-labelledby="test"'):
            tag_text("h2", "Test", props='id="test"')
            test = RewardTest(self._option)
        with tag("section", "s-card", 'aria-labelledby="versions"'):
            tag_text("h2", "Versions", props='id="versions"')
            self._history = tag("div", "s-column")
        self._draw_versions()
        await test.build()
        await self._compare()

    def _draw_head(self) -> None:
        self._head.clear()
        with self._head:
            tag_text("h1", self._reward.name, "s-grow s-break")
            button("Train with it", lambda: ui.navigate.to(f"/jobs/new?reward={self._reward.id}"), "primary")
            button("Rename", self._rename)
            button("Delete", self._delete, "danger")

    async def _draw_editor(self) -> None:
        python = self._shown.kind == "python"
        old = "" if self._shown.version == self._reward.latest else " (not the newest)"
        tag_text("h2", f"Version {self._shown.version}{old}", props='id="code"')
        if python:
            text(
                "grade(sample, item) returns a number, or a dict of named components; each component gets its own "
                "chart.",
                "s-muted",
            )
        else:
            text("A grader in OpenAI's JSON format.", "s-muted")
        code_editor("Reward code", self._source, "Python" if python else "JSON", self._changed)
        self._problem = tag("p", "s-error", 'role="alert"')
        self._problem.set_visibility(False)
        await SecretsField(self._env, self._chose).build()
        with tag("div", "s-row"):
            self._save = button(f"Save as version {self._reward.latest + 1}", self._add_version, "primary")
            self._unsaved = text("Unsaved changes", "s-small s-warn")
        self._mark()

    def _changed(self, source: str) -> None:
        self._source = source
        self._mark()

    def _chose(self, names: list[str]) -> None:
        self._env = list(names)
        self._mark()

    def _mark(self) -> None:
        """Show whether there is something to save."""
        changed = self._source != source_of(self._shown) or self._env != self._shown.env
        self._save.set_enabled(changed or self._shown.version != self._reward.latest)
        self._unsaved.set_visibility(changed)
        self._unsaved.props("data-unsaved" if changed else "", remove="" if changed else "data-unsaved")

    async def _add_version(self) -> None:
        try:
            body = NewVersion(**content(self._shown.kind, self._source), env=self._env)
            made = await rewards.add_version(services(), self._reward.id, body)
        except (StropError, ValueError) as error:
            self._complain("\n".join(faults(error).values()))
            return
        assert made is not None
        self._unsaved.props(remove="data-unsaved")
        ui.navigate.to(f"/rewards/{self._reward.id}")

    def _complain(self, message: str) -> None:
        self._problem.clear()
        with self._problem:
            text(message)
        self._problem.set_visibility(bool(message))

    def _option(self) -> dict[str, Json]:
        """The reward as it stands in the editor. ValueError for a grader that is no JSON."""
        env = {"env": self._env} if self._env else {}
        return {"name": "reward", **content(self._shown.kind, self._source), **env}

    def _draw_versions(self) -> None:
        self._history.clear()
        with self._history:
            with tag("div", "s-table-wrap"), tag("table", "s-table"), tag("tbody", props="data-list"):
                for version in self._versions:
                    with tag("tr"):
                        with tag("td"):
                            address = f"/rewards/{self._reward.id}?version={version.version}"
                            link = ui.link(f"Version {version.version}", address).props("data-item")
                            if version.version == self._shown.version:
                                link.props('aria-current="true"').classes("s-strong")
                        with tag("td"):
                            since(version.created_at)
                        tag_text("td", ", ".join(version.env), "mono s-muted")
            if len(self._versions) > 1:
                numbers = [version.version for version in self._versions]
                against = self._address.values.get("against", "")
                with tag("div", "s-fields"):
                    choice_field(
                        f"Compare version {self._shown.version} with",
                        {number: f"version {number}" for number in numbers if number != self._shown.version},
                        int(against) if against.isdecimal() and int(against) in numbers else None,
                        self._choose_other,
                    )
            self._diff = tag("div")

    async def _choose_other(self, other: int) -> None:
        self._address.set({"against": other})
        await self._compare()

    async def _compare(self) -> None:
        """Show how the version differs from the one in the address."""
        against = self._address.values.get("against", "")
        if not against.isdecimal() or int(against) == self._shown.version:
            return
        try:
            found = await rewards.diff(services(), self._reward.id, self._shown.version, int(against))
        except StropError as error:
            failed(error.message)
            return
        self._diff.clear()
        with self._diff:
            if not found.diff:
                tag_text("p", "The two versions are identical.", "s-muted")
                return
            with tag("pre", "s-note s-diff"):
                for line in found.diff.splitlines():
                    kind = (
                        {"+": "s-diff--more", "-": "s-diff--less"}.get(line[:1], "")
                        if line[:3] not in ("+++", "---")
                        else ""
                    )
                    tag_text("div", line or " ", kind)

    async def _rename(self) -> None:
        values = {"name": self._reward.name}

        def fields() -> dict[str, Any]:
            return {"name": text_field("Name", values["name"], lambda value: values.update(name=value))}

        async def save() -> None:
            self._reward = await rewards.rename(services(), self._reward.id, RewardChange(**values))
            self._draw_head()

        await ask("Rename", fields, "Save", save)

    async def _delete(self) -> None:
        consequence = "All versions are deleted. Finished runs keep their own copy."
        if not await confirm(f"Delete {self._reward.name}?", consequence, "Delete"):
            return
        try:
            await rewards.delete(services(), self._reward.id)
        except StropError as error:
            failed(error.message)
        else:
            ui.navigate.to("/rewards")


def source_of(version: VersionObject) -> str:
    """What an editor shows of a version."""
    return version.python if version.python is not None else pretty(version.grader)


def _tone(line: str) -> str:
    """The colour of a line of a comparison."""
    if line.startswith(("+++", "---")):
        return ""
    return {"+": "s-diff--more", "-": "s-diff--less"}.get(line[:1], "")
