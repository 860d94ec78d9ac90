"""`python -m strop.worker.lengths MODEL DATA`: count the tokens of the prompts in a data file.

This is a separate process because the exact count imports torch. The result is JSON on standard output. An error is
printed to standard error, with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from transformers import AutoTokenizer

from strop.data.rows import MAX_SHOWN, load_rows
from strop.errors import DataError, ModelError, StropError
from strop.policy.chat import ChatTemplate
from strop.types import Json
from strop.worker.quiet import quiet_libraries


def prompt_lengths(model: str, data: Path, options: Mapping[str, Json]) -> dict[str, Json]:
    """`lengths`: number of tokens of each prompt; `refused`: number of prompts that the chat template rejects;
    `faults`: the first of those.

    Raises DataError for a file with faults, ModelError for a folder without a usable tokenizer.
    """
    rows = load_rows(data)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelError(f"{model}: no tokenizer that can be loaded: {error}", param="model") from None
    chat = ChatTemplate(tokenizer, model, options)
    lengths: list[int] = []
    faults: list[dict[str, Json]] = []
    for row in rows:
        try:
            lengths.append(len(chat.prompt_ids(row)))
        except DataError as error:
            faults.append({"line": row.line, "message": error.message})
    return {"lengths": lengths, "refused": len(faults), "faults": faults[:MAX_SHOWN]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="strop.worker.lengths", description=__doc__)
    parser.add_argument("model", help="folder of a model")
    parser.add_argument("data", type=Path, help="data file")
    parser.add_argument("--template", type=json.loads, default={}, help="JSON: options of the chat template")
    arguments = parser.parse_args()
    quiet_libraries()
    try:
        print(json.dumps(prompt_lengths(arguments.model, arguments.data, arguments.template)))
    except StropError as error:
        print(error.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
