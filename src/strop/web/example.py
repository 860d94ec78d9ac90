"""The job that an empty server offers: extracting JSON, with a data set and a reward that come along."""

from __future__ import annotations

from strop.api.openai.creation import create_job
from strop.api.openai.requests import JobRequest
from strop.api.services import Services
from strop.data.samples.sample_sets import Split, find_sample
from strop.jobs.job import Job
from strop.rewards.presets.index import find_preset

SAMPLE = "json-extraction"
# As in examples/json-extraction/config.toml: three minutes on two cores.
_SETTINGS = {
    "sampling": {"max_prompt_tokens": 128, "max_completion_tokens": 32},
    "train": {"method": "lora", "max_steps": 24, "eval_every": 8, "save_every": 8},
    "eval": {"samples": 4, "temperature": 1.0},
}


def start_example(services: Services) -> Job:
    """Make the files and the job; it is queued. Raises what creating a job raises."""
    sample = find_sample(SAMPLE)
    splits: tuple[Split, ...] = ("train", "validation")
    training, validation = (
        services.files.add(f"{SAMPLE}-{split}.jsonl", "fine-tune", sample.lines(split)).id for split in splits
    )
    reward = {"name": "extraction", "python": find_preset(sample.preset).source}
    request = JobRequest.model_validate(
        {
            "model": "smollm2-135m",
            "training_file": training,
            "validation_file": validation,
            "seed": 17,
            "strop": {"name": SAMPLE, "rewards": [reward], **_SETTINGS},
        }
    )
    return create_job(request, services, None, repeated=False)
