"""What the fields of the wizard hold, the request that they make, and the way back from a job."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from strop.config import EvalConfig, LoraConfig, RunConfig, SamplingConfig, TrainConfig, WandbConfig
from strop.jobs.job import Job
from strop.services.reward_tables import grader_name
from strop.services.reward_tests import TriedRow
from strop.types import Json

TABLES: Mapping[str, BaseModel] = {
    "sampling": SamplingConfig(),
    "train": TrainConfig(),
    "lora": LoraConfig(),
    "eval": EvalConfig(),
    "wandb": WandbConfig(),
}
"""Tables of a configuration, each at its defaults."""
_LIMITS = ("timeout_s", "workers", "memory_mb")
_CARRIED = ("suffix", "metadata", "integrations")


class _Held(BaseModel):
    """Ignore keys of other versions of strop."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RewardPart(_Held):
    """One of the rewards."""

    name: str
    weight: float | None = 1.0
    """None while the field is empty."""
    kind: Literal["python", "grader", "stored"] = "python"
    source: str = ""
    """Python code, or the JSON of a grader as it was typed."""
    function: str = "grade"
    reward: str = ""
    """Id or name of a reward of this server, for kind `stored`."""
    version: int | None = None
    """Of that reward; None for the newest."""
    env: tuple[str, ...] = ()
    limits: dict[str, Json] = {}
    """Of a cloned job: `timeout_s`, `workers`, `memory_mb`."""

    @property
    def option(self) -> dict[str, Json]:
        """As `strop.rewards` of a request has it. ValueError for a grader that is no JSON."""
        option: dict[str, Json] = {"name": self.name}
        if self.kind == "stored":
            option |= {"reward": self.reward, **({"version": self.version} if self.version is not None else {})}
        elif self.kind == "grader":
            option["grader"] = json.loads(self.source)
        else:
            option["python"] = self.source
            if self.function != "grade":
                option["function"] = self.function
        if self.weight != 1:
            option["weight"] = self.weight
        return option | ({"env": list(self.env)} if self.env else {}) | self.limits


class Trial(_Held):
    """What the base model and the rewards did in a test."""

    of: str
    """What was tested: see `JobDraft.tested`."""
    rows: tuple[TriedRow, ...]
    tokens: int
    """Of all answers together."""
    answers: int
    seconds: float
    """That sampling them took."""
    cut_off: int
    """Answers that reached the limit on their length."""
    memory_bytes: int
    """Of the model in the model process."""
    prompt_tokens: int
    """Of all prompts together."""


class JobDraft(_Held):
    """A job that is not created yet."""

    name: str = ""
    """Empty for one that is made of the data set's."""
    model: str = ""
    train: str = ""
    """Id of a data set."""
    validation: str = ""
    """Id of a data set; empty for none."""
    values: dict[str, Json] = {}
    """Parameters that are not at their defaults, by key: `train.batch_size`."""
    rewards: tuple[RewardPart, ...] = ()
    seed: int = 17
    carried: dict[str, Json] = {}
    """Fields of a cloned request that the wizard does not show."""
    trial: Trial | None = None

    @classmethod
    def fresh(cls) -> JobDraft:
        """An empty draft, with a seed of its own."""
        return cls(seed=secrets.randbelow(2**31))

    @property
    def method(self) -> str:
        """`lora` or `full`."""
        return str(self.values.get("train.method", "lora"))

    def with_value(self, key: str, value: Json, default: Json) -> JobDraft:
        """The draft with a parameter changed; at its default it is not kept."""
        values = {name: known for name, known in self.values.items() if name != key}
        if value is not None and value != "" and value != default:
            values[key] = value
        return self.model_copy(update={"values": values})

    def with_reward(self, index: int, part: RewardPart | None) -> JobDraft:
        """The draft with one of its rewards changed, or taken out."""
        changed = list(self.rewards)
        changed[index : index + 1] = [] if part is None else [part]
        return self.model_copy(update={"rewards": tuple(changed)})

    @property
    def tested(self) -> str:
        """What a test depends on: with another one of these, its results are those of another job."""
        keys = ("sampling.temperature", "sampling.max_completion_tokens", "sampling.template", "sampling.stop")
        parts = [part.model_dump(mode="json") for part in self.rewards]
        return json.dumps([self.model, self.train, {key: self.values.get(key) for key in keys}, parts], sort_keys=True)


def request_of(draft: JobDraft, file_of: Callable[[str], str], name: str) -> dict[str, Json]:
    """The body of `POST /v1/fine_tuning/jobs` that a draft stands for.

    `file_of` gives the file of a data set; `name` is for a draft without one. ValueError for a
    grader that is no JSON.
    """
    tables: dict[str, Any] = {}
    for key, value in draft.values.items():
        table, dot, field = key.partition(".")
        if not dot:
            tables[key] = value
        elif draft.validation or not key.startswith(("eval.", "train.eval_every")):
            tables.setdefault(table, {})[field] = value
    return {
        "model": draft.model,
        "training_file": file_of(draft.train),
        **({"validation_file": file_of(draft.validation)} if draft.validation else {}),
        "seed": draft.seed,
        **draft.carried,
        "strop": {"name": draft.name or name, "rewards": [part.option for part in draft.rewards], **tables},
    }


def draft_of_job(job: Job, dataset_of: Callable[[str], str], checkpoint: str | None = None) -> JobDraft:
    """A draft of the same job once more, or of one that starts from a checkpoint of it.

    `dataset_of` gives the data set of a file, or nothing where it is gone.
    """
    sent = job.request
    options = sent.get("strop") or {}
    rewards = [_part(option) for option in options.get("rewards") or ()]
    grader = ((sent.get("method") or {}).get("reinforcement") or {}).get("grader")
    if not rewards and grader:
        rewards = [RewardPart(name=grader_name(grader), kind="grader", source=_pretty(grader))]
    return JobDraft(
        name=job.config.name,
        model=checkpoint or job.model,
        train=dataset_of(job.training_file or ""),
        validation=dataset_of(job.validation_file) if job.validation_file else "",
        values=values_of(job.config),
        rewards=tuple(rewards),
        seed=job.config.seed,
        carried={key: sent[key] for key in _CARRIED if sent.get(key) is not None},
    )


def values_of(config: RunConfig) -> dict[str, Json]:
    """The parameters of a configuration that are not at their defaults."""
    values: dict[str, Json] = {}
    for table, usual in TABLES.items():
        given, defaults = getattr(config, table).model_dump(mode="json"), usual.model_dump(mode="json")
        values |= {f"{table}.{key}": value for key, value in given.items() if value != defaults[key]}
    if config.data.validation is not None:
        values["train.eval_every"] = config.train.eval_every  # without one, the server would choose
    if config.device != "auto":
        values["device"] = config.device
    if config.recorders:
        values["recorders"] = list(config.recorders)
    return values


def _part(option: Mapping[str, Json]) -> RewardPart:
    kind: Literal["python", "grader", "stored"] = "python"
    source = option.get("python") or ""
    if option.get("grader") is not None:
        kind, source = "grader", _pretty(option["grader"])
    elif option.get("reward") is not None:
        kind = "stored"
    weight = option.get("weight")
    return RewardPart(
        name=option["name"],
        weight=1.0 if weight is None else weight,
        kind=kind,
        source=source,
        function=option.get("function") or "grade",
        reward=option.get("reward") or "",
        version=option.get("version"),
        env=tuple(option.get("env") or ()),
        limits={key: option[key] for key in _LIMITS if option.get(key) is not None},
    )


def _pretty(grader: Json) -> str:
    return json.dumps(grader, ensure_ascii=False, indent=2) + "\n"
