"""Train the run in a folder: assemble the parts, run the loop, record the result."""

from __future__ import annotations

import asyncio
import errno
import platform
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import peft
import torch
import transformers

import strop
from strop.config import RunConfig
from strop.data.order import DataOrder
from strop.errors import ConfigError, StropError
from strop.evals.run import evaluate, validation_metrics
from strop.policy.chat import ChatTemplate
from strop.policy.completer import LocalCompleter
from strop.policy.engine import Engine
from strop.policy.model import Policy
from strop.policy.prepare import prepare
from strop.policy.sampler import LocalSampler
from strop.rewards.scorer import Scorer
from strop.rollout import Player
from strop.store.checkpoints import Checkpoint, CheckpointStore
from strop.store.files import write_json
from strop.store.recorder import RunRecorder
from strop.store.rundir import FailureCode, RunDir, RunState
from strop.train.grpo import GrpoLearner
from strop.train.loop import Ending, Trainer, Validate
from strop.train.schedule import peak_rate
from strop.types import Recorder
from strop.worker.checkpoints import SaveError, TrainingCheckpoints, checkpoint_store
from strop.worker.data import RunData, load_data
from strop.worker.heartbeat import BeatingCompleter
from strop.worker.targets import player_of
from strop.worker.trackers import open_trackers

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def train_run(path: Path, should_stop: Callable[[], bool], token: int | None = None) -> int:
    """Train a run from its newest checkpoint, or from the start. Returns the exit code of the process:

    0 if it finished or was paused, 1 if it failed, with the reason in the status. `token` is the fencing token from
    a server. Raises RunError, without changing the run, if another process is training it or has a newer token.
    """
    run = RunDir.open(path)
    resume = f"resume with: strop resume {run.path}" if token is None else "resume the job"
    with run.lock(token):
        try:
            run.set_status(RunState.STARTING, phase="loading")
            return _finish(run, asyncio.run(_train(run, should_stop)), resume)
        except Exception as error:
            return _fail(run, error, resume)


async def _train(run: RunDir, should_stop: Callable[[], bool]) -> Ending:
    config = run.config()
    say = _speaker(run)
    write_json(run.path / "run.json", _facts())
    store = checkpoint_store(run, config)
    checkpoint = store.newest_valid(say)
    done = checkpoint.step if checkpoint else 0
    torch.manual_seed(config.seed)
    async with Scorer.from_config(config.rewards) as scorer:
        policy, reference = prepare(config, checkpoint.path if checkpoint else None, say)
        _check_length(config, policy)
        chat = ChatTemplate(policy.tokenizer, policy.name, config.sampling.template)
        data = load_data(config, chat, say)
        order = DataOrder(len(data.train), config.train.batch_size, config.seed, data.fingerprint)
        learner = GrpoLearner(policy, reference, config)
        checkpoints = TrainingCheckpoints(run, config, store, learner, order)
        if checkpoint:
            checkpoints.restore(checkpoint)
        sampler = LocalSampler(Engine(policy, config.sampling.max_concurrent))
        player = player_of(config, BeatingCompleter(LocalCompleter(policy, chat, sampler), run.path))
        with ExitStack() as stack:
            trainer = Trainer(
                config=config,
                rows=data.train,
                order=order,
                learner=learner,
                peak_rate=peak_rate(config.train, policy.head.shape[1]),
                player=player,
                scorer=scorer,
                recorders=_open_recorders(run, config, stack),
                checkpoints=checkpoints,
                validate=_validation(run, config, data, player, scorer),
                prompts_dropped=data.dropped,
                on_phase=lambda step, phase: run.set_status(RunState.RUNNING, phase=phase),
            )
            _announce(run, store, trainer, checkpoint, say)
            return await trainer.run(done, should_stop)


def _speaker(run: RunDir) -> Callable[[str], None]:
    """Write a status line to the run's log, the process output and the status."""

    def say(line: str) -> None:
        print(line, flush=True)
        run.log(line)
        run.set_status(RunState.STARTING, phase=line)

    return say


def _check_length(config: RunConfig, policy: Policy) -> None:
    wanted = config.sampling.max_prompt_tokens + config.sampling.max_completion_tokens
    if policy.max_length is not None and wanted > policy.max_length:
        raise ConfigError(
            f"sampling.max_prompt_tokens + max_completion_tokens = {wanted}, but {policy.name} has a context length "
            f"of {policy.max_length}; lower one of them",
            param="sampling.max_completion_tokens",
        )


def _open_recorders(run: RunDir, config: RunConfig, stack: ExitStack) -> list[Recorder]:
    recorders: list[Recorder] = [RunRecorder(run), *open_trackers(config, run.path)]
    for recorder in recorders:
        stack.callback(recorder.close)
    return recorders


def _validation(run: RunDir, config: RunConfig, data: RunData, player: Player, scorer: Scorer) -> Validate | None:
    if not data.validation:
        return None

    async def validate() -> dict[str, float]:
        groups = (await evaluate(data.validation, config, player, scorer)).groups
        metrics = validation_metrics(groups, config)
        if "reward" not in metrics:
            failures = [group.failure.message for group in groups if group.failure]
            run.log(
                f"no validation reward: {len(failures)} of {len(groups)} rows could not be scored, more than "
                f"train.max_failed_groups allows; the first: {failures[0]}"
            )
        return metrics

    return validate


def _announce(
    run: RunDir, store: CheckpointStore, trainer: Trainer, checkpoint: Checkpoint | None, say: Callable[[str], None]
) -> None:
    """Remove records after the checkpoint and log where training starts."""
    done = checkpoint.step if checkpoint else 0
    run.forget_after(done if checkpoint else -1)
    store.sweep(done if checkpoint else -1)
    trainer_steps = trainer.total_steps
    say(f"resuming after step {done} of {trainer_steps}" if checkpoint else f"training {trainer_steps} steps")
    run.set_status(RunState.RUNNING, step=done, total_steps=trainer_steps)


def _facts() -> dict[str, str | int | None]:
    """Versions and hardware, for reproducing the run."""
    return {
        "strop": strop.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
        "platform": platform.platform(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _finish(run: RunDir, ending: Ending, resume: str) -> int:
    if ending is Ending.PAUSED:
        run.set_status(RunState.PAUSED, message=f"paused; {resume}")
        run.log("paused")
    else:
        run.set_status(RunState.SUCCEEDED)
        run.log("finished")
    return 0


def _fail(run: RunDir, error: Exception, resume: str) -> int:
    """Record the failure. Only an unexpected error is printed with its traceback."""
    code: str = FailureCode.UNEXPECTED
    if isinstance(error, StropError):
        code, message = error.code, error.message
    elif isinstance(error, torch.OutOfMemoryError | MemoryError):
        code = FailureCode.OUT_OF_MEMORY
        message = f"out of memory: {error}\nLower train.micro_batch_tokens or sampling.max_concurrent, then {resume}"
    elif isinstance(error, OSError):
        if isinstance(error, SaveError) or error.errno in _NO_SPACE:
            code = FailureCode.DISK_FULL
        message = f"{error}\nFix this, then {resume}"
    else:
        message = f"{type(error).__name__}: {error}"
    if not isinstance(error, StropError):
        traceback.print_exception(error)
    print(message, flush=True)
    with suppress(OSError):  # the disk may be full
        run.set_status(RunState.FAILED, message=message, code=code, param=getattr(error, "param", None))
        run.log(f"failed: {message}")
    return 1
