"""All errors that strop raises deliberately.

    StropError                  an error that the user can fix; the message says how
    ├── ConfigError             an invalid configuration
    ├── DataError               an invalid data file; the message lists errors by line
    ├── ModelError              a model that cannot be found, loaded or trained
    │   └── ContextOverflow     a conversation that exceeds the model's context length
    ├── RewardError             a reward function that cannot be loaded
    ├── TooManyFailures         more groups failed than the configuration allows
    ├── TrainingDiverged        consecutive steps without a finite loss and gradient
    ├── RunError                a run folder that is missing, damaged or in use
    ├── CheckpointError         a checkpoint that is missing or damaged
    ├── DatabaseError           a database that cannot be opened or upgraded
    ├── ServerError             a server that cannot start
    ├── NotFound                a resource that does not exist
    ├── Conflict                a request that the resource's state does not allow
    ├── InvalidRequest          a malformed or unsupported request
    ├── Forbidden               a cross-origin request, or one that the key does not permit
    │   └── Unauthorized        a request without a valid API key
    ├── TooLarge                a request body or file above a limit
    └── TryLater                a request that can succeed after `retry_after` seconds
        ├── RateLimited         a key exceeded its request limit
        └── Unavailable         a model process that is down, starting, or has a full queue

A failure that affects a single group, such as a reward function that raised, is not an exception: it is recorded on
the rollout as `types.Failure` and counted.
"""

from __future__ import annotations


class StropError(Exception):
    """Base class. `code` and `param` are returned to API clients."""

    code = "strop_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ConfigError(StropError):
    """An invalid configuration; `param` is the dotted key."""

    code = "invalid_config"


class DataError(StropError):
    """An invalid data file; the message lists its errors by line."""

    code = "invalid_data"


class ModelError(StropError):
    """A model that cannot be found, loaded or trained."""

    code = "invalid_model"


class ContextOverflow(ModelError):
    """A conversation that exceeds the model's context length. It ends a rollout, never a run."""

    code = "context_overflow"


class RewardError(StropError):
    """A reward function that cannot be loaded or started."""

    code = "invalid_reward"


class TooManyFailures(StropError):
    """More groups failed than `train.max_failed_groups` allows."""

    code = "too_many_failed_groups"


class TrainingDiverged(StropError):
    """Consecutive steps without a finite loss and gradient."""

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
    """A server that cannot start because of its data folder, port or settings."""

    code = "invalid_server"


class NotFound(StropError):
    """A resource that does not exist."""

    code = "not_found"


class Conflict(StropError):
    """A request that the resource's current state does not allow."""

    code = "conflict"


class InvalidRequest(StropError):
    """A malformed or unsupported request; `param` is the field."""

    code = "invalid_request"


class Forbidden(StropError):
    """A cross-origin request, or one that the API key does not permit."""

    code = "forbidden"


class Unauthorized(Forbidden):
    """A request without a valid API key."""

    code = "invalid_api_key"


class TooLarge(StropError):
    """A request body or file above a limit."""

    code = "too_large"


class TryLater(StropError):
    """A request that can succeed after `retry_after` seconds."""

    def __init__(self, message: str, *, param: str | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, param=param)
        self.retry_after = retry_after


class RateLimited(TryLater):
    """A key exceeded its request limit."""

    code = "rate_limit_exceeded"


class Unavailable(TryLater):
    """A model process that is down, is starting, or has a full queue."""

    code = "unavailable"
