"""The same job for the command line and the API: as TOML, as a call of curl, as a Python program."""

from __future__ import annotations

import json
import pprint
import shlex
from collections.abc import Mapping
from pathlib import Path

from strop.config import anchored, dump_config
from strop.services.job_order import Order
from strop.types import Json

_PATH = "/v1/fine_tuning/jobs"


def as_toml(order: Order, folder: Path) -> str:
    """A file for `strop train`, whose paths lead into the data folder of this server."""
    config = anchored(order.config, folder)
    needed = sorted({name for reward in config.rewards for name in reward.env})
    head = "# strop train config.toml\n"
    if needed:
        head += f"# Needs in the environment: {', '.join(needed)}\n"
    return head + dump_config(config)


def as_curl(request: Mapping[str, Json], url: str, local: bool) -> str:
    """A call for a shell; `local` says that the server asks for no key."""
    key = "" if local else ' \\\n  -H "Authorization: Bearer $OPENAI_API_KEY"'
    body = shlex.quote(json.dumps(request, ensure_ascii=False, indent=2))
    return f"curl {url}{_PATH}{key} \\\n  -H 'Content-Type: application/json' \\\n  -d {body}\n"


def as_python(request: Mapping[str, Json], url: str, local: bool) -> str:
    """A program that uses OpenAI's client."""
    known = {key: value for key, value in request.items() if key != "strop"}
    arguments = "".join(f"    {key}={_literal(value)},\n" for key, value in known.items())
    key = '"any"' if local else 'os.environ["OPENAI_API_KEY"]'
    imports = "" if local else "import os\n\n"
    return (
        f"{imports}from openai import OpenAI\n\n"
        f'client = OpenAI(base_url="{url}/v1", api_key={key})\n'
        f"job = client.fine_tuning.jobs.create(\n{arguments}"
        f"    extra_body={_literal({'strop': request['strop']})},\n)\n"
        "print(job.id, job.status)\n"
    )


def _literal(value: Json) -> str:
    """A value as Python has it, in lines that people can read; texts of many lines keep them."""
    return _shown(value, 4)


def _shown(value: Json, indent: int) -> str:
    pad = " " * (indent + 4)
    if isinstance(value, dict) and value:
        inner = "".join(f"{pad}{key!r}: {_shown(entry, indent + 4)},\n" for key, entry in value.items())
        return "{\n" + inner + " " * indent + "}"
    if isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        inner = "".join(f"{pad}{_shown(entry, indent + 4)},\n" for entry in value)
        return "[\n" + inner + " " * indent + "]"
    if isinstance(value, str) and "\n" in value:
        lines = "".join(f"{pad}{line!r}\n" for line in value.splitlines(keepends=True))
        return "(\n" + lines + " " * indent + ")"
    return repr(value) if isinstance(value, str) else pprint.pformat(value, width=100)
