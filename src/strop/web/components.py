"""Python's side of the own components: their properties, and the events that pages listen to.

Each is a file in `components/` that reads the API by itself. What crosses the page's socket is
which thing to show and what a person chose, never the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nicegui.element import Element
from nicegui.elements.echart import EChart
from nicegui.events import GenericEventArguments

CHART_LIBRARY = EChart
"""Importing it makes `nicegui-echart` known to the browser, which the charts import."""

Listener = Callable[[Any], object]


@dataclass(frozen=True)
class Chart:
    """One chart of a grid."""

    title: str
    metric: str
    validation: str | None = None
    """Drawn over it, dashed."""
    hint: str = ""


@dataclass(frozen=True)
class ChartGroup:
    """Charts under one heading that opens and closes."""

    title: str
    charts: Sequence[Chart]
    open: bool = True


class _Component(Element):
    """A component with properties by the names that its file gives them."""

    def _set(self, properties: Mapping[str, Any]) -> None:
        self._props.update({name: value for name, value in properties.items() if value is not None})

    def _listen(self, event: str, listener: Listener | None) -> None:
        if listener is not None:
            self.on(event, lambda event: listener(_argument(event)))


def _argument(event: GenericEventArguments) -> Any:
    return event.args[0] if isinstance(event.args, list) and len(event.args) == 1 else event.args


class JobsBoard(_Component, component="components/jobs_board.js"):
    """All jobs and imported runs."""

    def __init__(
        self, initial: Mapping[str, Any], *, on_view: Listener, on_compare: Listener, on_clone: Listener
    ) -> None:
        super().__init__()
        self._set({"initial": dict(initial)})
        self._listen("view", on_view)
        self._listen("compare", on_compare)
        self._listen("clone", on_clone)


class MetricGrid(_Component, component="components/metric_grid.js"):
    """Curves of a run, or of several over each other."""

    def __init__(
        self,
        runs: Sequence[Mapping[str, str]],
        groups: Sequence[ChartGroup],
        *,
        active: bool,
        initial: Mapping[str, Any],
        on_view: Listener | None = None,
        on_step: Listener | None = None,
    ) -> None:
        super().__init__()
        self._set(
            {"runs": list(runs), "groups": [asdict(g) for g in groups], "active": active, "initial": dict(initial)}
        )
        self._listen("view", on_view)
        self._listen("step", on_step)


class Explorer(_Component, component="components/explorer.js"):
    """Prompts or steps of a run."""

    def __init__(
        self,
        run: str,
        components: Sequence[str],
        *,
        active: bool,
        step: int | None,
        initial: Mapping[str, Any],
        on_view: Listener,
        on_prompt: Listener,
        on_step: Listener,
    ) -> None:
        """`step` is the one whose rollouts are shown; `initial` holds filters, as in the address."""
        super().__init__()
        self._set(
            {"run": run, "components": list(components), "active": active, "step": step, "initial": dict(initial)}
        )
        self._listen("view", on_view)
        self._listen("prompt", on_prompt)
        self._listen("step", on_step)

    def set_chosen(self, row: str | None, step: int | None) -> None:
        """Mark what is shown below the list, which leaves room for it."""
        self._props.update({"chosen": row or "", "step": step, "short": row is not None or step is not None})
        self.update()


class HeatMap(_Component, component="components/heat_map.js"):
    """Every attempt at a prompt."""

    def __init__(
        self,
        run: str,
        row: str,
        *,
        selected: str | None,
        active: bool,
        grab: bool,
        on_select: Listener,
        on_close: Listener,
    ) -> None:
        """With `grab` it takes the keyboard as soon as it is there. `on_select` gets "" when an attempt is left."""
        super().__init__()
        self._set({"run": run, "row": row, "selected": selected, "active": active, "grab": grab})
        self._listen("select", on_select)
        self._listen("close", on_close)


class Inspector(_Component, component="components/inspector.js"):
    """One rollout as a whole."""

    def __init__(
        self,
        rollout: str,
        initial: Mapping[str, Any],
        *,
        base: str = "/v1/strop/rollouts",
        follows: bool = False,
        on_open: Listener,
        on_view: Listener,
    ) -> None:
        """Without a rollout it says how to choose one; with `follows` it shows the one chosen in the heat map.

        It reads the rollout at `base`/id, and its group at `base`/id/group.
        """
        super().__init__()
        self._set({"base": base, "id": rollout, "initial": dict(initial), "follows": follows})
        self._listen("open", on_open)
        self._listen("view", on_view)


class LogTail(_Component, component="components/log_tail.js"):
    """The end of a run's logs, followed."""

    def __init__(self, run: str) -> None:
        super().__init__()
        self._set({"run": run})


class Chat(_Component, component="components/chat.js"):
    """One prompt to several models."""

    def __init__(
        self,
        models: Sequence[str],
        chosen: Sequence[str],
        messages: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        *,
        on_changed: Listener,
    ) -> None:
        super().__init__()
        self._set(
            {"models": list(models), "chosen": list(chosen), "messages": list(messages), "settings": dict(settings)}
        )
        self._listen("changed", on_changed)


class Uploader(_Component, component="components/uploader.js"):
    """A data file on its way to the server; `on_uploaded` gets the file's object."""

    def __init__(self, *, on_uploaded: Listener) -> None:
        super().__init__()
        self._set({"accept": ".jsonl,.ndjson,.json", "hint": "JSONL: one JSON object per line"})
        self._listen("uploaded", on_uploaded)
