"""Tokens a second of strop's sampler and of transformers' `generate` (and of vLLM where installed).

    python bench/sampler.py

Same model, prompts, temperature and number of tokens, no token is left out by top-k or
top-p, and every sequence is decoded to its end. Each figure is the median of three rounds.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable
from statistics import median

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from strop.policy.engine import Engine
from strop.policy.fetch import resolve
from strop.policy.model import fast_dtype, load_policy, pick_device
from strop.types import SamplingParams

PEOPLE = [("Alice", 31), ("Bob", 7), ("Carla", 55), ("Dimitri Ivanov", 99)]
TASK = "Extract name and age as JSON: {} is {} years old."

Round = Callable[[int, int, int], int]
"""Takes sequences, tokens and a seed; returns the number of tokens that were sampled."""


def strop_round(source: str) -> Round:
    device = pick_device("auto")
    policy = load_policy(source, "model", device, fast_dtype(device))
    engine = Engine(policy, max_concurrent=64)
    prompts = [policy.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts(policy.tokenizer)]

    def run(sequences: int, tokens: int, seed: int) -> int:
        params = SamplingParams(1.0, tokens, seed=seed)
        requests = [engine.submit(ids, sequences // len(prompts), params) for ids in prompts]
        while engine.busy:
            engine.step()
        return sum(len(done.token_ids_T) for request in requests for done in request.completions if done)

    return run


def generate_round(source: str) -> Round:
    device = pick_device("auto")
    model = AutoModelForCausalLM.from_pretrained(source, dtype=fast_dtype(device)).to(device)
    tokenizer = AutoTokenizer.from_pretrained(source, padding_side="left")

    def run(sequences: int, tokens: int, seed: int) -> int:
        prompts = [text for text in texts(tokenizer) for _ in range(sequences // len(PEOPLE))]
        batch = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(device)
        torch.manual_seed(seed)
        with torch.inference_mode():
            output = model.generate(**batch, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=tokens)
        completions = output[:, batch["input_ids"].shape[1] :].tolist()
        end = tokenizer.eos_token_id
        return sum(ids.index(end) + 1 if end in ids else len(ids) for ids in completions)

    return run


def vllm_round(source: str) -> Round:
    import vllm

    engine = vllm.LLM(source, dtype="bfloat16", max_model_len=512, enforce_eager=True)
    tokenizer = engine.get_tokenizer()

    def run(sequences: int, tokens: int, seed: int) -> int:
        params = vllm.SamplingParams(temperature=1.0, max_tokens=tokens, n=sequences // len(PEOPLE), seed=seed)
        outputs = engine.generate(texts(tokenizer), params, use_tqdm=False)
        return sum(len(completion.token_ids) for output in outputs for completion in output.outputs)

    return run


def texts(tokenizer) -> list[str]:  # type: ignore[no-untyped-def]
    """The prompts, rendered."""
    conversations = [[{"role": "user", "content": TASK.format(*person)}] for person in PEOPLE]
    return [tokenizer.apply_chat_template(c, add_generation_prompt=True, tokenize=False) for c in conversations]


def rate(run: Round, sequences: int, tokens: int) -> float:
    """Median tokens a second of three rounds, after one to warm up."""
    rates = []
    for seed in range(4):
        started = time.perf_counter()
        count = run(sequences, tokens, seed)
        rates.append(count / (time.perf_counter() - started))
    return median(rates[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--sequences", nargs="+", type=int, default=[8, 32, 64])
    parser.add_argument("--tokens", nargs="+", type=int, default=[24, 128])
    arguments = parser.parse_args()
    source = resolve(arguments.model, print)
    sides = {"generate": generate_round(source), "strop": strop_round(source)}
    if importlib.util.find_spec("vllm"):
        sides["vLLM"] = vllm_round(source)
    print("sequences tokens | " + "  ".join(f"{name:>9} tok/s" for name in sides) + " | strop / generate")
    for tokens in arguments.tokens:
        for sequences in arguments.sequences:
            rates = {name: rate(run, sequences, tokens) for name, run in sides.items()}
            figures = "  ".join(f"{value:15.0f}" for value in rates.values())
            print(f"{sequences:9} {tokens:6} | {figures} | {rates['strop'] / rates['generate']:.2f}", flush=True)


if __name__ == "__main__":
    main()
