"""The configuration of a run: one TOML file, read into frozen models.

The same tables serve the command line, the API and the web UI. Values are checked when the
file is read: an unknown key is rejected with the nearest known key, and an invalid combination
is rejected with the reason. This module does not import torch and reads no file but the
configuration itself.
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

# The published clip bounds of the importance ratio for each loss: the ratio is clipped to
# [1 - low, 1 + high]. CISPO has an upper bound only, on the ratio itself.
CLIP_BOUNDS: dict[Loss, tuple[float, float]] = {
    "dapo": (0.2, 0.28),
    "grpo": (0.2, 0.2),
    "dr_grpo": (0.2, 0.2),
    "bnpo": (0.2, 0.2),
    "cispo": (1.0, 4.0),
    "gspo": (3e-4, 4e-4),
}

REWARD_NAME = r"^[A-Za-z][A-Za-z0-9_-]*$"
"""Pattern of a reward function's name."""
GRADER_TIMEOUT_S = 120.0


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class DataConfig(_Table):
    """`[data]`: the data files, JSONL with one row per line."""

    train: str = Field(title="Training rows", description="Training rows (JSONL). Relative to the configuration file.")
    validation: str | None = Field(
        None, title="Held-out rows", description="Held-out rows for validation (JSONL). Never trained on."
    )


class RewardConfig(_Table):
    """`[[rewards]]`: one reward function. The total reward is the weighted sum of all of them."""

    name: str = Field(pattern=REWARD_NAME, title="Name", description="Name in metrics and files.")
    source: str = Field(
        title="Source", description="`file.py:function` or `grader.json`. Relative to the configuration file."
    )
    weight: float = Field(
        1.0, title="Weight", description="Factor in the total reward. With 0 the score is logged but not trained on."
    )
    timeout_s: float = Field(
        10.0, gt=0, title="Timeout", description="Time limit per call, in seconds; 120 by default for a grader file."
    )
    env: tuple[str, ...] = Field(
        (), title="Secrets", description="Names of the environment variables that are passed to the function."
    )
    workers: int = Field(2, ge=1, le=64, title="Workers", description="Number of scoring processes, 1 to 64.")
    memory_mb: int = Field(
        2048, ge=64, title="Memory limit", description="Memory limit per process, in MiB, at least 64."
    )

    @model_validator(mode="before")
    @classmethod
    def _give_graders_more_time(cls, table: Any) -> Any:
        """Use a longer default timeout for grader files: OpenAI's Python graders have two minutes."""
        is_grader = isinstance(table, dict) and str(table.get("source")).endswith(".json")
        return {"timeout_s": GRADER_TIMEOUT_S, **table} if is_grader else table


class SamplingConfig(_Table):
    """`[sampling]`: how completions are sampled during training."""

    temperature: float = Field(
        1.0,
        gt=0,
        le=2,
        title="Temperature",
        description="Sampling temperature, above 0, at most 2. Higher values explore more.",
    )
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        title="Top-p",
        description="Nucleus sampling threshold. Training requires 1; see docs/training.md.",
    )
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), title="Stop strings", description="Strings that end a completion."
    )
    max_prompt_tokens: int = Field(
        512,
        ge=1,
        title="Max prompt length",
        description="In tokens, at least 1. Longer prompts are dropped and counted.",
    )
    max_completion_tokens: int = Field(
        1024,
        ge=1,
        title="Max response length",
        description="In tokens, at least 1. Longer completions are truncated and scored as they are. "
        "Thinking models need 8192 or more.",
    )
    template: dict[str, Any] = Field(
        {},
        title="Chat template options",
        description='Variables for the chat template, for example {"enable_thinking": false}.',
    )
    max_concurrent: int = Field(
        64,
        ge=1,
        title="Max concurrent samples",
        description="Completions sampled at the same time, at least 1. Lower values use less memory.",
    )


class TrainConfig(_Table):
    """`[train]`: the optimization."""

    method: Literal["lora", "full"] = Field(
        "lora", title="Method", description="lora trains adapters on a frozen base model; full trains all weights."
    )
    batch_size: int = Field(
        4,
        ge=1,
        title="Batch size",
        description="Prompts per step, at least 1. Larger batches give a less noisy gradient and slower steps.",
    )
    samples_per_prompt: int = Field(
        8,
        ge=2,
        title="Samples per prompt",
        description="Completions per prompt (the group size), at least 2. Larger groups give better advantage "
        "estimates and take longer.",
    )
    epochs: int = Field(1, ge=1, title="Epochs", description="Passes over the training rows, at least 1.")
    max_steps: int | None = Field(
        None, ge=1, title="Max steps", description="Stop after this many steps, even if epochs remain."
    )
    iterations: int = Field(
        1, ge=1, le=16, title="Iterations per batch", description="Optimizer steps on each batch of rollouts, 1 to 16."
    )
    learning_rate: Annotated[float, Field(gt=0)] | Literal["auto"] = Field(
        "auto",
        title="Learning rate",
        description="Peak learning rate, above 0. auto chooses it from the method and the model's width "
        "(2e-4 for LoRA on a small model).",
    )
    learning_rate_multiplier: float = Field(
        1.0,
        gt=0,
        title="Learning rate multiplier",
        description="Factor on the peak learning rate, above 0. Also applies to auto.",
    )
    warmup_ratio: float = Field(
        0.0,
        ge=0,
        lt=1,
        title="Warm-up ratio",
        description="Share of the steps over which the learning rate rises, from 0 to below 1.",
    )
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", title="Learning rate schedule", description="How the learning rate changes after warm-up."
    )
    weight_decay: float = Field(0.0, ge=0, title="Weight decay", description="AdamW weight decay, at least 0.")
    max_grad_norm: float = Field(
        1.0, gt=0, title="Max gradient norm", description="Gradients are clipped to this norm. Above 0."
    )
    loss: Loss = Field("dapo", title="Loss", description="Policy loss; see docs/training.md.")
    advantage_scale: AdvantageScale | Literal["auto"] = Field(
        "auto",
        title="Advantage scale",
        description="Divide advantages by the reward std of the group, of the batch, or not at all. "
        "auto is none for dr_grpo and group for all other losses.",
    )
    clip_low: float | None = Field(
        None,
        ge=0,
        title="Clip low",
        description="Lower clip bound of the importance ratio, as 1 - x. If empty, the loss's default.",
    )
    clip_high: float | None = Field(
        None,
        ge=0,
        title="Clip high",
        description="Upper clip bound of the importance ratio, as 1 + x. If empty, the loss's default.",
    )
    kl_coefficient: float = Field(
        0.001,
        ge=0,
        title="KL coefficient",
        description="Weight of the KL penalty against the reference model, at least 0. "
        "0 disables KL and skips the reference model.",
    )
    sampler_correction: SamplerCorrection = Field(
        "none",
        title="Sampler correction",
        description="Importance sampling for a sampler whose probabilities differ from the trainer's: weights are "
        "truncated or masked at the bound.",
    )
    sampler_correction_bound: float = Field(
        2.0, ge=1, title="Sampler correction bound", description="Largest weight of a token, at least 1."
    )
    micro_batch_tokens: int = Field(
        4096,
        ge=1,
        title="Micro-batch tokens",
        description="Tokens per forward pass, at least 1. Lower values use less memory; the gradient stays the same.",
    )
    gradient_checkpointing: bool = Field(
        False,
        title="Gradient checkpointing",
        description="Recompute activations in the backward pass: less memory, about a third slower.",
    )
    save_every: int | None = Field(
        None,
        ge=1,
        title="Save checkpoint every",
        description="Steps between checkpoints. If empty: with each validation, or once per epoch.",
    )
    keep: int = Field(
        3,
        ge=1,
        title="Checkpoints to keep",
        description="Number of newest checkpoints to keep, at least 1. The best checkpoint is always kept.",
    )
    eval_every: int = Field(
        0,
        ge=0,
        title="Validate every",
        description="Steps between validations on the held-out rows. 0 disables validation.",
    )
    max_failed_groups: float = Field(
        0.25,
        ge=0,
        le=1,
        title="Max failed groups",
        description="Share of failed groups, 0 to 1, above which the run pauses.",
    )
    max_skipped_steps: int = Field(
        3,
        ge=1,
        title="Max skipped steps",
        description="Consecutive steps with a non-finite loss or gradient after which the run stops, at least 1.",
    )


class LoraConfig(_Table):
    """`[lora]`: the adapters, for `train.method = "lora"`."""

    r: int = Field(16, ge=1, title="LoRA rank", description="Rank of the adapters, at least 1.")
    alpha: float = Field(
        32.0, gt=0, title="LoRA alpha", description="The adapter output is scaled by alpha / rank. Above 0."
    )
    targets: tuple[str, ...] | Literal["all-linear"] = Field(
        "all-linear", title="LoRA targets", description="Names of the layers that get adapters, or all-linear."
    )


class EnvironmentConfig(_Table):
    """`[environment]`: how episodes continue after a turn. Single-turn by default."""

    name: str = Field(
        "single_turn",
        title="Environment",
        description="single_turn ends after one turn; user_turns sends the messages in metadata.user_turns.",
    )
    max_turns: int = Field(
        8, ge=1, title="Max turns", description="Maximum number of assistant turns per rollout, at least 1."
    )
    options: dict[str, Any] = Field({}, title="Environment options", description="Options of the environment.")


class EvalConfig(_Table):
    """`[eval]`: sampling and scoring for validation and evaluation."""

    samples: int = Field(
        1, ge=1, title="Validation samples", description="Completions per held-out prompt, at least 1."
    )
    temperature: float = Field(
        0.0,
        ge=0,
        le=2,
        title="Validation temperature",
        description="Sampling temperature, 0 to 2. 0 is greedy decoding, for a single sample per prompt.",
    )
    pass_threshold: float = Field(
        1.0, title="Pass threshold", description="A completion passes if its total reward is at least this value."
    )


class WandbConfig(_Table):
    """`[wandb]`: settings of the recorder `wandb`. Missing values are left to W&B's defaults."""

    project: str | None = Field(None, min_length=1, title="Project", description="Project name.")
    entity: str | None = Field(None, min_length=1, title="Entity", description="User or team.")
    name: str | None = Field(None, min_length=1, title="Name", description="Display name; by default the run's name.")
    tags: tuple[str, ...] = Field((), title="Tags", description="Tags of the run.")


class RunConfig(_Table):
    """Everything that defines a run."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        title="Name",
        description="Name of the run and of its folder: letters, digits, `.`, `_` and `-`.",
    )
    model: str = Field(title="Base model", description="Catalogue name, Hugging Face id, or folder.")
    seed: int = Field(
        17, ge=0, lt=2**31, title="Seed", description="Seed of the row order and of sampling, 0 to 2^31 - 1."
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", title="Device", description="auto uses a GPU if one is available."
    )
    recorders: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = Field(
        (),
        title="Recorders",
        description="Experiment trackers that receive the metrics, in addition to the run folder.",
    )
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
        """Lower and upper clip bound of the importance ratio, defaults filled in."""
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
    """An invalid combination of values."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def _impossible(config: RunConfig) -> Iterable[tuple[str, str]]:
    """Key and reason of each invalid combination of values that are valid on their own."""
    train = config.train
    names = [reward.name for reward in config.rewards]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield "rewards", f"two reward functions are named {name!r}; give each a different name"
    if all(reward.weight == 0 for reward in config.rewards):
        yield (
            "rewards",
            "every weight is 0, so there is nothing to train on; give at least one reward a non-zero weight",
        )
    if config.sampling.top_p < 1:
        yield (
            "sampling.top_p",
            (
                f"{config.sampling.top_p} excludes tokens that the loss still counts, which biases the gradient; "
                "use 1.0 and lower sampling.temperature instead"
            ),
        )
    if train.eval_every and config.data.validation is None:
        yield (
            "train.eval_every",
            "requires data.validation; set it to a file of held-out rows, or set train.eval_every to 0",
        )
    if config.eval.temperature == 0 and config.eval.samples > 1:
        yield (
            "eval.samples",
            "greedy decoding gives identical completions; set eval.temperature above 0 or eval.samples to 1",
        )
    low, _ = config.clip_bounds
    if low > 1:
        yield "train.clip_low", f"{low} would allow a ratio below 0; use at most 1"
    if train.method == "lora" and "lm_head" in config.lora.targets:
        yield "lora.targets", "an adapter on lm_head would not be trained; name layers inside the transformer"


def read_config(path: Path, overrides: Iterable[str] = (), defaults: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a TOML file, apply overrides such as `train.learning_rate=1e-5`, and validate the result.

    `defaults` fill in tables that are missing from the file. Paths in the result are absolute.
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
    """Validate parsed tables; `origin` names them in error messages. Raises ConfigError."""
    try:
        return RunConfig.model_validate(tables)
    except ValidationError as error:
        faults = _explain(error)
        text = "\n".join(f"{origin}: {key}: {fault}" for key, fault in faults.items())
        raise ConfigError(text, param=next(iter(faults))) from None


def anchored(config: RunConfig, folder: Path) -> RunConfig:
    """Resolve the relative paths of a configuration against a folder."""
    return parse_config(_with_absolute_paths(config.model_dump(mode="json"), folder))


def dump_config(config: RunConfig) -> str:
    """The whole configuration as TOML, defaults included, in documentation order."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _apply(tables: dict[str, Any], override: str) -> None:
    """Set one dotted key. The value is parsed as TOML; anything else is a plain string."""
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
    """Key or list index that one part of a dotted key refers to. Raises ConfigError if it is invalid."""
    if isinstance(table, dict):
        return part
    if not isinstance(table, list):
        raise ConfigError(f"{where} is a value, not a table")
    if not part.isdecimal():
        raise ConfigError(f"{where} is a list; use an index, starting at 0, instead of {part!r}")
    if int(part) >= len(table):
        raise ConfigError(f"{where} has length {len(table)}; indices start at 0")
    return int(part)


def _with_absolute_paths(tables: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve the paths in a configuration file against its folder."""

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
    """Messages by key: what was found and what to do."""
    faults: dict[str, str] = {}
    for fault in error.errors():
        if fault["type"] == "too_short" and fault["input"]:
            continue  # pydantic does not count entries that are themselves invalid
        key, text = _explain_one(fault)
        # A value of a union type has one error per member type.
        either = faults[key].rpartition(", found ")[0] if key in faults else ""
        faults[key] = f"{either} or {text.removeprefix('Input should be ')}" if either else text
    return faults


def _explain_one(fault: Any) -> tuple[str, str]:
    location = _without_types(fault["loc"])
    key = ".".join(str(part) for part in location)
    if fault["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(str(location[-1]), _known_keys(location[:-1]), n=1, cutoff=0.5)
        hint = (
            f"did you mean {nearest[0]!r}?" if nearest else f"expected one of {', '.join(_known_keys(location[:-1]))}"
        )
        return key, f"unknown key; {hint}"
    if fault["type"] == "missing":
        return key, "missing"
    impossible = fault.get("ctx", {}).get("error")
    if isinstance(impossible, _Impossible):
        return impossible.key, str(impossible)
    words = re.sub("valid dictionary( or instance of .*)?", "table", fault["msg"]).replace("valid tuple", "list")
    return key, f"{words}, found {fault['input']!r}"


def _without_types(location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Location of an error, without the member types that pydantic adds for unions."""
    names = 3 if location[:1] == ("rewards",) else 2
    return (*location[:names], *(part for part in location[names:] if isinstance(part, int)))


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    """Valid keys of a table; `location` is its path, list indices included."""
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
