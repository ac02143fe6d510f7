"""Retention by age and by size: topics that have it, and whether each broker keeps to it.

    base 0      base 31     base 48      end 60
    | 900 old   | 400       | 350        |      retention.bytes=700, retention.ms=1200
      must go     stays: without it 350 bytes are left, and it is 400 ms old

After each pass of a broker in which a log came to begin later, one of these has to be the reason:

- another replica of the partition has begun as late before, for one of the other two reasons;
- DeleteRecords has asked for just that offset;
- this broker's own retention, of whole segments: each one that went held nothing but records older
  than retention.ms by this broker's clock in that pass, or the log behind it still has
  retention.bytes; and none lay above the high watermark that the broker had before the pass.

A log start goes back only where a log begins anew, and otherwise by power loss alone, never behind
what was synced. At rest no log shows what should have gone; what a fold holds on to stays on the
disk below the log start, whatever has moved that. Of a compacted
log only the batches count that its cleaner has left whole: what is left of the others is neither as
old nor as large as they were. What may go need not be in sync
anywhere: a replica whose clock is fast begins later than its leader.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from data_plane.log.segment import Segment
from tests.simulation.partition_history import PartitionHistory
from tests.simulation.pin_fold import PinFold
from tests.simulation.replicas import DiskView, TopicPartition
from tests.simulation.undeletes import settings_of, without_pause
from tests.simulation.world import CLOCK_ERROR_MS_MAX, EPOCH_MS

if TYPE_CHECKING:
    from data_plane.log.log import Log
    from tests.simulation.admin import TopicPlan
    from tests.simulation.cell import Cell
    from tests.simulation.node import Node

# Of the cells, so many have topics with retention.
RETENTION_CHANCE = 0.35
TOPIC_CHANCE = 0.7
DEFAULT_RETENTION_MS = 1_209_600_000
# log.retention.check.interval.ms of the cells, and twice the tick of who looks at it.
LATE_MS_MAX = 3000


def draw_retention(rng: Random, plans: list[TopicPlan], *, is_wanted: bool) -> None:
    """Give some of the topics with promises a short memory, in some of the cells."""
    if rng.random() >= RETENTION_CHANCE and not is_wanted:
        return
    for plan in plans:
        if plan.name.startswith("data") and rng.random() < TOPIC_CHANCE:
            plan.configs.update(draw_configs(rng))


def draw_configs(rng: Random) -> dict[str, str]:
    """Settings with which segments are sealed and go within seconds."""
    configs = {"file.delete.delay.ms": rng.choice(("0", "200", "60000"))}
    if rng.random() < 0.5:
        configs["segment.ms"] = rng.choice(("200", "600"))
    else:
        # A segment's size is a megabyte at least; its index may be full before.
        configs["segment.index.bytes"] = rng.choice(("24", "64"))
        configs["index.interval.bytes"] = rng.choice(("0", "200"))
    kind = rng.choice(("bytes", "ms", "ms", "both"))
    if kind != "ms":
        configs["retention.bytes"] = rng.choice(("0", "800", "4000"))
    if kind != "bytes":
        configs["retention.ms"] = rng.choice(("200", "1000"))
    return configs


def has_retention(configs: dict[str, str]) -> bool:
    return "retention.bytes" in configs or "retention.ms" in configs


def _why_gone(configs: dict[str, str], age_ms: int, left_bytes: int) -> str:
    """By which of a topic's settings a segment may go; "" for none."""
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return ""
    if 0 <= int(configs.get("retention.ms", DEFAULT_RETENTION_MS)) < age_ms:
        return "age"
    if 0 <= int(configs.get("retention.bytes", -1)) <= left_bytes:
        return "size"
    return ""


class RetentionWatch:
    """See the module."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self._world = cell.world
        self._asked: dict[TopicPartition, set[int]] = {}
        # Where retention has let a replica begin, at the highest.
        self.starts: dict[TopicPartition, int] = {}

    def deletion_asked(self, key: TopicPartition, offset: int) -> None:
        """Somebody sends DeleteRecords."""
        self._asked.setdefault(key, set()).add(offset)

    def _configs(self, node: Node, key: TopicPartition) -> dict[str, str]:
        """The topic's settings as that broker's image has them."""
        services = node.services
        topic = None if services is None else services.image.topics_by_id.get(key[0])
        topic = topic or self._cell.store.image.topics_by_id.get(key[0])
        return {} if topic is None else settings_of(topic)

    # Passes

    def start_moved(
        self,
        node: Node,
        partition: PartitionHistory,
        view: DiskView,
        *,
        before: tuple[int, int, int],
        is_anew: bool,
    ) -> None:
        """A log begins elsewhere; `before`: where it began, was committed to and ended."""
        log = view.log
        assert log is not None
        start, old_start = log.log_start_offset, before[0]
        if not start <= log.high_watermark <= log.log_end_offset:
            self._world.violate(
                f"{view} begins at {start}, is committed to {log.high_watermark} and ends at "
                f"{log.log_end_offset}"
            )
        if partition.is_lossy:
            return
        if start < old_start:
            self._went_back(view, old_start, is_anew=is_anew)
        elif start <= partition.start_offset:
            self._world.count("log starts that followed another")
        elif start not in self._asked.get(partition.key, ()):
            self._check_retention(node, partition, view, log, before)

    def _went_back(self, view: DiskView, old_start: int, *, is_anew: bool) -> None:
        holder = view.find(view.start_offset)
        is_within = holder is not None and holder.last_offset >= old_start - 1
        if not is_anew and not is_within:
            self._world.violate(f"{view}: the log start goes back from {old_start}")

    def _check_retention(
        self,
        node: Node,
        partition: PartitionHistory,
        view: DiskView,
        log: Log,
        before: tuple[int, int, int],
    ) -> None:
        start = log.log_start_offset
        high_watermark, end_offset = before[1:]
        if start > high_watermark:
            self._world.violate(
                f"{view} begins at {start} by retention, committed was {high_watermark}"
            )
        # A fold may hold on to some of them, which stay on the disk then.
        known = [*(one for one, _ in log.pending_deletion or ()), *log.segments]
        gone = [one for one in known if partition.start_offset < one.next_offset <= start]
        if not gone or gone[-1].next_offset != start:
            self._world.violate(
                f"{view} begins at {start}, which nobody has asked for; gone are the segments "
                f"{[(one.base_offset, one.next_offset) for one in gone]}"
            )
        for segment in gone:
            self._check_segment(node, view, segment, end_offset)
        topic_partition = partition.key
        self.starts[topic_partition] = max(start, self.starts.get(topic_partition, 0))
        leads = self._cell.is_current_leader(node.node_id, *topic_partition)
        self._world.count(f"segments deleted on {'leaders' if leads else 'followers'}", len(gone))
        if start == end_offset:
            self._world.count("active segments deleted")
        self._world.note(node.name, f"retention lets {partition} begin at {start}")

    def check_held(self, view: DiskView) -> None:
        """The disk has all that a fold holds on to, whoever has ordered readers to lose it; also
        where the fold holds on again to what it had let go by a record that is gone."""
        log = view.log
        if "pins" not in self._cell.extras or log is None or not log.is_loaded or log.is_closed:
            return
        pins = sorted(log.fold(PinFold).offsets.values())
        disk_start = log.segments[0].base_offset
        if pins and pins[0] < disk_start:
            self._world.violate(f"{view} begins at {disk_start} on the disk, with pins at {pins}")
        if disk_start < log.log_start_offset:
            self._world.count("segments held below a log start")

    def _check_segment(self, node: Node, view: DiskView, segment: Segment, end_offset: int) -> None:
        base, end = segment.base_offset, segment.next_offset
        held = [one for one in view.whole_batches() if base <= one.base_offset < end]
        left_bytes = sum(one.size for one in view.batches if end <= one.base_offset < end_offset)
        now_ms = node.date_ms
        newest_ms = max((one.max_timestamp for one in held), default=-1)
        if held and newest_ms < 0:
            # Without timestamps it is as old as its last append: not older than the world, whatever
            # the broker's clock showed then.
            self._world.count("undated segments deleted")
            newest_ms = EPOCH_MS - CLOCK_ERROR_MS_MAX
        # Whatever the broker's clock shows: by an honest one it is so old, or will be in moments.
        age_ms = min(now_ms, self._world.now_ms + CLOCK_ERROR_MS_MAX) - newest_ms
        told = self._cell.commits.vouched_settings(view.topic_partition[0])
        for configs in told:
            why = _why_gone(configs, without_pause(configs, newest_ms, age_ms), left_bytes)
            if why:
                self._world.count(f"segments deleted by {why}")
                return
        self._world.violate(
            f"{view}: the segment {base}..{end} went, its newest record {age_ms} ms old, "
            f"{left_bytes} bytes left behind it; the settings that anybody could vouch for were "
            f"{told}"
        )

    # Lives

    def reopened(self, node: Node, old: DiskView, start: int) -> None:
        """A new process has opened the log of `old`, which begins at `start` now."""
        partition = self._cell.history.partition(old.topic_partition)
        if partition.is_lossy or old.node_name in partition.rotten:
            return
        if start < old.kept_start:
            self._world.violate(
                f"{node.name} opens {partition}, which begins at {start}; on its disk it began "
                f"at {old.kept_start}"
            )
        if start < old.start_offset:
            self._world.count("log starts lost with power")

    # At rest

    def open_ends(self, node: Node, name: str, view: DiskView) -> list[str]:
        """What should have gone by now."""
        log = view.log
        partition = self._cell.history.partitions.get(view.topic_partition)
        configs = self._configs(node, view.topic_partition)
        if log is None or partition is None or not has_retention(configs):
            return []
        if "delete" not in configs.get("cleanup.policy", "delete"):
            return []
        self.check_held(view)
        found = []
        held = [one for one in view.whole_batches() if one.last_offset >= log.log_start_offset]
        retention_ms = int(configs.get("retention.ms", -1))
        newest_ms = max((one.max_timestamp for one in held), default=1 << 62)
        age_ms = without_pause(configs, newest_ms, node.date_ms - newest_ms)
        services = node.services
        is_dated = services is not None and not services.deletion_permit.why_not_by_date
        if is_dated and newest_ms >= 0 and 0 <= retention_ms < age_ms - LATE_MS_MAX:
            found.append(f"{name} on {node.name} keeps what is {age_ms} ms old")
        retention_bytes = int(configs.get("retention.bytes", -1))
        if retention_bytes >= 0 and log.is_loaded:
            start = log.log_start_offset
            shown = [one.size for one in log.segments if one.next_offset > start]
            left_bytes = sum(shown[1:])
            if len(shown) > 1 and left_bytes >= retention_bytes:
                found.append(f"{name} on {node.name} keeps {left_bytes} bytes and more")
        return found
