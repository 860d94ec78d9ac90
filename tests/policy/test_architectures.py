"""Each supported architecture, against transformers: the same log-probabilities however they are
laid out, and a step of training that is saved and loaded by transformers and peft alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors import safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from models import (
    END,
    FUSED,
    PAD,
    SUPPORTED,
    TEMPLATE,
    TinyModels,
    packed_logprobs,
    plain_logprobs,
    plain_model,
    random_ids,
    sample,
    save_tiny_model,
    tiny_lora_policy,
    tiny_policy,
)
from strop.config import RunConfig, parse_config
from strop.policy.attention import PackedLayout
from strop.policy.checkpoint import save_weights
from strop.policy.fetch import resolve
from strop.policy.logprobs import score_sequence
from strop.policy.model import Policy, load_policy
from strop.train.batch import Sample
from strop.train.grpo import GrpoLearner

CPU = torch.device("cpu")

# Lengths around the sliding window, a prompt of one token, siblings of different length.
SAMPLES = (
    sample(random_ids(9, 1), [random_ids(12, 2), random_ids(3, 3), random_ids(1, 4)]),
    sample(random_ids(1, 5), [random_ids(20, 6), random_ids(5, 7)]),
    sample(random_ids(23, 8), [random_ids(17, 9)]),
)


def one_by_one(model: Any, samples: tuple[Sample, ...], temperature: float) -> list[Tensor]:
    """Log-probabilities of every completion, each in a forward of its own."""
    return [
        plain_logprobs(model, s.prompt_ids, segment.token_ids_T, temperature) for s in samples for segment in s.segments
    ]


def right_padded(model: Any, samples: tuple[Sample, ...], temperature: float) -> list[Tensor]:
    """Log-probabilities of every completion, all in one right-padded batch with a mask."""
    pairs = [(s.prompt_ids, segment.token_ids_T) for s in samples for segment in s.segments]
    longest = max(len(prompt) + len(completion) for prompt, completion in pairs)
    ids = torch.full((len(pairs), longest), PAD)
    mask = torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(pairs):
        length = len(prompt) + len(completion)
        ids[row, :length], mask[row, :length] = torch.tensor([*prompt, *completion]), 1
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits
    scores = torch.log_softmax(logits.float() / temperature, dim=-1)
    return [
        scores[row, len(prompt) - 1 :][: len(completion)].gather(1, torch.tensor(completion)[:, None])[:, 0]
        for row, (prompt, completion) in enumerate(pairs)
    ]


def packed(policy: Policy, samples: tuple[Sample, ...], temperature: float) -> list[Tensor]:
    """Log-probabilities of every completion from strop's packed rows with shared prompts."""
    segments = [segment for s in samples for segment in s.segments]
    with torch.no_grad():
        found = packed_logprobs(policy, samples, temperature)
    return [row[: len(segment.token_ids_T)] for row, segment in zip(found, segments, strict=True)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", SUPPORTED)
def test_padded_packed_and_single_sequences_have_the_same_logprobs(
    tiny: TinyModels, kind: str, temperature: float
) -> None:
    single = one_by_one(tiny.plain(kind), SAMPLES, temperature)
    for found in (
        right_padded(tiny.plain(kind), SAMPLES, temperature),
        packed(tiny.policy(kind), SAMPLES, temperature),
    ):
        for ours, wanted in zip(found, single, strict=True):
            torch.testing.assert_close(ours, wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_one_packed_row_and_many_have_the_same_logprobs(tiny: TinyModels, kind: str) -> None:
    policy = tiny.policy(kind)
    together = packed(policy, SAMPLES, 1.0)
    apart = [logprobs for s in SAMPLES for logprobs in packed(policy, (s,), 1.0)]
    for ours, wanted in zip(together, apart, strict=True):
        torch.testing.assert_close(ours, wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_scoring_a_single_sequence_gives_what_transformers_gives(tiny: TinyModels, kind: str) -> None:
    prompt, completion = random_ids(7, 10), random_ids(15, 11)
    found = score_sequence(tiny.policy(kind), prompt, completion, 1.3)
    torch.testing.assert_close(found, plain_logprobs(tiny.plain(kind), prompt, completion, 1.3), atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_sdpa_of_transformers_agrees_too(tiny: TinyModels, kind: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny.folder(kind), dtype=torch.float32, attn_implementation="sdpa")
    for ours, wanted in zip(packed(tiny.policy(kind), SAMPLES, 1.0), one_by_one(model, SAMPLES, 1.0), strict=True):
        torch.testing.assert_close(ours, wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_gradients_through_a_packed_row_are_those_of_separate_sequences(tmp_path: Path, kind: str) -> None:
    policy = tiny_policy(kind, tmp_path)
    policy.model.requires_grad_(True)
    plain = plain_model(tmp_path)
    packed_logprobs(policy, SAMPLES, 0.9).sum().backward()
    for s in SAMPLES:
        for segment in s.segments:
            ids = torch.tensor([[*s.prompt_ids, *segment.token_ids_T]])
            logits = plain(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
            scores = torch.log_softmax(logits / 0.9, dim=-1)[len(s.prompt_ids) - 1 : -1]
            scores.gather(1, ids[0, len(s.prompt_ids) :, None]).sum().backward()
    wanted = {name: parameter.grad for name, parameter in plain.named_parameters()}
    for name, parameter in policy.model.named_parameters():
        expected = wanted[name]
        assert parameter.grad is not None and expected is not None, name
        assert float((parameter.grad - expected).abs().max()) < 2e-4 * float(expected.abs().max()), name


def test_the_default_model_has_the_logprobs_that_transformers_gives() -> None:
    folder = resolve("smollm2-135m")
    policy = load_policy(folder, "smollm2-135m", CPU, torch.float32)
    prompt = policy.tokenizer("Name three colours of the rainbow.")["input_ids"]
    answers = [policy.tokenizer(text)["input_ids"] for text in (" Red, green, and 34 blues.", " Violet")]
    samples = (sample(prompt, answers), sample(prompt[:3], [prompt[3:]]))
    plain = plain_model(Path(folder))
    for ours, wanted in zip(packed(policy, samples, 1.0), one_by_one(plain, samples, 1.0), strict=True):
        torch.testing.assert_close(ours, wanted, atol=1e-4, rtol=0)


def run_config(method: str, **train: Any) -> RunConfig:
    """A configuration for the learner; files and rewards are not used."""
    return parse_config(
        {
            "name": "tiny",
            "model": "tiny",
            "data": {"train": "rows.jsonl"},
            "rewards": [{"name": "score", "source": "reward.py:grade"}],
            "train": {"method": method, "kl_coefficient": 0.0, **train},
        }
    )


def train_one_step(policy: Policy, method: str) -> GrpoLearner:
    """A step that raises the first completion of each group and lowers the rest."""
    learner = GrpoLearner(policy, None, run_config(method))
    groups = [sample(s.prompt_ids, [r.token_ids_T for r in s.segments], (1.0, -0.5, -0.5)) for s in SAMPLES[:1]]
    update = learner.update([*groups, sample(random_ids(4, 12), [random_ids(6, 13), random_ids(2, 14)], (1, -1))], 1e-3)
    assert update.skipped is None
    assert update.metrics["grad_norm"] > 1e-4
    return learner


def policy_logits(policy: Policy, ids: list[int]) -> Tensor:
    """Logits of a sequence as the sampler sees them."""
    with torch.inference_mode():
        return policy.logits(policy.hidden(torch.tensor([ids]), PackedLayout([len(ids)], (), (), CPU)))[0]


@pytest.mark.parametrize("kind", SUPPORTED)
def test_full_weights_are_trained_saved_and_loaded_by_transformers(tmp_path: Path, kind: str) -> None:
    policy = tiny_policy(kind, tmp_path / "start")
    policy.model.requires_grad_(True)
    learner = train_one_step(policy, "full")
    masters = learner.optimizer.weights()
    save_weights(policy, tmp_path / "saved", masters)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    start = plain_model(tmp_path / "start")
    changed = 0
    for name, weight in loaded.named_parameters():
        assert torch.equal(weight, masters[name]), name
        changed += not torch.equal(weight, start.get_parameter(name))
    assert changed == len(masters)
    ids = random_ids(11, 15)
    with torch.no_grad():
        logits = loaded(input_ids=torch.tensor([ids])).logits[0]
        before = start(input_ids=torch.tensor([ids])).logits[0]
    assert float((logits - before).abs().max()) > 1e-3
    reloaded = load_policy(str(tmp_path / "saved"), kind, CPU, torch.float32)
    torch.testing.assert_close(policy_logits(reloaded, ids), logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_an_adapter_is_trained_saved_and_loaded_by_peft(tmp_path: Path, kind: str) -> None:
    policy = tiny_lora_policy(kind, tmp_path / "start")
    before = {name: weight.clone() for name, weight in policy.model.named_parameters() if weight.requires_grad}
    train_one_step(policy, "lora")
    for name, weight in policy.model.named_parameters():
        if weight.requires_grad:
            assert not torch.equal(weight, before[name]), name
    save_weights(policy, tmp_path / "saved")
    ids = random_ids(11, 16)
    found = policy_logits(policy, ids)
    base = plain_model(tmp_path / "start")
    with torch.no_grad():
        plain = base(input_ids=torch.tensor([ids])).logits[0]
        loaded = PeftModel.from_pretrained(base, tmp_path / "saved").eval()
        adapted = loaded(input_ids=torch.tensor([ids])).logits[0]
    assert float((adapted - plain).abs().max()) > 1e-3
    torch.testing.assert_close(found, adapted, atol=1e-4, rtol=0)
    reloaded = load_policy(str(tmp_path / "saved"), kind, CPU, torch.float32)
    torch.testing.assert_close(policy_logits(reloaded, ids), adapted, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", SUPPORTED)
def test_training_makes_the_favoured_completion_likelier(tmp_path: Path, kind: str) -> None:
    policy = tiny_lora_policy(kind, tmp_path)
    learner = GrpoLearner(policy, None, run_config("lora"))
    group = sample(random_ids(6, 17), [random_ids(8, 18), random_ids(8, 19)], (1.0, -1.0))
    with torch.no_grad():
        good, bad = packed_logprobs(policy, [group]).sum(-1)
    learner.update([group], 1e-2)
    with torch.no_grad():
        better, worse = packed_logprobs(policy, [group]).sum(-1)
    assert better > good
    assert worse < bad


@pytest.mark.parametrize(("kind", "tied"), [("llama", True), ("qwen3", True), ("qwen2", False)])
def test_tied_embeddings_are_stored_once(tmp_path: Path, kind: str, tied: bool) -> None:
    policy = tiny_policy(kind, tmp_path / "start")
    policy.model.requires_grad_(True)
    learner = train_one_step(policy, "full")
    save_weights(policy, tmp_path / "saved", learner.optimizer.weights())
    with safe_open(tmp_path / "saved" / "model.safetensors", "pt") as file:
        assert ("lm_head.weight" in set(file.keys())) is not tied
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    assert (loaded.lm_head.weight is loaded.model.embed_tokens.weight) is tied


@pytest.mark.parametrize("method", ["lora", "full"])
def test_tokenizer_chat_template_and_end_tokens_are_saved_with_the_weights(tmp_path: Path, method: str) -> None:
    start = save_tiny_model("qwen3", tmp_path / "start")
    policy = load_policy(str(start), "qwen3", CPU, torch.float32)
    if method == "lora":
        policy = tiny_lora_policy("qwen3", start)
    save_weights(policy, tmp_path / "saved")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer.eos_token_id == END
    text = "the cat ändert 12 <|im_end|>"
    assert tokenizer(text)["input_ids"] == policy.tokenizer(text)["input_ids"]
    reloaded = load_policy(str(tmp_path / "saved"), "qwen3", CPU, torch.float32)
    assert reloaded.eos_ids == policy.eos_ids == {2, 3}


def test_the_kinds_that_are_fused_are_among_the_supported() -> None:
    assert set(FUSED) < set(SUPPORTED)
