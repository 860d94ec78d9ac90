"""`/v1/strop/evaluations/{id}/rows/{row}/rollouts`: one answer of an evaluation whole, and its group."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Path as PathParameter

from strop.api.answers import MAX_INT, Answer
from strop.api.dependencies import Provided
from strop.api.strop.evaluations import EvaluationId
from strop.errors import NotFound, RunError
from strop.policy.installed import installed_folder
from strop.services.rollout_objects import RolloutFields, SegmentObject, segment_objects
from strop.store.evaldir import EvaluationDir
from strop.store.queries.evaluations import evaluation_row
from strop.store.rollout_lines import upgraded
from strop.types import Json

router = APIRouter(prefix="/evaluations/{evaluation_id}/rows/{row}/rollouts")

RowId = Annotated[str, PathParameter(description="Id of a row, as in the data set.")]
Sample = Annotated[int, PathParameter(ge=0, le=MAX_INT, description="Number among the answers to the row, from 0.")]


class EvaluationRollout(RolloutFields):
    """An answer of an evaluation with its prompt and its tokens."""

    object: Literal["rollout"] = "rollout"
    evaluation_id: str
    row: str
    line: int
    prompt: list[dict[str, Any]]
    segments: list[SegmentObject]
    """Usually one; none where the tokens are unknown."""


class EvaluationGroup(Answer):
    """All answers to one row."""

    object: Literal["rollout.group"] = "rollout.group"
    evaluation_id: str
    row: str
    data: list[RolloutFields]


@router.get("/{sample}")
def get_answer(evaluation_id: EvaluationId, row: RowId, sample: Sample, services: Provided) -> EvaluationRollout:
    """One answer with all turns, tokens, logs and timings."""
    found, answer = _answer(evaluation_id, row, sample, services)
    folder = services.evaluations.folder(services.evaluations.get(evaluation_id))
    return EvaluationRollout(
        evaluation_id=evaluation_id,
        row=row,
        line=found["line"],
        prompt=found["prompt"],
        segments=_segments(folder, row, sample),
        **RolloutFields.model_validate(answer).model_dump(),
    )


@router.get("/{sample}/group")
def get_answers(evaluation_id: EvaluationId, row: RowId, sample: Sample, services: Provided) -> EvaluationGroup:
    """The answers to the same row, this one among them."""
    found, _ = _answer(evaluation_id, row, sample, services)
    data = [RolloutFields.model_validate(answer) for answer in found["rollouts"]]
    return EvaluationGroup(evaluation_id=evaluation_id, row=row, data=data)


def _answer(evaluation_id: str, row: str, sample: int, services: Provided) -> tuple[dict[str, Json], dict[str, Json]]:
    """The row, and of its answers the one that is meant. NotFound where there is none."""
    with services.database.read() as connection:
        found = evaluation_row(connection, evaluation_id, row)
    for answer in found["rollouts"]:
        if answer["sample"] == sample:
            return found, answer
    raise NotFound(f"row {row!r} has {len(found['rollouts'])} answers and none with number {sample}", param="sample")


def _segments(folder: EvaluationDir, row: str, sample: int) -> list[SegmentObject]:
    """The tokens of an answer, which only the folder has. RunError where it is damaged."""
    try:
        line = next((line for line in folder.row_lines(row) if line["sample"] == sample), None)
        return [] if line is None else segment_objects(upgraded(line), _tokenizer(folder))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"row {row!r} is damaged in {folder.path}: {error}") from None


def _tokenizer(folder: EvaluationDir) -> Path | None:
    """A folder with the tokenizer of the model that was evaluated; None where it is not on this machine."""
    model: Mapping[str, Json] = folder.spec().get("model", {})
    if model.get("kind") == "remote" or "source" not in model:
        return None
    place = folder.path / str(model["source"])
    return place if (place / "tokenizer.json").is_file() else installed_folder(str(model["source"]))
