"""The examples of docs/rewards.md give what the page says."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from pathlib import Path

import pytest

from strop.config import RewardConfig
from strop.rewards.scorer import Scorer
from strop.types import Message, Rollout, Row, StopReason, Turn

PAGE = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def scored(folder: Path, tables: str, fields: dict[str, object], answer: str) -> Rollout:
    rewards = [
        RewardConfig.model_validate(table | {"source": f"{folder}/{table['source']}"})
        for table in tomllib.loads(tables)["rewards"]
    ]
    row = Row("r1", 1, (Message("user", "?"),), (), None, fields)
    played = Rollout(0, (Turn(Message("assistant", answer), StopReason.STOP, 1),), StopReason.STOP)

    async def main() -> Rollout:
        async with Scorer.from_config(rewards) as scorer:
            return await scorer.score(row, played, 0)

    return asyncio.run(main())


def test_the_first_example_scores(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text(blocks("python")[0], encoding="utf-8")
    result = scored(tmp_path, blocks("toml")[0], {"metadata": {"answer": "42"}}, "It is 42.")
    assert result.reward and result.reward.total == 1.0


def test_the_worked_example_scores_as_the_page_says(tmp_path: Path) -> None:
    for name, code in zip(["reward.py", "length.py"], blocks("python")[1:], strict=True):
        (tmp_path / name).write_text(code, encoding="utf-8")
    row = json.loads(blocks("json")[0])
    result = scored(tmp_path, blocks("toml")[1], row, '{"name": "Ann", "age": 30}')
    assert result.reward
    assert result.reward.total == pytest.approx(0.6)
    assert result.reward.components == pytest.approx({"fields/json": 0.2, "fields/fields": 0.4, "length": 26})
    assert scored(tmp_path, blocks("toml")[1], row, "Ann").logs == "[fields]\nINFO:root:not JSON: Ann"


@pytest.mark.parametrize("key", RewardConfig.model_fields)
def test_every_setting_is_described_with_its_default(key: str) -> None:
    default = RewardConfig.model_fields[key].get_default()
    shown = "required" if RewardConfig.model_fields[key].is_required() else "none" if default == () else str(default)
    assert f"| `{key}` | {shown} |" in PAGE
