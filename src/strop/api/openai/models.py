"""`/v1/models`: what `model` of a request may say."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from strop.api.dependencies import Provided
from strop.services import models
from strop.services.models import ModelObject

router = APIRouter(prefix="/models")


class ModelList(BaseModel):
    """All models: those of the catalogue that are on this machine, deployments, fine-tuned ones."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


class DeletedModel(BaseModel):
    """A model that no longer answers."""

    id: str
    object: Literal["model"] = "model"
    deleted: bool = True


@router.get("")
async def list_models(services: Provided) -> ModelList:
    """Every model. They are not listed page by page."""
    return ModelList(data=await models.list_all(services))


@router.get("/{model_id:path}")
async def retrieve_model(model_id: str, services: Provided) -> ModelObject:
    """One model."""
    return await models.get(services, model_id)


@router.delete("/{model_id:path}")
async def delete_model(model_id: str, services: Provided) -> DeletedModel:
    """End the deployment of that name. The run that a fine-tuned model comes from stays, with its checkpoints."""
    await models.delete(services, model_id)
    return DeletedModel(id=model_id)
