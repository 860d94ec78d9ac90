"""Which server a model grader asks, and with which key."""

from __future__ import annotations

import os

from strop.endpoints.addresses import BlockedAddress, check_url
from strop.endpoints.server import Server
from strop.rewards.graders.grade import Settings
from strop.rewards.graders.judges import Judge

OPENAI = "https://api.openai.com/v1"


def judge_server(judge: Judge, settings: Settings) -> Server:
    """Address and key of a judge. Raises RewardError for a URL out of bounds or a key that is not there."""
    address, key_name = _address(judge, settings)
    try:
        check_url(address, settings.allow_private, "base_url")
    except BlockedAddress as error:
        raise settings.refusal(error.message) from None
    return Server(address, _key(judge, key_name, settings), key_name)


def _address(judge: Judge, settings: Settings) -> tuple[str, str | None]:
    """Base URL, and the name of the variable with the key if there is one.

    A key goes only to the server that it was named for: $OPENAI_API_KEY never to a `base_url`.
    """
    if judge.base_url:
        return judge.base_url, judge.api_key_env
    url = settings.variables.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_BASE_URL") or OPENAI
    if judge.api_key_env:
        return url, judge.api_key_env
    return url, "OPENAI_API_KEY" if "OPENAI_API_KEY" in settings.variables or url == OPENAI else None


def _key(judge: Judge, key_name: str | None, settings: Settings) -> str | None:
    """The key, or None. Its value is in no message."""
    if key_name is None:
        return None
    if key_name not in settings.variables:
        why = f"the judge {judge.model} needs ${key_name}, which the reward's `env` does not list"
        raise settings.refusal(f'{why}; add env = ["{key_name}"]', "rewards.env")
    key = settings.variables[key_name].strip()
    if not key or not key.isascii() or not key.isprintable():
        raise settings.refusal(f"${key_name} does not contain a usable key", "rewards.env")
    return key
