"""Tiny models with random weights, made from configurations and saved as real ones are.

Byte-level tokens with a few merges, so that text encodes in more than one way and characters
can be cut in the middle; ChatML-like turns; several end-of-turn ids for Qwen3 and Gemma 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

from strop.config import LoraConfig
from strop.policy.checkpoint import save_weights
from strop.policy.logprobs import token_logprobs
from strop.policy.model import Policy, load_policy
from strop.policy.prepare import adapt
from strop.train.batch import Sample, pack
from strop.types import Segment

SUPPORTED = ("llama", "qwen2", "qwen3", "qwen3_moe", "gemma3")
FUSED = ("llama", "qwen2", "qwen3")
WINDOW = 6
"""Sliding window of the tiny Gemma 3: shorter than almost any sequence in the tests."""

_numbers = count()  # of rollouts: no two of a step have the same

VOCABULARY = 288
PAD, START, END, END_OF_TEXT = 0, 1, 2, 3
_SPECIAL = ("<pad>", "<|im_start|>", "<|im_end|>", "<|endoftext|>")
_MERGES = re.findall("..", "thheineranreonatenndtiesorteofedisitalarsttontngsehaasou")

TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_SEVERAL_EOS = ("qwen3", "gemma3")

# Shapes that let mistakes show: more query heads than key heads, a head width other than
# width / heads where the architecture allows it, no number that another could stand in for.
_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "pad_token_id": PAD,
    "bos_token_id": START,
    "eos_token_id": END,
}
_SLIDING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"tie_word_embeddings": True}),
    "qwen2": ("qwen2", {"hidden_size": 96, "tie_word_embeddings": False}),
    "qwen3": ("qwen3", {"tie_word_embeddings": True}),
    "qwen3_moe": ("qwen3_moe", {**_EXPERTS, "tie_word_embeddings": False}),
    "gemma3": ("gemma3_text", {**_SLIDING, "query_pre_attn_scalar": 20}),
}


def save_tiny_model(kind: str, folder: Path, seed: int = 0, **config_overrides: Any) -> Path:
    """Write a tiny model of a kind, with tokenizer and chat template, and return its folder.

    Kinds are those of `SUPPORTED`, or any `model_type` that transformers knows.
    """
    model_type, settings = _CONFIGS.get(kind, (kind, {}))
    config = AutoConfig.for_model(model_type, **{**_COMMON, **settings, **config_overrides})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        # Biases and norms start as zeros and ones, which would hide that they are left out.
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
    eos = [END, END_OF_TEXT] if kind in _SEVERAL_EOS else END
    model.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=PAD)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path, template: str | None = TEMPLATE, adds_bos: bool = False) -> None:
    """Write a byte-level tokenizer of `VOCABULARY` tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*_SPECIAL, *alphabet, *_MERGES]
    vocabulary = {name: index for index, name in enumerate(names)}
    assert len(vocabulary) == VOCABULARY
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[(pair[0], pair[1]) for pair in _MERGES]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in _SPECIAL])
    if adds_bos:
        start = [("<|im_start|>", START)]
        tokenizer.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=start)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = template
    wrapped.save_pretrained(folder)


def tiny_policy(
    kind: str, folder: Path, dtype: torch.dtype = torch.float32, seed: int = 0, **config_overrides: Any
) -> Policy:
    """A frozen policy over a tiny model, which is saved into `folder` first."""
    save_tiny_model(kind, folder, seed, **config_overrides)
    return load_policy(str(folder), kind, torch.device("cpu"), dtype)


def tiny_lora_policy(kind: str, folder: Path, dtype: torch.dtype = torch.float32, r: int = 4) -> Policy:
    """A tiny policy with a trainable adapter that already changes what the model says."""
    base = tiny_policy(kind, folder, dtype)
    policy = adapt(base, LoraConfig(r=r, alpha=2.0 * r), seed=1, checkpoint=None, source=str(folder))
    stir_adapters(policy)
    return policy


def stir_adapters(policy: Policy, size: float = 0.1, seed: int = 7) -> None:
    """Give every adapter a second half that is not zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(size * torch.randn(parameter.shape, generator=generator))
    policy.refresh()


def save_tiny_adapter(base: Path, folder: Path, seed: int, targets: tuple[str, ...] | None = None) -> Path:
    """Write an adapter over a saved model that changes what it says, and return its folder."""
    policy = load_policy(str(base), "base", torch.device("cpu"), torch.float32)
    settings = LoraConfig(r=4, alpha=8.0, targets=targets or "all-linear")
    policy = adapt(policy, settings, seed, checkpoint=None, source=str(base))
    stir_adapters(policy, seed=seed)
    save_weights(policy, folder)
    return folder


class TinyModels:
    """One saved model, frozen policy and plain transformers model of each kind, made on demand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._policies: dict[str, Policy] = {}
        self._plain: dict[str, Any] = {}

    def folder(self, kind: str) -> Path:
        """The saved model; not to be changed."""
        folder = self._folder / kind
        return folder if folder.exists() else save_tiny_model(kind, folder)

    def policy(self, kind: str) -> Policy:
        """The frozen fp32 policy; not to be trained."""
        if kind not in self._policies:
            self._policies[kind] = load_policy(str(self.folder(kind)), kind, torch.device("cpu"), torch.float32)
        return self._policies[kind]

    def plain(self, kind: str) -> Any:
        """The model as transformers alone runs it."""
        if kind not in self._plain:
            self._plain[kind] = plain_model(self.folder(kind))
        return self._plain[kind]


def plain_model(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The saved model as transformers alone runs it."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


def plain_logprobs(model: Any, prompt: Sequence[int], completion: Sequence[int], temperature: float = 1.0) -> Tensor:
    """Log-probability of each token of one completion, by transformers' own forward."""
    ids = torch.tensor([[*prompt, *completion]])
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0]
    scores = torch.log_softmax(logits.float() / temperature, dim=-1)
    return scores[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None])[:, 0]


def sample(prompt: Sequence[int], completions: Sequence[Sequence[int]], advantages: Sequence[float] = ()) -> Sample:
    """A scored group as the learner takes it, every token sampled."""
    segments = tuple(Segment(tuple(prompt), tuple(ids), (True,) * len(ids), (0.0,) * len(ids)) for ids in completions)
    numbers, lengths = tuple(next(_numbers) for _ in segments), tuple(map(len, completions))
    return Sample(tuple(prompt), segments, tuple(advantages or [1.0] * len(segments)), numbers, lengths)


def packed_logprobs(policy: Policy, samples: Sequence[Sample], temperature: float = 1.0) -> Tensor:
    """Log-probabilities `[C, L]` of all completions as the trainer computes them, in one packed forward."""
    batch = pack(samples, policy.device)
    sources = policy.hidden(batch.ids_T[None], batch.layout)[0].index_select(0, batch.sources_S)
    return batch.padded(token_logprobs(sources, policy.head, batch.targets_S, temperature))


def random_ids(length: int, seed: int) -> list[int]:
    """Ids without special tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(len(_SPECIAL), VOCABULARY, (length,), generator=generator).tolist()
