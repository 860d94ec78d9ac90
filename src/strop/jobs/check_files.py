"""`python -m strop.jobs.check_files FOLDER`: reads the data files that the folder's spec.json names.

Leaves the numbers of rows in result.json, or what is wrong with the files.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from strop.data.rows import load_files
from strop.store.spec_process import run_spec
from strop.types import Json


def check(spec: Mapping[str, Json]) -> dict[str, Json]:
    """Numbers of `training` and `validation` rows. DataError lists what is wrong, by line."""
    training, validation = load_files(*spec["files"])
    return {"training": len(training), "validation": len(validation)}


if __name__ == "__main__":
    sys.exit(run_spec(check, __doc__))
