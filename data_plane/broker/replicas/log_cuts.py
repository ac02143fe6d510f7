"""Cutting a log where that takes long: a thread prepares it, the loop puts it in place.

Deliberately absent: what a cut is (data_plane/log/cut_job.py), and who asks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.broker.request.api import Executor

if TYPE_CHECKING:
    from data_plane.log.cut_job import CutJob
    from data_plane.replica.partition import Partition


def cut_log(partition: Partition, job: CutJob, executor: Executor | None) -> None:
    """Have `executor` do the work, and tell the partition; here and now without one."""
    if executor is None:
        job.run()
        partition.cut_finished(job, None)
        job.tidy()
        return

    def done(result: object, failure: BaseException | None) -> None:
        partition.cut_finished(job, failure)
        # What fails here fails the directory.
        executor.submit(job.tidy, lambda result, failure: None)

    executor.submit(job.run, done)
