"""What /healthz says: whether this broker serves, and what somebody has to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_plane.log.errors import LogDirFailure
from data_plane.log.log_directory import LogDirectory


def health(
    *, is_ready: bool, directories: Sequence[LogDirectory], why_no_deletion: str
) -> tuple[bool, dict[str, Any]]:
    """Whether the answer is 200, and its content. A broker that has lost some of its disks is
    degraded and serves the others; one that has lost all of them does not serve."""
    offline = [
        {
            "directory": directory.path,
            "reason": directory.failure,
            "what_to_do": LogDirFailure.WHAT_TO_DO,
        }
        for directory in directories
        if directory.failure is not None
    ]
    is_serving = is_ready and (not directories or len(offline) < len(directories))
    status = "ok" if is_ready else "starting or stopping"
    if is_ready and offline:
        status = "degraded" if is_serving else "failed"
    content: dict[str, Any] = {"status": status}
    if offline:
        content["offline_log_directories"] = offline
    if why_no_deletion:
        # It serves all the same; disks fill up meanwhile.
        content["deletion_suspended"] = why_no_deletion
    return is_serving, content
