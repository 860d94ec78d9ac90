"""Every error that strop raises on purpose.

    StropError                  anything a user can act on; the message says what and how
    ├── ConfigError             a configuration that cannot be run
    ├── DataError               a data file with faults, each with its line
    ├── ModelError              a model that cannot be found, loaded or trained
    │   └── ContextOverflow     a conversation that no longer fits into the model's positions
    ├── RewardError             a reward function that cannot be loaded
    ├── TooManyFailures         more groups failed than the configuration allows
    ├── TrainingDiverged        several steps in a row without a finite loss and gradient
    ├── RunError                a run folder that is missing, damaged or in use
    ├── CheckpointError         a checkpoint that is missing or damaged
    ├── DatabaseError           a database that cannot be opened or upgraded
    ├── ServerError             a server that cannot start
    ├── NotFound                something that a client names and that does not exist
    ├── Conflict                a request that the present state of a thing does not allow
    ├── InvalidRequest          a request that is malformed, or asks for what strop does not do
    ├── Forbidden               a request from a foreign page, or for what its key does not open
    │   └── Unauthorized        a request without a valid key
    ├── TooLarge                a body or a file over a limit
    └── TryLater                a request that can succeed after `retry_after` seconds
        ├── RateLimited         more requests than a key may make
        └── Unavailable         a model process that is down, starting, or has a full queue

A failure that costs one group only (a reward that raised, say) is no exception: it is
recorded on the rollout as `types.Failure` and counted.
"""

from __future__ import annotations


class StropError(Exception):
    """Base of the tree. `code` and `param` are what an API client gets to see."""

    code = "strop_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ConfigError(StropError):
    """A configuration that cannot be run; `param` is the dotted key."""

    code = "invalid_config"


class DataError(StropError):
    """A data file that cannot be used; the message lists its faults by line."""

    code = "invalid_data"


class ModelError(StropError):
    """A model that cannot be found, loaded or trained."""

    code = "invalid_model"


class ContextOverflow(ModelError):
    """A conversation that no longer fits into the model's positions: it ends a rollout, never a run."""

    code = "context_overflow"


class RewardError(StropError):
    """A reward function that cannot be loaded or started."""

    code = "invalid_reward"


class TooManyFailures(StropError):
    """More groups failed than `train.max_failed_groups` allows."""

    code = "too_many_failed_groups"


class TrainingDiverged(StropError):
    """Several steps in a row had no finite loss and gradient."""

    code = "training_diverged"


class RunError(StropError):
    """A run folder that is missing, damaged or in use by another process."""

    code = "invalid_run"


class CheckpointError(StropError):
    """A checkpoint that is missing or damaged."""

    code = "invalid_checkpoint"


class DatabaseError(StropError):
    """A database that cannot be opened or upgraded."""

    code = "invalid_database"


class ServerError(StropError):
    """A server that cannot start: its folder, its port, its settings."""

    code = "invalid_server"


class NotFound(StropError):
    """Something that a client names and that does not exist."""

    code = "not_found"


class Conflict(StropError):
    """A request that the present state of a thing does not allow."""

    code = "conflict"


class InvalidRequest(StropError):
    """A request that is malformed, or asks for what strop does not do; `param` is the field."""

    code = "invalid_request"


class Forbidden(StropError):
    """A request made by a foreign page, or for something that its key does not open."""

    code = "forbidden"


class Unauthorized(Forbidden):
    """A request without a valid key."""

    code = "invalid_api_key"


class TooLarge(StropError):
    """A body or a file over a limit."""

    code = "too_large"


class TryLater(StropError):
    """A request that can succeed after `retry_after` seconds."""

    def __init__(self, message: str, *, param: str | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after


class RateLimited(TryLater):
    """More requests than a key may make."""

    code = "rate_limit_exceeded"


class Unavailable(TryLater):
    """A model process that is down, is starting, or has a full queue."""

    code = "unavailable"
