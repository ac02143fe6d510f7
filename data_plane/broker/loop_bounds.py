"""How much a broker's loop does in one go, before others have their turn or a thread is asked.

Nobody sets these: they are what a processor does in some milliseconds. The simulator draws small
ones, so that its small cells meet what elsewhere only large states and large requests do: work in
pieces, with other requests, crashes and new leaders between one piece and the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_plane.broker.cell.image_steps import CHANGES_PER_STEP_MAX
from data_plane.broker.produce.produce_checks import HERE_UNPACKED_BYTES_MAX
from data_plane.broker.request.large_requests import LARGE_BYTES
from data_plane.groups.chores import WORK_PER_TURN_MAX
from data_plane.groups.config import CHORE_APPENDS_MAX, TOMBSTONES_PER_APPEND_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBounds:
    """Each says what the constant is for that it begins with.

    - `group_work_per_turn_max`, `group_tombstones_per_append_max`, `group_chore_appends_max`: of
      each group coordinator (data_plane/groups/config.py).
    - `unpacked_bytes_max`: what the loop unpacks of one Produce request.
    - `request_bytes_max`: larger requests are decoded by a thread and handled in slices.
    - `image_changes_max`: partitions that change in one step towards an image.
    """

    group_work_per_turn_max: int = WORK_PER_TURN_MAX
    group_tombstones_per_append_max: int = TOMBSTONES_PER_APPEND_MAX
    group_chore_appends_max: int = CHORE_APPENDS_MAX
    unpacked_bytes_max: int = HERE_UNPACKED_BYTES_MAX
    request_bytes_max: int = LARGE_BYTES
    image_changes_max: int = CHANGES_PER_STEP_MAX


LOOP_BOUNDS = LoopBounds()
