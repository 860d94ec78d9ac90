"""Silence the output of libraries."""

from __future__ import annotations

import warnings

from transformers.utils import logging


def quiet_libraries() -> None:
    """Disable progress bars for loading and saving, and known warnings between peft and transformers.

    Call at the start of strop's own processes; it affects the whole process.
    """
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
