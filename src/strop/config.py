"""The configuration of a run: one TOML file, read into frozen models.

The same tables serve the command line, the API and the web UI. Values are checked when the
file is read: a key that does not exist is refused with the nearest one that does, and a
combination that cannot work is refused with the reason. This module knows no torch and
opens no file but the configuration itself.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from strop.errors import ConfigError

Loss = Literal["dapo", "grpo", "dr_grpo", "bnpo", "cispo", "gspo"]

AdvantageScale = Literal["group", "batch", "none"]
SamplerCorrection = Literal["none", "truncate", "mask"]

# The bounds of the importance ratio that each loss was published with: the ratio stays
# within [1 - low, 1 + high]. CISPO has an upper bound only, on the ratio itself.
CLIP_BOUNDS: dict[Loss, tuple[float, float]] = {
    "dapo": (0.2, 0.28),
    "grpo": (0.2, 0.2),
    "dr_grpo": (0.2, 0.2),
    "bnpo": (0.2, 0.2),
    "cispo": (1.0, 4.0),
    "gspo": (3e-4, 4e-4),
}

REWARD_NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
"""What the name of a reward function looks like."""
GRADER_TIMEOUT_S = 120.0


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class DataConfig(_Table):
    """`[data]`: files of prompts, one JSON object a line."""

    train: str = Field(description="Training rows, JSONL; relative to the configuration file.")
    validation: str | None = Field(None, description="Held-out rows; never trained on.")


class RewardConfig(_Table):
    """`[[rewards]]`: one reward function; several are summed by weight."""

    name: str = Field(pattern=REWARD_NAME, description="Name in metrics and files.")
    source: str = Field(description="`file.py:function` or `grader.json`, relative to the configuration file.")
    weight: float = Field(1.0, description="Factor in the total reward; 0 logs the score only.")
    timeout_s: float = Field(10.0, gt=0, description="Seconds that one call may take; 120 for a grader file.")
    env: tuple[str, ...] = Field((), description="Environment variables that the function gets to see.")
    workers: int = Field(2, ge=1, le=64, description="Processes that score at the same time.")
    memory_mb: int = Field(2048, ge=64, description="Address space of each process, in MiB.")

    @model_validator(mode="before")
    @classmethod
    def _give_graders_more_time(cls, table: Any) -> Any:
        """OpenAI's Python graders have two minutes, and a judge may think for one."""
        is_grader = isinstance(table, dict) and str(table.get("source")).endswith(".json")
        return {"timeout_s": GRADER_TIMEOUT_S, **table} if is_grader else table


class SamplingConfig(_Table):
    """`[sampling]`: how completions are drawn while training."""

    temperature: float = Field(1.0, gt=0, le=2, description="Above 0; higher explores more.")
    top_p: float = Field(1.0, gt=0, le=1, description="Training needs 1: see docs/training.md.")
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), description="Strings that end a completion.")
    max_prompt_tokens: int = Field(512, ge=1, description="Longer prompts are dropped and counted.")
    max_completion_tokens: int = Field(1024, ge=1, description="Longer completions are cut off.")
    template: dict[str, Any] = Field({}, description="Options for the chat template, say enable_thinking = false.")
    max_concurrent: int = Field(64, ge=1, description="Sequences decoded at the same time.")


class TrainConfig(_Table):
    """`[train]`: the optimisation."""

    method: Literal["lora", "full"] = Field("lora", description="Adapters on a frozen base, or all weights.")
    batch_size: int = Field(4, ge=1, description="Prompts a step.")
    samples_per_prompt: int = Field(8, ge=2, description="Completions of each prompt; they form a group.")
    epochs: int = Field(1, ge=1, description="Passes over the training rows.")
    max_steps: int | None = Field(None, ge=1, description="Stop after so many steps, whatever `epochs` says.")
    iterations: int = Field(1, ge=1, le=16, description="Optimizer steps on each batch of rollouts.")
    learning_rate: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto", description="Peak rate; auto goes by method and width."
    )
    learning_rate_multiplier: float = Field(1.0, gt=0, description="Factor on the peak rate, on auto's too.")
    warmup_ratio: float = Field(0.0, ge=0, lt=1, description="Share of the steps over which the rate rises.")
    schedule: Literal["constant", "linear", "cosine"] = Field("constant", description="After the warm-up.")
    weight_decay: float = Field(0.0, ge=0, description="AdamW's decoupled weight decay.")
    max_grad_norm: float = Field(1.0, gt=0, description="Gradients are scaled down to this norm.")
    loss: Loss = Field("dapo", description="Policy loss: see docs/training.md.")
    advantage_scale: AdvantageScale | Literal["auto"] = Field(
        "auto", description="What deviations are divided by; auto is group, and none for dr_grpo."
    )
    clip_low: float | None = Field(None, ge=0, description="Lower clip of the ratio, 1 - x; by default the loss's own.")
    clip_high: float | None = Field(None, ge=0, description="Upper clip of the ratio, 1 + x; likewise.")
    kl_coefficient: float = Field(0.001, ge=0, description="Weight of the KL penalty; 0 skips the reference.")
    sampler_correction: SamplerCorrection = Field(
        "none", description="Weigh tokens by policy over sampler, truncated or masked at the bound."
    )
    sampler_correction_bound: float = Field(2.0, ge=1, description="Largest weight that sampler_correction gives.")
    micro_batch_tokens: int = Field(4096, ge=1, description="Tokens in one forward; changes memory, not gradients.")
    gradient_checkpointing: bool = Field(False, description="Recompute activations: less memory, a third slower.")
    save_every: int | None = Field(None, ge=1, description="Steps between checkpoints; by default once an epoch.")
    keep: int = Field(3, ge=1, description="Newest checkpoints kept, beside the best.")
    eval_every: int = Field(0, ge=0, description="Steps between validations; 0 turns them off.")
    max_failed_groups: float = Field(0.25, ge=0, le=1, description="Share of failed groups that stops the run.")
    max_skipped_steps: int = Field(3, ge=1, description="Non-finite steps in a row that stop the run.")


class LoraConfig(_Table):
    """`[lora]`: adapters, for `train.method = "lora"`."""

    r: int = Field(16, ge=1, description="Rank.")
    alpha: float = Field(32.0, gt=0, description="The adapter's output is scaled by alpha / r.")
    targets: tuple[str, ...] | Literal["all-linear"] = Field("all-linear", description="Names of adapted layers.")


class EnvironmentConfig(_Table):
    """`[environment]`: what a rollout plays in; single turn by default."""

    name: str = Field("single_turn", description="single_turn, or user_turns: metadata.user_turns follow the prompt.")
    max_turns: int = Field(8, ge=1, description="Assistant turns of a rollout.")
    options: dict[str, Any] = Field({}, description="Options of the environment itself.")


class EvalConfig(_Table):
    """`[eval]`: validation, with settings of its own."""

    samples: int = Field(1, ge=1, description="Completions of each held-out prompt.")
    temperature: float = Field(0.0, ge=0, le=2, description="0 takes the likeliest token.")
    pass_threshold: float = Field(1.0, description="A completion passes with at least this total reward.")


class WandbConfig(_Table):
    """`[wandb]`: where the recorder `wandb` puts the run; what is missing is W&B's own default."""

    project: str | None = Field(None, min_length=1, description="Project.")
    entity: str | None = Field(None, min_length=1, description="User or team.")
    name: str | None = Field(None, min_length=1, description="Shown name; by default that of the run.")
    tags: tuple[str, ...] = Field((), description="Tags.")


class RunConfig(_Table):
    """Everything that defines a run."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Names the run and its folder.")
    model: str = Field(description="Catalogue name, Hugging Face id, or folder.")
    seed: int = Field(17, ge=0, lt=2**31, description="Fixes data order and sampling.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto takes a GPU where there is one.")
    recorders: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = Field((), description="Beside the run folder.")
    data: DataConfig
    rewards: tuple[RewardConfig, ...] = Field(min_length=1)
    sampling: SamplingConfig = SamplingConfig()
    train: TrainConfig = TrainConfig()
    lora: LoraConfig = LoraConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    eval: EvalConfig = EvalConfig()
    wandb: WandbConfig = WandbConfig()

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """Lower and upper clip of the importance ratio, defaults filled in."""
        low, high = CLIP_BOUNDS[self.train.loss]
        return (
            low if self.train.clip_low is None else self.train.clip_low,
            high if self.train.clip_high is None else self.train.clip_high,
        )

    @property
    def advantage_scale(self) -> AdvantageScale:
        """What deviations from the group's mean are divided by. Dr. GRPO is the loss that drops the
        deviation: dividing by it all the same would bring its bias back."""
        if self.train.advantage_scale != "auto":
            return self.train.advantage_scale
        return "none" if self.train.loss == "dr_grpo" else "group"

    @model_validator(mode="after")
    def _refuse_impossible(self) -> RunConfig:
        for key, reason in _impossible(self):
            raise _Impossible(key, reason)
        return self


class _Impossible(ValueError):
    """A combination of values that cannot work."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def _impossible(config: RunConfig) -> Iterable[tuple[str, str]]:
    """Combinations that each value alone would allow, with the reason to refuse them."""
    train = config.train
    names = [reward.name for reward in config.rewards]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield "rewards", f"two reward functions are called {name!r}; give each a name of its own"
    if all(reward.weight == 0 for reward in config.rewards):
        yield "rewards", "every weight is 0, so there is nothing to train on; give one reward a weight"
    if config.sampling.top_p < 1:
        yield (
            "sampling.top_p",
            (
                f"{config.sampling.top_p} cuts off tokens that the loss still counts, which biases the gradient; "
                "train with 1.0 and lower sampling.temperature instead"
            ),
        )
    if train.eval_every and config.data.validation is None:
        yield "train.eval_every", "needs data.validation; name a file of held-out rows, or set it to 0"
    if config.eval.temperature == 0 and config.eval.samples > 1:
        yield "eval.samples", "greedy completions are all the same; set eval.temperature above 0, or samples to 1"
    low, _ = config.clip_bounds
    if low > 1:
        yield "train.clip_low", f"{low} would let the ratio go below 0; use at most 1"
    if train.method == "lora" and "lm_head" in config.lora.targets:
        yield "lora.targets", "an adapter on lm_head would not be trained; name layers inside the model"


def read_config(path: Path, overrides: Iterable[str] = (), defaults: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a TOML file, apply overrides like `train.learning_rate=1e-5`, and check everything.

    `defaults` stand in for tables that the file lacks. Paths in the result are absolute.
    Raises ConfigError naming the file, the key, what was found, and what to do.
    """
    try:
        tables = {**(defaults or {}), **tomllib.loads(path.read_text(encoding="utf-8"))}
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    for override in overrides:
        _apply(tables, override)
    return parse_config(_with_absolute_paths(tables, path.parent), str(path))


def parse_config(tables: Mapping[str, Any], origin: str = "configuration") -> RunConfig:
    """Check tables that are already read; `origin` names them in errors."""
    try:
        return RunConfig.model_validate(tables)
    except ValidationError as error:
        faults = _explain(error)
        text = "\n".join(f"{origin}: {key}: {fault}" for key, fault in faults.items())
        raise ConfigError(text, param=next(iter(faults))) from None


def anchored(config: RunConfig, folder: Path) -> RunConfig:
    """The configuration with its relative paths resolved against a folder."""
    return parse_config(_with_absolute_paths(config.model_dump(mode="json"), folder))


def dump_config(config: RunConfig) -> str:
    """The whole configuration as TOML, defaults included, in the order of the docs."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _apply(tables: dict[str, Any], override: str) -> None:
    """Set one dotted key; the value is TOML, or a plain string where it is not."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override}: expected key=value, for example train.learning_rate=1e-5")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    table: Any = tables
    *parents, last = key.strip().split(".")
    for depth, parent in enumerate(parents):
        place = _place(table, parent, f"--set {override}: {'.'.join(parents[:depth])}")
        table = table[place] if isinstance(table, list) else table.setdefault(place, {})
    table[_place(table, last, f"--set {override}: {'.'.join(parents)}")] = value


def _place(table: Any, part: str, where: str) -> Any:
    """The key or index that one part of a dotted key means; ConfigError where it can mean none."""
    if isinstance(table, dict):
        return part
    if not isinstance(table, list):
        raise ConfigError(f"{where} is a value, not a table")
    if not part.isdecimal():
        raise ConfigError(f"{where} is a list; name an entry by its number, from 0, instead of {part!r}")
    if int(part) >= len(table):
        raise ConfigError(f"{where} has {len(table)} entries, counted from 0")
    return int(part)


def _with_absolute_paths(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve the paths of a file against the folder that it lies in."""

    def absolute(text: Any) -> Any:
        return str((folder / text).resolve()) if isinstance(text, str) else text

    data = tables.get("data")
    if isinstance(data, dict):
        data |= {key: absolute(value) for key, value in data.items() if key in DataConfig.model_fields}
    rewards = tables.get("rewards")
    for reward in rewards if isinstance(rewards, list) else ():
        if isinstance(reward, dict) and "source" in reward:
            reward["source"] = absolute(reward["source"])
    model = tables.get("model")
    if isinstance(model, str) and (model.startswith((".", "/", "~")) or (folder / model).is_dir()):
        tables["model"] = absolute(str(Path(model).expanduser()))
    return tables


def _explain(error: ValidationError) -> dict[str, str]:
    """What is wrong, in our words, by key: what was found and what to do."""
    faults: dict[str, str] = {}
    for fault in error.errors():
        if fault["type"] == "too_short" and fault["input"]:
            continue  # pydantic does not count entries that have faults of their own
        key, text = _explain_one(fault)
        # A value that may be of several types has a fault for each of them.
        either = faults[key].rpartition(", found ")[0] if key in faults else ""
        faults[key] = f"{either} or {text.removeprefix('Input should be ')}" if either else text
    return faults


def _explain_one(fault: Any) -> tuple[str, str]:
    location = _without_types(fault["loc"])
    key = ".".join(str(part) for part in location)
    if fault["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(str(location[-1]), _known_keys(location[:-1]), n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known are {', '.join(_known_keys(location[:-1]))}"
        return key, f"unknown key; {hint}"
    if fault["type"] == "missing":
        return key, "missing"
    impossible = fault.get("ctx", {}).get("error")
    if isinstance(impossible, _Impossible):
        return impossible.key, str(impossible)
    words = re.sub("valid dictionary( or instance of .*)?", "table", fault["msg"]).replace("valid tuple", "list")
    return key, f"{words}, found {fault['input']!r}"


def _without_types(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Where a fault is, without the types that pydantic adds where a value may be of several."""
    names = 3 if location[:1] == ("rewards",) else 2
    return (*location[:names], *(part for part in location[names:] if isinstance(part, int)))


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Names that a table may hold; `location` is its path, list indices included."""
    table: type[BaseModel] = RunConfig
    for part in location:
        if isinstance(part, str):
            table = _TABLES[part]
    return list(table.model_fields)


_TABLES: dict[str, type[BaseModel]] = {
    "data": DataConfig,
    "rewards": RewardConfig,
    "sampling": SamplingConfig,
    "train": TrainConfig,
    "lora": LoraConfig,
    "environment": EnvironmentConfig,
    "eval": EvalConfig,
    "wandb": WandbConfig,
}
