"""Keeping libraries from talking where strop itself reports."""

from __future__ import annotations

import warnings

from transformers.utils import logging


def quiet_libraries() -> None:
    """No progress bars for loading and saving, and no warnings about what peft asks of transformers.

    For processes that strop owns, at their start; it changes the whole process.
    """
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*", category=FutureWarning)
