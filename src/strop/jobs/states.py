"""What a job can be, and what can become of it. The words are those of OpenAI's API, and `paused`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class JobStatus(StrEnum):
    """Status of a job."""

    VALIDATING_FILES = "validating_files"
    """Its data files are read and checked."""
    QUEUED = "queued"
    """Waits for its turn."""
    RUNNING = "running"
    """Has the device: a process trains, or is about to be started again."""
    PAUSED = "paused"
    """Stopped after a checkpoint, on request or because something has to be mended first."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """Whether nothing more happens to the job by itself."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)


_S = JobStatus
TRANSITIONS: Mapping[JobStatus, frozenset[JobStatus]] = {
    _S.VALIDATING_FILES: frozenset({_S.QUEUED, _S.PAUSED, _S.FAILED, _S.CANCELLED}),
    _S.QUEUED: frozenset({_S.RUNNING, _S.PAUSED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.PAUSED, _S.FAILED, _S.CANCELLED}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.CANCELLED}),
    # Resuming a failed job is how to go on once the reason is mended; it is checked anew if it never started.
    _S.FAILED: frozenset({_S.QUEUED, _S.VALIDATING_FILES}),
    _S.SUCCEEDED: frozenset(),
    _S.CANCELLED: frozenset(),
}
"""From each status, the ones that may follow."""
