"""The models that evaluations measure."""

from __future__ import annotations

import subprocess
import sys


def test_a_remote_model_without_the_package_says_how_to_get_it() -> None:
    code = (
        "import asyncio, sys\n"
        "sys.modules['openai'] = None\n"
        "from strop.errors import ConfigError\n"
        "from strop.evals.spec import evaluation_config, parse_target\n"
        "from strop.worker.targets import open_target\n"
        "config = evaluation_config({'rewards': [{'name': 'r', 'source': 'reward.py:grade'}]})\n"
        "async def main():\n"
        "    async with open_target(parse_target('m@https://host/v1'), [], 'rows', config, print, False):\n"
        "        pass\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "except ConfigError as error:\n"
        "    print(error.message)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'remote models need the openai package; install it with: pip install "strop[graders]"' in done.stdout
