"""Write train.jsonl and heldout.jsonl: sentences about people, and the facts to extract.

    python make_rows.py

The seed is fixed, so the files in this folder are what this script writes. The generator is
that of strop's sample data set of the same name.
"""

import json
from pathlib import Path

from strop.data.samples import json_extraction


def main() -> None:
    splits = json_extraction.make()
    for file, rows in (("train.jsonl", splits.train), ("heldout.jsonl", splits.validation)):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (Path(__file__).parent / file).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
