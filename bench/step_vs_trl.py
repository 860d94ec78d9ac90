"""Seconds a GRPO step takes in strop and in TRL, on the same model, rows, reward and batch.

    python bench/step_vs_trl.py                          # all cases, about an hour on two cores
    python bench/step_vs_trl.py --tokens 24 --kl 0       # LoRA and full, short answers

Every case runs both trainers one after the other, each in a process of its own, on the
json-extraction example: 4 prompts, 8 completions each. TRL gets its faster settings: bf16
weights for LoRA, bf16 autocast over fp32 weights for full training, no gradient
checkpointing. The first step is left out of the figures: it warms caches up.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "examples" / "json-extraction"
MODEL = "smollm2-135m"
LEARNING_RATES = {"lora": 2e-4, "full": 1e-5}


@dataclass(frozen=True)
class Case:
    """What both trainers are asked to do."""

    method: str
    tokens: int
    kl: float
    steps: int


def run_strop(case: Case) -> dict[str, Any]:
    """Train with strop's worker; a step ends when its rollouts are on disk."""
    from strop.config import read_config
    from strop.store.rundir import RunDir

    overrides = [
        f'train.method="{case.method}"',
        f"train.max_steps={case.steps}",
        f"train.kl_coefficient={case.kl}",
        f"train.learning_rate={LEARNING_RATES[case.method]}",
        "train.eval_every=0",
        f"train.save_every={case.steps + 1}",
        f"sampling.max_completion_tokens={case.tokens}",
    ]
    with tempfile.TemporaryDirectory() as folder:
        run = RunDir.create(Path(folder) / "run", read_config(EXAMPLE / "config.toml", overrides))
        subprocess.run([sys.executable, "-m", "strop.worker", "train", str(run.path)], check=True, capture_output=True)
        ends = [run.rollout_file(step).stat().st_mtime for step in range(1, case.steps + 1)]
        rewards = [line["reward"] for line in run.metrics()]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"seconds": [b - a for a, b in itertools.pairwise(ends)], "rewards": rewards, "peak_mb": peak // 1024}


def run_trl(case: Case) -> dict[str, Any]:
    """Train with TRL's GRPOTrainer."""
    import datasets
    import torch
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from strop.policy.fetch import resolve
    from strop.rewards.frames import Record

    spec = importlib.util.spec_from_file_location("example_reward", EXAMPLE / "reward.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def as_record(value: Any) -> Any:
        return json.loads(json.dumps(value), object_hook=Record)

    def reward(completions: list[Any], ground_truth: list[Any], **_: Any) -> list[float]:
        return [
            sum(
                module.grade(
                    as_record({"output_text": completion[0]["content"]}),
                    as_record({"metadata": {"ground_truth": truth}}),
                ).values()
            )
            for completion, truth in zip(completions, ground_truth, strict=True)
        ]

    ends: list[float] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            ends.append(time.perf_counter())

    rows = [json.loads(line) for line in (EXAMPLE / "train.jsonl").read_text().splitlines()]
    lora = LoraConfig(r=16, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            resolve(MODEL),
            reward_funcs=reward,
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=not torch.cuda.is_available(),
                bf16=True,
                model_init_kwargs={"dtype": "bfloat16" if case.method == "lora" else "float32"},
                per_device_train_batch_size=32,
                num_generations=8,
                max_completion_length=case.tokens,
                max_steps=case.steps,
                learning_rate=LEARNING_RATES[case.method],
                lr_scheduler_type="constant",
                beta=case.kl,
                gradient_checkpointing=False,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                seed=17,
            ),
            train_dataset=datasets.Dataset.from_list(
                [{"prompt": row["messages"], "ground_truth": row["metadata"]["ground_truth"]} for row in rows]
            ),
            peft_config=lora if case.method == "lora" else None,
            callbacks=[Clock()],
        )
        trainer.train()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": [b - a for a, b in itertools.pairwise(ends)], "rewards": rewards, "peak_mb": peak // 1024}


SIDES = {"strop": run_strop, "trl": run_trl}


def measure(side: str, case: Case) -> dict[str, Any]:
    """Run one side in a process of its own, so that memory and threads are its own too."""
    command = [sys.executable, __file__, "--side", side, "--case", json.dumps(asdict(case))]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{side} failed:\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["lora", "full"])
    parser.add_argument("--tokens", nargs="+", type=int, default=[24, 128])
    parser.add_argument("--kl", nargs="+", type=float, default=[0.0, 0.001])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(SIDES[arguments.side](Case(**json.loads(arguments.case)))))
        return
    print("method tokens    kl | TRL s/step  strop s/step  ratio | peak MB TRL  strop | rewards TRL, strop")
    for method, tokens, kl in itertools.product(arguments.methods, arguments.tokens, arguments.kl):
        case = Case(method, tokens, kl, arguments.steps)
        trl, strop = measure("trl", case), measure("strop", case)
        slow, fast = median(trl["seconds"]), median(strop["seconds"])
        curves = [" ".join(f"{reward:.2f}" for reward in side["rewards"]) for side in (trl, strop)]
        print(
            f"{method:6} {tokens:6} {kl:5g} | {slow:10.1f} {fast:13.2f} {slow / fast:6.1f} | "
            f"{trl['peak_mb']:11} {strop['peak_mb']:6} | {curves[0]}, {curves[1]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
