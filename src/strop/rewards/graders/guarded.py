"""HTTP to endpoints that a request to the server named. Needs the extra `graders`."""

from __future__ import annotations

import httpx2

from strop.rewards.graders.endpoint import FOR_OPENAI, SENT
from strop.rewards.graders.transport import CONNECT_TIMEOUT_S, GuardedTransport


def guarded_http() -> httpx2.AsyncClient:
    """A client that reaches no address which gives away credentials, and follows no redirect.

    This machine and private networks are allowed: that is where models of one's own answer.
    """
    return httpx2.AsyncClient(
        transport=GuardedTransport(allow_private=True, sent=SENT | FOR_OPENAI),
        follow_redirects=False,
        trust_env=False,
        timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),
    )
