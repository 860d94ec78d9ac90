from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from served import services
from strop.errors import NotFound
from strop.services import datasets
from strop.services.container import Services
from strop.services.datasets import NewDataset, SplitRequest, named_freely
from strop.store.names import MAX_NAME


def forbidden_first(check: Callable[..., None], then: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs a check before its work."""

    def call(*args: Any) -> Any:
        check()
        return then(*args)

    return call


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Services]:
    with services(tmp_path / "data") as found:
        yield found


def test_a_sample_is_made_once(server: Services) -> None:
    first = datasets.of_sample.blocking(server, "maths", "train")
    assert datasets.of_sample.blocking(server, "maths", "train") == first
    assert datasets.of_sample.blocking(server, "maths", "validation").name == "Maths (held out)"
    assert len(datasets.list_all.blocking(server)) == 2


def test_every_sample_can_be_made(server: Services) -> None:
    for sample in datasets.samples.blocking():
        assert datasets.of_sample.blocking(server, sample.id, "train").rows == sample.rows["train"]


def test_a_name_that_is_taken_gets_a_number(server: Services) -> None:
    file = datasets.of_sample.blocking(server, "maths", "train").file_id

    def make(name: str) -> str:
        return datasets.create.blocking(server, NewDataset(name=name, file_id=file)).name

    assert [named_freely(" mine ", make) for _ in range(3)] == ["mine", "mine (2)", "mine (3)"]
    long = named_freely("x" * 200, make), named_freely("x" * 200, make)
    assert len(set(long)) == 2
    assert max(map(len, long)) <= MAX_NAME
    assert named_freely("  ", make) == "untitled"


def test_services_leave_the_event_loop_free(server: Services) -> None:
    async def both() -> list[str]:
        made = await asyncio.gather(*(datasets.of_sample(server, name, "train") for name in ("maths", "coding")))
        return [dataset.name for dataset in made]

    def forbidden(*_: object) -> None:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()

    server.files.add = forbidden_first(forbidden, server.files.add)  # type: ignore[method-assign]
    assert asyncio.run(both()) == ["Maths", "Coding"]


def test_a_file_has_one_data_set(server: Services) -> None:
    lines = [b'{"messages": [{"role": "user", "content": "1 + 1?"}]}\n']
    file = server.files.add("sums.jsonl", "fine-tune", lines)
    made = datasets.of_file.blocking(server, file.id)
    assert made.name == "sums"
    assert datasets.of_file.blocking(server, file.id) == made
    with pytest.raises(NotFound):
        datasets.of_file.blocking(server, "file-gone")


def test_parts_of_a_sample_are_data_sets_of_their_own(server: Services) -> None:
    whole = datasets.of_sample.blocking(server, "maths", "train")
    parts = datasets.split.blocking(server, whole.id, SplitRequest())
    assert datasets.of_sample.blocking(server, "maths", "train") == whole
    assert parts.train.id != whole.id
