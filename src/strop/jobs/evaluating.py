"""Runs the evaluations of a queue, in one thread of the server.

Each has a process of its own (`python -m strop.worker evaluate FOLDER`), which outlives the
server; its folder is followed, and rows are taken into the database as they are done. A process
that ends without being done is started again, a few times, and goes on where it stopped.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from strop.config import RewardConfig
from strop.errors import Conflict, RewardError, StropError, Unavailable
from strop.jobs.environment import public_environment
from strop.jobs.evaluations import Evaluation, EvaluationQueue, EvaluationStatus, change, move
from strop.jobs.launcher import Launcher, LocalLauncher, Process
from strop.jobs.tools import Limits, Secrets
from strop.store.evaluated import AnswerFile, row_values, save_rows
from strop.store.rundir import RunState

log = logging.getLogger(__name__)

EVALUATE = (sys.executable, "-m", "strop.worker", "evaluate")
_LIMITS = Limits()
_S = EvaluationStatus


class EvaluationRunner:
    """Runs up to `concurrency` evaluations at a time, beside the jobs that train."""

    def __init__(
        self,
        queue: EvaluationQueue,
        secrets: Secrets,
        launcher: Launcher | None = None,
        concurrency: int = 1,
        limits: Limits = _LIMITS,
        monotonic: Callable[[], float] = time.monotonic,
        ready: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """`ready` has a deployment loaded that an evaluation is about to ask: false as long as it is not."""
        self._queue = queue
        self._secrets = secrets
        self._launcher = launcher or LocalLauncher(EVALUATE)
        self._concurrency = concurrency
        self._limits = limits
        self._monotonic = monotonic
        self._ready = ready
        self._followed: dict[str, _Followed] = {}
        self._complaints: dict[str, str] = {}
        self._closing = threading.Event()
        self._waking = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="strop-evaluations", daemon=True)

    def start(self) -> None:
        """Begin to work, in a thread."""
        self._queue.sweep()
        self._thread.start()

    def wake(self) -> None:
        """Look at the evaluations now, not only after the usual interval."""
        self._waking.set()

    def close(self) -> None:
        """Stop working. Processes go on, but for those that ask this server's own model process."""
        self._closing.set()
        self._waking.set()
        if self._thread.ident is not None:
            self._thread.join()
        for followed in self._followed.values():
            if followed.process and followed.evaluation.spec["model"]["kind"] == "deployment":
                self._launcher.stop(followed.process, now=False)

    def tick(self) -> None:
        """One round. What goes wrong with one evaluation keeps no other from going on."""
        waiting, to_do = [], self._queue.to_do()
        self._drop_all_but({evaluation.id for evaluation in to_do})
        for evaluation in to_do:
            if evaluation.status is _S.QUEUED:
                waiting.append(evaluation)
            else:
                self._guarded(evaluation, self._follow)
        running = [followed for followed in self._followed.values() if followed.evaluation.status is _S.RUNNING]
        for evaluation in waiting[: max(0, self._concurrency - len(running))]:
            self._guarded(evaluation, self._begin)

    def _begin(self, evaluation: Evaluation) -> None:
        with self._queue.database.write() as connection:
            first = evaluation.started_at or self._queue.clock()
            started = move(connection, evaluation, status=_S.RUNNING, started_at=first)
        self._followed[evaluation.id] = self._new_followed(started)
        self._launch(self._followed[evaluation.id])

    def _follow(self, evaluation: Evaluation) -> None:
        """Look at one that should have a process, or is to have none any more."""
        followed = self._followed.get(evaluation.id)
        if followed is None:
            followed = self._followed[evaluation.id] = self._new_followed(evaluation)
            followed.process = self._launcher.find(self._queue.folder(evaluation).path)
            followed.ended = followed.process is None
        followed.evaluation = evaluation
        if followed.process is not None:
            followed.ended = self._launcher.poll(followed.process) is not None
            if not followed.ended and evaluation.status is _S.CANCELLED:
                self._stop(followed, followed.process)
        self._take_in(followed)
        if followed.ended:
            self._conclude(followed)
        elif followed.process is None and self._monotonic() >= followed.start_at:
            self._launch(followed)

    def _launch(self, followed: _Followed) -> None:
        evaluation, folder = followed.evaluation, self._queue.folder(followed.evaluation)
        model = evaluation.spec["model"]
        try:
            if model["kind"] == "deployment" and not self._ready(model["name"]):
                return  # the next round asks again
            environment = self._environment(evaluation)
            process = self._launcher.find(folder.path)  # of a server that died before it wrote that down
            if process is None:
                folder.set_status(RunState.STARTING)  # what an earlier process said is not about this one
                process = self._launcher.launch(folder.path, environment, evaluation.restarts + 1)
        except Unavailable as error:
            followed.start_at = self._monotonic() + self._limits.backoff_s
            if evaluation.reason != error.message:
                followed.evaluation = self._change(evaluation, reason=error.message)
            return
        except StropError as error:
            self._settle(evaluation, _S.FAILED, error.message)
            return
        except OSError as error:
            self._settle(evaluation, _S.FAILED, f"no process could be started: {error}; mend that, then resume")
            return
        followed.process, followed.ended = process, False
        begun = {"pid": process.pid, "pid_started_at": process.started_at, "reason": None}
        followed.evaluation = self._change(evaluation, **begun)

    def _conclude(self, followed: _Followed) -> None:
        """Say how an evaluation ended whose process has, or start it again."""
        evaluation, folder = followed.evaluation, self._queue.folder(followed.evaluation)
        status, figures = folder.status(), folder.metrics()
        if evaluation.status is _S.CANCELLED:
            self._settle(evaluation, _S.CANCELLED, None)
        elif status.get("state") == RunState.SUCCEEDED and figures is not None:
            self._settle(evaluation, _S.SUCCEEDED, None, metrics=json.dumps(figures))
        elif status.get("state") == RunState.FAILED:
            self._settle(evaluation, _S.FAILED, str(status.get("message")))
        elif evaluation.restarts >= self._limits.restarts:
            reason = f"its process ended {evaluation.restarts + 1} times; its last output is in raw_output.log"
            self._settle(evaluation, _S.FAILED, f"{reason}. Resume to go on with the rows that are left")
        else:
            asked = status.get("state") == RunState.PAUSED  # by whoever shuts the machine down, or by us
            restarts = evaluation.restarts + (not asked)
            followed.process, followed.ended = None, False
            followed.start_at = self._monotonic() + (0 if asked else self._limits.backoff_s * 2**evaluation.restarts)
            why = None if asked else "its process ended without a word, and is started again"
            followed.evaluation = self._change(evaluation, pid=None, restarts=restarts, reason=why)

    def _take_in(self, followed: _Followed) -> None:
        """Rows that are done, and how far it is."""
        evaluation = followed.evaluation
        rows = [row_values(answers, evaluation.pass_threshold) for answers in followed.answers.new_rows()]
        status = self._queue.folder(evaluation).status()
        counts = {name: status[name] for name in ("rows_done", "rows_total") if status.get(name) is not None}
        if not rows and counts == {name: getattr(evaluation, name) for name in counts}:
            return
        with self._queue.database.write(durable=False) as connection:  # it can all be read again
            save_rows(connection, evaluation.seq, rows)
            if counts:
                followed.evaluation = change(connection, evaluation, **counts)

    def _stop(self, followed: _Followed, process: Process) -> None:
        """Ask it to end, and after a while make it."""
        now = self._monotonic()
        if followed.stop_at is None:
            followed.stop_at = now
            self._launcher.stop(process, now=False)
        elif now - followed.stop_at > self._limits.grace_s:
            self._launcher.stop(process, now=True)

    def _settle(self, evaluation: Evaluation, status: EvaluationStatus, reason: str | None, **values: Any) -> None:
        values |= {"status": status, "reason": reason, "pid": None, "pid_started_at": None}
        if evaluation.finished_at is None:
            values["finished_at"] = self._queue.clock()
        with self._queue.database.write() as connection:
            move(connection, evaluation, **values)
        del self._followed[evaluation.id]
        log.info("evaluation %s is %s", evaluation.id, status)

    def _change(self, evaluation: Evaluation, **values: Any) -> Evaluation:
        """What is known of its process has to be written, even if a client has cancelled it meanwhile."""
        with self._queue.database.write() as connection:
            return change(connection, evaluation, **values)

    def _drop_all_but(self, ids: Collection[str]) -> None:
        """Forget those that a client ended while they had no process."""
        for evaluation_id in [known for known in self._followed if known not in ids]:
            del self._followed[evaluation_id]

    def _environment(self, evaluation: Evaluation) -> dict[str, str]:
        """The server's variables without its secrets, but with those that this evaluation names."""
        known = {secret.name for secret in self._secrets.names()}
        public = public_environment(os.environ, known)
        wanted = _variables(evaluation)
        missing = [name for name in wanted if name not in known and name not in public]
        if missing:
            raise RewardError(
                f"it needs {', '.join(missing)}: store it as a secret of the server, then resume the evaluation"
            )
        return {**public, **self._secrets.reveal([name for name in wanted if name in known])}

    def _new_followed(self, evaluation: Evaluation) -> _Followed:
        return _Followed(evaluation, AnswerFile(self._queue.folder(evaluation).rollouts_file, evaluation.samples))

    def _loop(self) -> None:
        complaint = ""
        while not self._closing.is_set():
            try:
                self.tick()
                complaint = ""
            except Exception as error:  # the database is away, or full
                if str(error) != complaint:
                    log.exception("the evaluations cannot be looked at")
                complaint = str(error)
            self._waking.wait(self._limits.interval_s)
            self._waking.clear()

    def _guarded(self, evaluation: Evaluation, act: Callable[[Evaluation], object]) -> None:
        """Do something about an evaluation; what goes wrong is tried again in the next round."""
        try:
            act(evaluation)
            self._complaints.pop(evaluation.id, None)
        except Conflict:
            pass  # a client was faster: the next round sees what it wants
        except Exception as error:
            if self._complaints.get(evaluation.id) != str(error):  # not in every round
                log.exception("evaluation %s", evaluation.id)
            self._complaints[evaluation.id] = str(error)


class _Followed:
    """An evaluation that is running, or is being stopped."""

    def __init__(self, evaluation: Evaluation, answers: AnswerFile) -> None:
        self.evaluation = evaluation
        self.answers = answers
        self.process: Process | None = None
        self.ended = False
        self.start_at = 0.0
        self.stop_at: float | None = None


def _variables(evaluation: Evaluation) -> list[str]:
    spec = evaluation.spec
    names = [name for table in spec["config"]["rewards"] for name in RewardConfig.model_validate(table).env]
    key = spec["model"].get("api_key_env")
    return list(dict.fromkeys([*names, *([key] if key else [])]))
