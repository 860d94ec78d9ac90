"""The command line. Thin: each command reads its arguments, calls one function of the layers
below, and shows what comes back.

Training runs in a process of its own (`python -m strop.worker`), whose run folder is
followed. Commands that need a model import torch only when they run, inside the function:
help, listings and data checks answer at once.
"""

from strop.cli.main import main

__all__ = ["main"]
