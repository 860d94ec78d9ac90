"""What passes between the stages of a training step: frozen dataclasses and protocols.

Nothing here reads a file or knows torch. Names that end in capitals carry their shape:
`rewards_G` has one entry for each rollout of a group, `ids_T` one for each token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

Json = Any
"""A value that JSON can hold: None, bool, int, float, str, list or dict of them."""


class StopReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """The model ended its turn, or wrote one of the stop strings."""
    LENGTH = "length"
    """The limit on completion tokens was reached: the answer is cut off."""
    CONTEXT = "context"
    """The conversation no longer fits into the model's positions. Of rollouts only."""
    MAX_TURNS = "max_turns"
    """The limit on assistant turns was reached. Of rollouts only."""


@dataclass(frozen=True)
class ToolCall:
    """A function call that an assistant message asks for."""

    id: str
    name: str
    arguments: str
    """JSON text, as the model or the row gave it."""

    def as_dict(self) -> dict[str, Json]:
        """The call in OpenAI's form."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: str
    """system, user, assistant or tool."""
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """What an assistant turn asked for."""
    tool_call_id: str | None = None
    """Which call a tool turn answers."""
    name: str | None = None

    def as_dict(self) -> dict[str, Json]:
        """The message in OpenAI's form, as chat templates, reward functions and files have it."""
        form: dict[str, Json] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            form["tool_calls"] = [call.as_dict() for call in self.tool_calls]
        if self.tool_call_id is not None:
            form["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            form["name"] = self.name
        return form


@dataclass(frozen=True)
class Row:
    """One line of a data file: a prompt and what the reward functions need to score answers."""

    id: str
    """Stable name of the row, the same in every run over the same content."""
    line: int
    """Line in the file, counted from 1."""
    messages: tuple[Message, ...]
    """The prompt: every turn before the answer that the model is asked for."""
    tools: tuple[Mapping[str, Json], ...]
    """Function schemas offered to the model."""
    reference: Json
    """Reference answer: `metadata.ground_truth`, else the final assistant turn, else None."""
    fields: Mapping[str, Json]
    """The whole row as the file has it, for the reward functions."""


@dataclass(frozen=True)
class SamplingParams:
    """How completions are drawn."""

    temperature: float
    """0 takes the likeliest token each time."""
    max_tokens: int
    """Limit on the tokens of one completion."""
    top_p: float = 1.0
    """Draw only from the likeliest tokens that hold this much of the probability."""
    stop: tuple[str, ...] = ()
    """A completion ends once its text holds one of these."""
    seed: int = 0
    """The same seed, prompt and weights give the same completions."""
    top_logprobs: int = 0
    """How many of the likeliest tokens are noted beside each drawn one."""


@dataclass(frozen=True)
class Completion:
    """What a sampler returns for one sequence: token ids, never text."""

    token_ids_T: tuple[int, ...]
    """Every id that was drawn, an end-of-turn token included."""
    logprobs_T: tuple[float, ...]
    """Log-probability of each drawn id at the sampling temperature."""
    entropies_T: tuple[float, ...]
    """Entropy in nats of the distribution that each id was drawn from."""
    stop_reason: StopReason


@dataclass(frozen=True)
class TurnTokens:
    """The exact tokens of an assistant turn, from a back end that knows them."""

    input_ids_T: tuple[int, ...]
    """Ids between what the segment held before and the sampled ones; in the first turn of a
    segment its whole prompt."""
    token_ids_T: tuple[int, ...]
    """The sampled ids, an end-of-turn token included."""
    logprobs_T: tuple[float, ...]
    """Log-probability of each sampled id at the sampling temperature."""
    new_segment: bool = False
    """Whether the prompt did not extend the earlier ids, as with a template that rewrites history."""


@dataclass(frozen=True)
class Turn:
    """One assistant turn, and what the environment answered it with."""

    message: Message
    """What the model said, tool calls parsed."""
    stop_reason: StopReason
    length: int
    """Number of sampled tokens, as the back end counted them."""
    tokens: TurnTokens | None = None
    """None where the back end tells only text."""
    entropy: float | None = None
    """Mean entropy in nats of the distributions that were sampled from; None where the back end does not tell."""
    version: int | None = None
    """Version of the policy that sampled it; None where the back end does not tell."""
    seconds: float = 0.0
    """Time that sampling took."""
    observations: tuple[Message, ...] = ()
    """Tool results or a user's message that came next."""


@dataclass(frozen=True)
class Context:
    """A conversation that a completer is asked to go on with."""

    messages: tuple[Message, ...]
    """Prompt and all turns so far, observations included."""
    tools: tuple[Mapping[str, Json], ...] = ()
    """Function schemas offered to the model, in OpenAI's form."""
    ids_T: tuple[int, ...] = ()
    """Every id of the current segment, prompt included; empty before the first turn."""
    where: str = "messages"
    """Names the conversation in errors, such as `line 17`."""


def tokens_after(
    context: Context, prompt_ids_T: tuple[int, ...], token_ids_T: tuple[int, ...], logprobs_T: tuple[float, ...]
) -> TurnTokens:
    """The tokens of a turn that was sampled from a prompt: the prompt extends the context's ids, or
    begins another segment."""
    known = len(context.ids_T)
    if prompt_ids_T[:known] == context.ids_T:
        return TurnTokens(prompt_ids_T[known:], token_ids_T, logprobs_T)
    return TurnTokens(prompt_ids_T, token_ids_T, logprobs_T, new_segment=True)


@dataclass(frozen=True)
class Segment:
    """A token sequence as the trainer sees it: one prompt and what followed it."""

    prompt_ids_T: tuple[int, ...]
    token_ids_T: tuple[int, ...]
    """Ids after the prompt: sampled ones, and what the environment put between."""
    sampled_mask_T: tuple[bool, ...]
    """True exactly for the ids that the sampler returned: only those are trained on."""
    logprobs_T: tuple[float, ...]
    """Log-probability under the sampler; 0.0 where not sampled."""


@dataclass(frozen=True)
class Failure:
    """Why a rollout could not be scored. Never a score of zero."""

    cause: str
    """Short name to count by: exception, timeout, crash, none, nan, type …"""
    message: str
    """One line for people."""
    detail: str = ""
    """Traceback or captured output."""


@dataclass(frozen=True)
class Reward:
    """The score of one rollout."""

    total: float
    """Weighted sum over all reward functions: what is trained on."""
    components: Mapping[str, float]
    """Score of each component before its weight."""
    weights: Mapping[str, float]
    """Weight of each component; 0 means logged, not trained on."""


@dataclass(frozen=True)
class Rollout:
    """One attempt at a prompt: its turns, and what they were worth."""

    index: int
    """Number within the group, from 0."""
    turns: tuple[Turn, ...]
    stop_reason: StopReason
    """Why the rollout ended: that of its last turn, or a limit of the environment."""
    reward: Reward | None = None
    failure: Failure | None = None
    logs: str = ""
    """What the reward functions logged and printed."""
    timing: Mapping[str, float] = field(default_factory=dict)
    """Seconds: `sample`, `reward`."""

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """Everything after the prompt, observations included."""
        return tuple(message for turn in self.turns for message in (turn.message, *turn.observations))

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Token sequences to train on; empty where a turn's tokens are unknown."""
        return segments_of(self.turns)

    @property
    def length(self) -> int:
        """Number of sampled tokens."""
        return sum(turn.length for turn in self.turns)

    @property
    def entropy(self) -> float | None:
        """Mean entropy over the sampled ids, in nats; None where the back end does not tell."""
        known = [(turn.entropy, turn.length) for turn in self.turns if turn.entropy is not None]
        if not known or len(known) < len(self.turns):
            return None
        return sum(entropy * length for entropy, length in known) / max(self.length, 1)

    @property
    def answered(self) -> bool:
        """Whether there is an answer at all, good or bad; none where the back end failed."""
        return bool(self.turns)


def segments_of(turns: Sequence[Turn]) -> tuple[Segment, ...]:
    """The token sequences of turns: one, or more where a prompt did not extend what came before."""
    segments: list[Segment] = []
    for turn in turns:
        tokens = turn.tokens
        if tokens is None:
            return ()
        sampled = (True,) * len(tokens.token_ids_T)
        if not segments or tokens.new_segment:
            segments.append(Segment(tokens.input_ids_T, tokens.token_ids_T, sampled, tokens.logprobs_T))
            continue
        last, between = segments[-1], len(tokens.input_ids_T)
        segments[-1] = Segment(
            last.prompt_ids_T,
            last.token_ids_T + tokens.input_ids_T + tokens.token_ids_T,
            last.sampled_mask_T + (False,) * between + sampled,
            last.logprobs_T + (0.0,) * between + tokens.logprobs_T,
        )
    return tuple(segments)


@dataclass(frozen=True)
class Group:
    """All rollouts of one prompt in one step."""

    row: Row
    rollouts: tuple[Rollout, ...]

    @property
    def failure(self) -> Failure | None:
        """The first failure among the rollouts: it drops the whole group from training."""
        return next((rollout.failure for rollout in self.rollouts if rollout.failure), None)

    @property
    def rewards_G(self) -> list[float]:
        """Total reward of each rollout; only for a group without failure."""
        return [rollout.reward.total for rollout in self.rollouts if rollout.reward is not None]


@dataclass(frozen=True)
class StepRecord:
    """What one training step leaves behind."""

    step: int
    metrics: Mapping[str, float]
    groups: tuple[Group, ...] = ()
    advantages: tuple[tuple[float, ...], ...] = ()
    """For each group, one advantage a rollout; empty for a failed group."""
    notes: tuple[str, ...] = ()
    """Lines for the log: why a step was skipped, which groups failed."""


class Sampler(Protocol):
    """Draws completions for prompts. Knows token ids, not text or messages."""

    async def sample(self, prompt_ids: Sequence[int], count: int, params: SamplingParams) -> list[Completion]:
        """`count` completions of one prompt."""


class Completer(Protocol):
    """Turns a conversation into assistant turns: the policy of this process, a model server, any endpoint."""

    async def complete(self, context: Context, count: int, params: SamplingParams) -> Sequence[Turn | Failure]:
        """`count` independent next turns of one conversation, in a fixed order.

        A turn that the back end could not produce is a Failure. Raises ContextOverflow where the
        conversation leaves no room for a token, and ConfigError for what no row would get past.
        """


class Episode(Protocol):
    """One rollout's side of an environment."""

    @property
    def opening(self) -> Context:
        """The prompt: what the first turn goes on from."""

    async def step(self, turn: Turn) -> tuple[Message, ...] | None:
        """What the environment answers a turn with; None when the episode is over."""

    async def close(self) -> None:
        """Free what the episode holds. Called once, also after an error."""


class Environment(Protocol):
    """Says what comes next: single turn, a user's messages, tools."""

    async def start(self, row: Row, seed: int) -> Episode:
        """Begin an episode of a row. All episodes of a group get the same seed."""


class Recorder(Protocol):
    """Keeps what training steps leave behind: run folder, TensorBoard, W&B, MLflow."""

    def record(self, record: StepRecord) -> None:
        """Take in one step. A recorder for display must not raise."""

    def close(self) -> None:
        """Flush; called once, also after an error."""
