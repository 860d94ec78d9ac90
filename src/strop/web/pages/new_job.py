"""`/jobs/new`: a job in five steps, kept as a draft whose id stands in the address."""

from __future__ import annotations

from functools import partial

from nicegui import app, ui

from strop.errors import StropError
from strop.services.drafts.book import Book
from strop.services.drafts.prefill import prefilled
from strop.web.context import Address, services
from strop.web.theme import button, failed, page, since, tag, tag_text, text
from strop.web.wizard.frame import Step, Wizard
from strop.web.wizard.steps import dataset, model, review, reward, tools

STEPS = (
    Step("model", "Model", model.build),
    Step("dataset", "Dataset", dataset.build),
    Step("tools", "Tools", tools.build),
    Step("reward", "Reward", reward.build),
    Step("review", "Review", review.build),
)
SHOWN_DRAFTS = 5
PREFILLED = ("clone", "checkpoint", "dataset", "reward")


@ui.page("/jobs/new")
async def new_job_page() -> None:
    """The wizard; `?clone=`, `&checkpoint=`, `?dataset=` and `?reward=` fill it in."""
    address = Address.of_page()
    with page("New job", "Jobs"):
        try:
            await _show(address)
        except StropError as error:
            tag_text("h1", "New job")
            tag_text("p", error.message, "s-error", 'role="alert"')
            button("Start a new draft", lambda: ui.navigate.to("/jobs/new"))


async def _show(address: Address) -> None:
    drafts, draft_id = book(), address.values.get("draft", "")
    if draft_id:
        draft, job_id = await drafts.open(draft_id)
        if job_id is not None:
            _finished(job_id)
            return
    else:
        draft = await prefilled(services(), address.values)
        if any(address.values.get(name) for name in PREFILLED):
            draft_id = drafts.begin(draft)
            address.set({**dict.fromkeys(PREFILLED, ""), "draft": draft_id})
    above = None if draft_id else partial(_unfinished, drafts)
    await Wizard(STEPS, drafts, address, draft_id, draft).build(above)


def book() -> Book:
    """The drafts of this server."""
    if not hasattr(app.state, "drafts"):
        app.state.drafts = Book.of(services())
        app.on_shutdown(app.state.drafts.close)
    return app.state.drafts  # type: ignore[no-any-return]


def _finished(job_id: str) -> None:
    tag_text("h1", "New job")
    with tag("div", "s-empty"):
        tag_text("p", "A job was created from this draft.")
        with tag("div", "s-row"):
            button("Open the job", lambda: ui.navigate.to(f"/experiments/{job_id}"), "primary")
            button("Clone the job", lambda: ui.navigate.to(f"/jobs/new?clone={job_id}"))


async def _unfinished(drafts: Book) -> None:
    """Saved drafts."""
    found = await drafts.unfinished(SHOWN_DRAFTS)
    if not found:
        return
    with tag("details", "s-card", 'data-drafts="true"'):
        tag_text("summary", f"Continue a draft ({len(found)})")
        with tag("div", "s-table-wrap s-after-summary"), tag("table", "s-table"), tag("tbody"):
            for stored in found:
                draft = stored.draft
                with tag("tr") as row:
                    with tag("td"):
                        ui.link(draft.name or draft.model or "No model selected", f"/jobs/new?draft={stored.id}")
                    with tag("td"):
                        text(", ".join(part.name for part in draft.rewards), "s-muted s-clip")
                    with tag("td"):
                        since(stored.updated_at)
                    with tag("td"):
                        button("Delete", partial(_delete, drafts, stored.id, row))


async def _delete(drafts: Book, draft_id: str, row: ui.element) -> None:
    try:
        await drafts.delete(draft_id)
    except StropError as error:
        failed(error.message)
    row.delete()
