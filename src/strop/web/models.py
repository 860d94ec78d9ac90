"""Models that a person can choose from on a page."""

from __future__ import annotations

from strop.policy.catalogue import CATALOGUE
from strop.policy.installed import installed_folder
from strop.web.context import services


def model_names() -> list[str]:
    """Names that a chat or a deployment may use: models on this machine, and those that jobs made."""
    own = [name for name in CATALOGUE if installed_folder(name) is not None]
    trained = [job.fine_tuned_model for job in services().jobs.list(limit=100) if job.fine_tuned_model]
    return [*own, *trained]


async def chat_models() -> list[str]:
    """What the playground offers: deployments first, then what is deployed when it is asked."""
    deployed = [deployment.name for deployment in await services().deployments.list(limit=200)]
    return list(dict.fromkeys([*deployed, *model_names()]))
