"""The command line. Each command parses its arguments, calls one function of the layers below and prints the result.

Training runs in a separate process (`python -m strop.worker`); the command follows its run folder. Commands that
need a model import torch inside the function, so that help, listings and data checks start fast.
"""

from strop.cli.main import main

__all__ = ["main"]
