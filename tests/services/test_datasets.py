from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from strop.web.catalogues import all_datasets, dataset_of_file, named_freely, sample_dataset, samples

from served import services
from strop.api.strop.datasets import NewDataset, SplitRequest, create_dataset, split_dataset
from strop.errors import NotFound
from strop.services.container import Services
from strop.store.names import MAX_NAME


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Services]:
    with services(tmp_path / "data") as found:
        yield found


def test_a_sample_is_made_once(server: Services) -> None:
    first = sample_dataset(server, "maths", "train")
    assert sample_dataset(server, "maths", "train") == first
    assert sample_dataset(server, "maths", "validation").name == "Maths (held out)"
    assert len(all_datasets(server)) == 2


def test_every_sample_can_be_made(server: Services) -> None:
    for sample in samples():
        assert sample_dataset(server, sample.id, "train").rows == sample.rows["train"]


def test_a_name_that_is_taken_gets_a_number(server: Services) -> None:
    file = sample_dataset(server, "maths", "train").file_id

    def make(name: str) -> str:
        return create_dataset(NewDataset(name=name, file_id=file), server).name

    assert [named_freely(" mine ", make) for _ in range(3)] == ["mine", "mine (2)", "mine (3)"]
    long = named_freely("x" * 200, make), named_freely("x" * 200, make)
    assert len(set(long)) == 2
    assert max(map(len, long)) <= MAX_NAME
    assert named_freely("  ", make) == "untitled"


def test_a_file_has_one_data_set(server: Services) -> None:
    lines = [b'{"messages": [{"role": "user", "content": "1 + 1?"}]}\n']
    file = server.files.add("sums.jsonl", "fine-tune", lines)
    made = dataset_of_file(server, file.id)
    assert made.name == "sums"
    assert dataset_of_file(server, file.id) == made
    with pytest.raises(NotFound):
        dataset_of_file(server, "file-gone")


def test_parts_of_a_sample_are_data_sets_of_their_own(server: Services) -> None:
    whole = sample_dataset(server, "maths", "train")
    parts = split_dataset(whole.id, SplitRequest(), server)
    assert sample_dataset(server, "maths", "train") == whole
    assert parts.train.id != whole.id
