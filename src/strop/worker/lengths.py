"""`python -m strop.worker.lengths FOLDER`: count the tokens of the prompts in a data file.

This is a separate process because the exact count imports torch. It reads and writes JSON files in its folder:

    spec.json    {"model": folder, "data": file, "template": options of the chat template}
    result.json  {"lengths", "refused", "faults"} or {"error"}
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from transformers import AutoTokenizer

from strop.data.rows import MAX_SHOWN, load_rows
from strop.errors import DataError, ModelError
from strop.policy.chat import ChatTemplate
from strop.store.spec_process import run_spec
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


def count(spec: Mapping[str, Json]) -> dict[str, Json]:
    """The result for a spec with `model`, `data` and `template`."""
    quiet_libraries()
    return prompt_lengths(spec["model"], Path(spec["data"]), spec["template"])


if __name__ == "__main__":
    sys.exit(run_spec(count, __doc__))
