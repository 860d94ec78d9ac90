"""The learning rate as a pure function of the step, so that resuming needs no state."""

from __future__ import annotations

import math

from strop.config import TrainConfig

# Measured on SmolLM2-135M (width 576), in the range where GRPO learns fast and stays stable.
# Wider models want less; inverse to the width is the usual rule (muP, arXiv:2203.03466).
_WIDTH = 576
_RATES = {"lora": 2e-4, "full": 1e-5}


def peak_rate(config: TrainConfig, hidden_size: int) -> float:
    """The configured peak, or for `auto` one by method and width of the model; times its multiplier."""
    rate = config.learning_rate
    if rate == "auto":
        rate = float(f"{_RATES[config.method] * _WIDTH / hidden_size:.3g}")
    return rate * config.learning_rate_multiplier


def rate_at(step: int, total: int, peak: float, config: TrainConfig) -> float:
    """Learning rate of a step, counted from 1, of `total`.

    The rate rises linearly over the warm-up, reaches the peak on its last step, and then
    stays, falls linearly to zero, or follows half a cosine to zero.
    """
    warmup = math.ceil(config.warmup_ratio * total)
    if step <= warmup:
        return peak * step / warmup
    progress = (step - warmup - 1) / max(total - warmup, 1)
    match config.schedule:
        case "constant":
            return peak
        case "linear":
            return peak * (1 - progress)
        case "cosine":
            return peak * 0.5 * (1 + math.cos(math.pi * progress))
