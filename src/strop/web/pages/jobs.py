"""`/`: all jobs, and the comparison of a few. An empty server greets with the example."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from strop.errors import StropError
from strop.services import jobs, runs
from strop.web.charts import rollout_groups
from strop.web.components import JobsBoard, MetricGrid
from strop.web.context import Address, services
from strop.web.theme import button, failed, page, tag, tag_text, text


@ui.page("/")
def jobs_page() -> None:
    """All jobs."""
    address = Address.of_page()
    with page("Jobs", "Jobs"):
        with tag("div", "s-row"):
            tag_text("h1", "Jobs", "s-grow")
            button("New job", lambda: ui.navigate.to("/jobs/new"), "primary")
        board = JobsBoard(
            address.view("search", "status", "sort"),
            on_view=address.set,
            on_compare=lambda runs: ui.navigate.to("/compare?" + "&".join(f"run={run}" for run in runs)),
            on_clone=lambda job: ui.navigate.to(f"/jobs/new?clone={job}"),
        )
        with board, tag("div", "s-empty"):
            tag_text("h2", "No jobs yet")
            text("Try strop in about three minutes: train the bundled 135M model to extract JSON.")
            control = button("Run the example", lambda: None, "primary")
            control.on_click(lambda: _run_example(control))


async def _run_example(control: ui.button) -> None:
    control.disable()
    try:
        job = await jobs.create_example(services())
    except StropError as error:
        control.enable()
        failed(error.message)
    else:
        ui.navigate.to(f"/experiments/{job.id}")


@ui.page("/compare")
async def compare_page() -> None:
    """The curves of two to four runs over each other."""
    address = Address.of_page()
    wanted = ui.context.client.request.query_params.getlist("run")[:4]
    with page("Compare", "Jobs"):
        tag_text("h1", "Compare runs")
        compared: list[dict[str, Any]] = []
        for run_id in wanted:
            try:
                compared.append({"id": run_id, "name": await runs.name_of(services(), run_id)})
            except StropError as error:
                tag_text("p", error.message, "s-error")
        components = await runs.reward_components(services(), [run["id"] for run in compared])
        if compared:
            settings = ("smoothing", "first", "last", "scale")
            MetricGrid(
                compared,
                rollout_groups(components),
                active=True,
                initial=address.view(*settings),
                on_view=lambda view: address.set(view),
            )
        else:
            tag_text("p", "Select two to four runs in the list of jobs.", "s-empty")
