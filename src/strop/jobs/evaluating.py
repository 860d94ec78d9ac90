"""The kind `evaluation`: `python -m strop.worker evaluate FOLDER`, which goes on where it stopped.

Rows are taken into the database as they are done.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from sqlalchemy import Connection

from strop.config import RewardConfig
from strop.errors import RewardError
from strop.jobs.environment import Environment
from strop.jobs.evaluations import Evaluation, EvaluationQueue
from strop.jobs.kind import Change, Exit, Outcome, Restart, Settled, Tools
from strop.jobs.launcher import Launcher, LocalLauncher
from strop.jobs.task import NewEvent, Task, TaskStatus
from strop.store.evaldir import EvaluationDir
from strop.store.evaluated import AnswerFile, row_values, save_rows
from strop.store.rundir import RunState
from strop.store.tables import evaluations

EVALUATE = (sys.executable, "-m", "strop.worker", "evaluate")


class Evaluating:
    """Measures models on rows."""

    def __init__(self, tools: Tools, launcher: Launcher | None = None) -> None:
        self.launcher = launcher or LocalLauncher(EVALUATE)
        self._tools = tools
        self._queue = EvaluationQueue(tools.database, tools.folder)

    def open(self, task: Task) -> EvaluationHandler:
        """Read what the evaluation is to do."""
        return EvaluationHandler(self._tools, self._queue.get(task.id))


class EvaluationHandler:
    """One evaluation while it runs."""

    time_limit_s = None
    prepared = True  # its folder is made before it is recorded

    def __init__(self, tools: Tools, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.folder = EvaluationDir(tools.folder.found(evaluation.folder))
        self._tools = tools
        self._model = evaluation.spec["model"]
        self._answers = AnswerFile(self.folder.rollouts_file, evaluation.samples)
        self._counts = {"rows_done": evaluation.rows_done, "rows_total": evaluation.rows_total}

    @property
    def ends_with_server(self) -> bool:
        """Whether it asks this server's own model process."""
        return bool(self._model["kind"] == "deployment")

    def prepare(self) -> None:
        """Put out of date what the status says of an earlier attempt."""
        if not self.folder.locked():
            self.folder.set_status(RunState.STARTING)

    def environment(self) -> dict[str, str] | None:
        """The server's variables with the secrets that the evaluation names, once the deployment that it asks is there.

        RewardError where there is no variable of a name.
        """
        if self.ends_with_server and not self._tools.ready(self._model["name"]):
            return None
        variables = Environment(self._tools.secrets)
        names = _variables(self.evaluation)
        missing = [name for name in names if name not in variables.stored and name not in variables.public]
        if missing:
            raise RewardError(
                f"it needs {', '.join(missing)}: store it as a secret of the server, then resume the evaluation"
            )
        environment = variables.with_secrets(name for name in names if name in variables.stored)
        self.folder.set_status(RunState.STARTING)
        return environment

    def follow(self) -> Iterator[Change]:
        """Rows that are done, and how many there are."""
        rows = [row_values(answers, self.evaluation.pass_threshold) for answers in self._answers.new_rows()]
        status = self.folder.status()
        counts = {name: status[name] for name in self._counts if status.get(name) is not None}
        if not rows and counts.items() <= self._counts.items():
            return

        def save(connection: Connection) -> None:
            save_rows(connection, self.evaluation.seq, rows)
            if counts:
                own = evaluations.update().where(evaluations.c.task == self.evaluation.seq)
                connection.execute(own.values(**counts))

        yield Change(also=save, durable=False)  # it can all be read again
        self._counts |= counts

    def conclude(self, ended: Exit) -> Outcome:
        """As the status in its folder says."""
        status = self.folder.status()
        state = status.get("state")
        if ended.requested == "cancel":
            return Settled(TaskStatus.CANCELLED)
        if state == RunState.SUCCEEDED and self.folder.metrics() is not None:
            return Settled(TaskStatus.SUCCEEDED)
        if state == RunState.FAILED:
            return Settled(TaskStatus.FAILED, str(status.get("message")))
        if state == RunState.PAUSED:  # by a shutdown of the machine, or by this server
            return Restart(counted=False)
        return Restart("its process ended unexpectedly; its last output is in raw_output.log")

    def finish(self, outcome: Settled) -> Change:
        """Its figures, if it has succeeded."""
        own = evaluations.update().where(evaluations.c.task == self.evaluation.seq)
        figures = self.folder.metrics() if outcome.status is TaskStatus.SUCCEEDED else None
        statement = own.values(metrics=None if figures is None else json.dumps(figures))
        level = "error" if outcome.status is TaskStatus.FAILED else "info"
        message = f"Evaluation {outcome.status}" + (f": {outcome.reason}" if outcome.reason else "")
        event = NewEvent(message, level="error" if level == "error" else "info")
        return Change([event], also=lambda connection: connection.execute(statement))


def _variables(evaluation: Evaluation) -> list[str]:
    spec = evaluation.spec
    names = [name for table in spec["config"]["rewards"] for name in RewardConfig.model_validate(table).env]
    key = spec["model"].get("api_key_env")
    return list(dict.fromkeys([*names, *([key] if key else [])]))
