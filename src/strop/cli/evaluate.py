"""`strop eval`: evaluate a model on held-out rows, or compare two models row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.columns import Columns
from rich.console import Group as RenderGroup
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from strop.cli.console import JsonOption, errors, output, print_json, say
from strop.config import RunConfig, read_config
from strop.evals.report import Comparison, Report, compare, report, row_result
from strop.evals.run import Evaluation
from strop.evals.spec import DEFAULTS, parse_target
from strop.store.files import json_line, write_atomic
from strop.store.rollout_lines import rollout_lines
from strop.types import Group, Json, StepRecord


def evaluate(
    model: Annotated[
        str,
        typer.Argument(help="Catalogue name, Hugging Face id, folder, checkpoint, run, or MODEL@URL for an endpoint."),
    ],
    data: Annotated[Path, typer.Option(help="Held-out rows, JSONL.")],
    rewards: Annotated[
        Path, typer.Option(help="TOML file with [[rewards]]; its [sampling] and [eval] tables apply too.")
    ],
    against: Annotated[
        str | None, typer.Option(help="Second model to compare with, for example the base model.")
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable with the endpoint's API key.")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=512, help="Max concurrent requests to an endpoint.")] = 16,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, for example eval.samples=4."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only this many rows from the start of the file.")
    ] = None,
    show: Annotated[int, typer.Option(min=0, help="Number of rows whose completions are printed side by side.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write every rollout to this JSONL file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a model on held-out rows with the settings in [eval].

    Example: `strop eval runs/demo --data heldout.jsonl --rewards config.toml --against smollm2-135m`

    Name a model behind an OpenAI-compatible endpoint with its base URL:
    `strop eval gpt-5-mini@https://api.openai.com/v1 --api-key-env OPENAI_API_KEY …`
    """
    from strop.worker.evaluation import evaluate_models
    from strop.worker.quiet import quiet_libraries

    quiet_libraries()
    config = read_config(rewards, overrides or (), defaults=DEFAULTS)
    targets = [parse_target(name, api_key_env, concurrency) for name in (against, model) if name is not None]
    with _Display() as display:
        evaluations = evaluate_models(targets, data, config, limit, display)
    if out is not None:
        write_atomic(out, "".join(_answers(evaluations)))
    groups = [evaluation.groups for evaluation in evaluations.values()]
    results = [[row_result(group, config.eval.pass_threshold) for group in found] for found in groups]
    reports = [report(found) for found in results]
    comparison = compare(*results) if len(results) == 2 else None
    if as_json:
        print_json(_document(data, evaluations, reports, comparison))
        return
    output.print(_table(config, evaluations, reports, comparison))
    for index in range(min(show, len(groups[0]))):
        output.print(_side_by_side(list(evaluations), [found[index] for found in groups]))


class _Display:
    """Progress bar on standard error."""

    def __init__(self) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=errors, disable=not errors.is_terminal)
        self._task: TaskID | None = None

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        """Print a status line."""
        say(line)

    def start(self, label: str, rows: int) -> None:
        """Start the progress of a model with this number of rows."""
        self._task = self._bar.add_task(label, total=rows)

    def group(self, group: Group) -> None:
        """Advance by one scored row."""
        assert self._task is not None
        self._bar.advance(self._task)


def _table(
    config: RunConfig, evaluations: dict[str, Evaluation], reports: Sequence[Report], comparison: Comparison | None
) -> Table:
    settings = f"{config.eval.samples} completion(s) per row at temperature {config.eval.temperature:g}"
    table = Table(
        box=None, caption=f"{settings}; 95 % confidence intervals over rows in brackets", caption_justify="left"
    )
    table.add_column("")
    for label in (*evaluations, *(["change"] if comparison else [])):
        table.add_column(label, justify="right")
    for name, cells in _estimates(reports, comparison):
        table.add_row(name, *cells)
    for name in _shared_metrics(list(evaluations.values())):
        values = [evaluation.metrics[name] for evaluation in evaluations.values()]
        change = [f"{values[1] - values[0]:+.3f}"] if comparison else []
        table.add_row(name, *(f"{value:.3f}" for value in values), *change)
    table.add_row("rows", *(str(found.rows) for found in reports))
    if comparison:
        empty = [""] * len(reports)
        counts = (comparison.better, comparison.worse, comparison.equal)
        table.add_row("rows better / worse / equal", *empty, " / ".join(map(str, counts)))
        table.add_row("p-value of the change", *empty, f"{comparison.p_value:.3g}")
    return table


def _estimates(reports: Sequence[Report], comparison: Comparison | None) -> Iterator[tuple[str, list[str]]]:
    """Estimates by name: reward, pass rates and components. Names that one side lacks are omitted."""
    last = reports[-1]
    yield "reward", [str(found.reward) for found in reports] + ([str(comparison.change)] if comparison else [])
    for size in last.pass_at:
        if all(size in found.pass_at for found in reports):
            change = str(comparison.pass_change) if comparison and size == 1 else ""
            yield f"pass@{size}", [str(found.pass_at[size]) for found in reports] + ([change] if comparison else [])
    for name in last.components:
        if all(name in found.components for found in reports):
            change = str(comparison.components.get(name, "")) if comparison else ""
            cells = [str(found.components[name]) for found in reports]
            yield f"reward/{name}", cells + ([change] if comparison else [])


def _shared_metrics(evaluations: Sequence[Evaluation]) -> list[str]:
    """Additional result lines."""
    wanted = ("solve_rate", "response_length", "response_length_clip_ratio", "rollouts_errored")
    return [name for name in wanted if all(name in evaluation.metrics for evaluation in evaluations)]


def _side_by_side(labels: Sequence[str], groups: Sequence[Group]) -> Panel:
    prompt = Text(groups[0].row.messages[-1].content, style="italic")
    answers = [_answer(label, group) for label, group in zip(labels, groups, strict=True)]
    return Panel(RenderGroup(prompt, Columns(answers, equal=True, expand=True)), title=f"line {groups[0].row.line}")


def _answer(label: str, group: Group) -> Panel:
    rollout = group.rollouts[0]
    score = f"{rollout.reward.total:.3f}" if rollout.reward else "not scored"
    return Panel(Text(rollout.messages[-1].content), title=Text(f"{label}: {score}"), title_align="left")


def _answers(evaluations: dict[str, Evaluation]) -> list[str]:
    records = {
        label: StepRecord(0, {}, found.groups, ((),) * len(found.groups)) for label, found in evaluations.items()
    }
    return [json_line({"model": label, **line}) for label, record in records.items() for line in rollout_lines(record)]


def _document(
    data: Path, evaluations: dict[str, Evaluation], reports: Sequence[Report], comparison: Comparison | None
) -> Json:
    return {
        "data": str(data),
        "models": [
            {"model": label, "rows": found.rows, "metrics": evaluation.metrics, "report": asdict(found)}
            for (label, evaluation), found in zip(evaluations.items(), reports, strict=True)
        ],
        "comparison": asdict(comparison) if comparison else None,
    }
