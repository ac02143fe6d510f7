"""A small cell around one partition: replicas over simulated disks, a store of its state, no wire.

The store's state changes by compare-and-set on the partition epoch; each broker sees a change when
`deliver` gives it to that broker, so several may take themselves for the leader. A fetch is made of
three steps that may come apart: the follower asks, the leader answers, the follower takes it.

The rules of the controller and of registration are written down here once more, in few lines, so
that the replicas are not tested against the code that they run with.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from data_plane.cell.metadata import NO_LEADER, PartitionImage
from data_plane.log.config import LogConfig
from data_plane.log.cut_job import CutJob
from data_plane.log.errors import UnknownPartition
from data_plane.log.fold import FoldFactory
from data_plane.log.manager import LogManager
from data_plane.log.sim_file_system import SimFileSystem
from data_plane.replica.fetch_session import FetchState
from data_plane.replica.leadership import IsrProposal, ReplicationSettings
from data_plane.replica.partition import Partition
from data_plane.wire.errors import ErrorCode
from data_plane.wire.records import NewRecord, build_batch, iter_batch_headers
from tests.log.world import read_all

TOPIC_ID = UUID(int=1)
START_MS = 1_700_000_000_000
LAG_MS = 10_000


class Broker(NamedTuple):
    """What the image says of a broker."""

    broker_epoch: int
    is_fenced: bool = False


@dataclass(frozen=True)
class Image:
    """The store's state."""

    version: int
    partition: PartitionImage
    brokers: dict[int, Broker]


class Request(NamedTuple):
    """A fetch under way."""

    node_id: int
    broker_epoch: int
    state: FetchState


class Response(NamedTuple):
    """Its answer."""

    request: Request
    error: ErrorCode = ErrorCode.NONE
    diverging: tuple[int, int] | None = None
    records: bytes = b""
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass
class Node:
    """A broker with its disk; the host of its replica."""

    cell: Cell
    node_id: int
    config: LogConfig
    fs: SimFileSystem = field(default_factory=lambda: SimFileSystem(maps_files=True))
    is_up: bool = False
    is_image_old: bool = False
    broker_epoch: int = 0
    image: Image = field(init=False)
    replica_lag_time_max_ms: int = LAG_MS
    syncs: list[Partition] = field(default_factory=list)
    # Jobs for a thread; [0] has been run.
    cuts: list[CutJob] = field(default_factory=list)
    is_cut_run: bool = False
    # Whether threads cut the log, which they do when told to.
    cuts_in_threads: bool = False
    growing: int = 0
    high_watermark_seen: int = 0

    # The host

    def wall_ms(self, now_ms: int) -> int:
        return now_ms

    def request_sync(self, partition: Partition) -> None:
        self.syncs.append(partition)

    def request_cut(self, partition: Partition, job: CutJob) -> None:
        self.cuts.append(job)

    def may_join_isr(self, node_id: int, broker_epoch: int) -> bool:
        broker = self.image.brokers[node_id]
        return broker.broker_epoch == broker_epoch and not broker.is_fenced

    def isr_may_grow(self, partition: Partition) -> None:
        self.growing += 1

    # The broker

    def start(self) -> None:
        """The process starts and has registered; it has seen the image of that commit."""
        assert not self.is_up
        self.is_up = True
        self.syncs.clear()
        self.cuts.clear()
        self.is_cut_run = False
        self.logs = LogManager(
            [Path("/data")],
            fs=self.fs,
            default_config=self.config,
            now_ms=self.cell.now_ms,
            fold_factories=self.cell.fold_factories,
        )
        if self.cuts_in_threads:
            self.logs.directories[0].bytes_loaded_at_once_max = 0
        assert self.logs.start(self.cell.now_ms) == []
        try:
            log = self.logs.get(TOPIC_ID, 0)
        except UnknownPartition:
            log = self.logs.create(TOPIC_ID, "orders", 0)
        self.partition = Partition("default", "orders", 0, log, self.node_id, self)
        self.high_watermark_seen = log.high_watermark
        self.deliver()

    def deliver(self) -> None:
        """See the newest image."""
        self.image = self.cell.image
        state = self.image.partition
        min_isr = min(self.cell.min_insync_replicas, len(state.replicas))
        settings = ReplicationSettings(min_isr, self.cell.lag_messages_max)
        self.partition.follow_image(state, settings, self.cell.now_ms)

    def sync(self) -> None:
        """Do one sync that was asked for."""
        partition = self.syncs.pop(0)
        end_offset = partition.log.log_end_offset
        partition.log.flush()
        partition.sync_finished(end_offset)

    def cut(self) -> None:
        """The next step of a cut that was asked for: a thread is done with it, the loop hears."""
        job = self.cuts[0]
        if self.is_cut_run:
            del self.cuts[0]
            self.partition.cut_finished(job, None)
            job.tidy()
        else:
            job.run()
        self.is_cut_run = not self.is_cut_run

    def checkpoint(self) -> None:
        """What the log maintenance does from time to time."""
        job = self.logs.checkpoint_job(self.logs.directories[0])
        job.run()
        job.finish()

    def stop(self) -> None:
        self.is_up = False
        self.fs.process_death()

    def lose_power(self, source: random.Random) -> None:
        self.is_up = False
        self.fs.power_loss(source)

    def lose_disk(self) -> None:
        self.is_up = False
        self.fs = SimFileSystem(maps_files=True)

    # Its log

    @property
    def end(self) -> int:
        return self.partition.log.log_end_offset

    def batches(self, *, of_disk: bool = False) -> list[tuple[int, int, bytes]]:
        """(base offset, leader epoch, bytes) of what the log holds, or `of_disk` the disk."""
        found = []
        for data in read_all(self.partition.log, of_disk=of_disk):
            for header in iter_batch_headers(data, 0, len(data)):
                found.append((header.base_offset, header.partition_leader_epoch, bytes(data)))
        return found

    def epochs(self) -> list[tuple[int, int]]:
        """(base offset, leader epoch) of what the log holds."""
        return [(base, epoch) for base, epoch, _ in self.batches()]

    # Leading

    def append(
        self, on_done: Callable[[int, ErrorCode], None] | None = None, count: int = 1
    ) -> int:
        """Append a batch; returns its base offset. `on_done` gets the fate of acks=all."""
        value = b"%d" % next(self.cell.values)
        batch = build_batch([NewRecord(self.cell.now_ms, None, value)] * count)
        partition = self.partition
        result = partition.append_as_leader(batch, 0, len(batch), now_ms=self.cell.now_ms)
        if on_done is not None:
            partition.when_committed(
                result.last_offset, lambda error: on_done(result.last_offset, error)
            )
        return result.first_offset

    def answer(self, request: Request, batches_max: int = 2) -> Response:
        """What a leader's broker does with a follower's fetch."""
        partition = self.partition
        state = request.state
        if not partition.is_leader:
            return Response(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if state.leader_epoch != partition.leader_epoch:
            fenced = state.leader_epoch < partition.leader_epoch
            return Response(
                request,
                ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH,
            )
        if request.broker_epoch < self.image.brokers[request.node_id].broker_epoch:
            return Response(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = partition.log
        place = partition.locate_fetch(
            state.fetch_offset, state.last_fetched_epoch, is_replica=True
        )
        if isinstance(place, tuple):
            return Response(request, diverging=place)
        if place is not ErrorCode.NONE:
            start = log.copy_start_offset
            before = (log.epoch_for_offset(start - 1), start)
            return Response(request, place, before, log_start_offset=start)
        is_replica = partition.follower_fetched(
            request.node_id,
            request.broker_epoch,
            state.fetch_offset,
            state.log_start_offset,
            self.cell.now_ms,
        )
        if not is_replica:
            return Response(request, ErrorCode.UNKNOWN_LEADER_EPOCH)
        stored = self.batches(of_disk=state.fetch_offset < log.log_start_offset)
        records = b"".join(data for base, _, data in stored if base >= state.fetch_offset)
        headers = list(iter_batch_headers(records, 0, len(records)))[:batches_max]
        records = records[: headers[-1].end_position] if headers else b""
        return Response(
            request,
            records=records,
            high_watermark=partition.high_watermark,
            log_start_offset=log.log_start_offset,
        )

    # Following

    def ask(self) -> Request | None:
        """The fetch to send to `partition.leader_id`, if there is one."""
        partition = self.partition
        if not partition.is_follower or partition.is_busy or partition.leader_id == NO_LEADER:
            return None
        return Request(self.node_id, self.broker_epoch, partition.fetch_state())

    def take(self, response: Response) -> None:
        """What a fetcher does with an answer."""
        partition = self.partition
        state = response.request.state
        if not partition.is_follower or self.cuts or partition.fetch_state() != state:
            return  # It was for what this log was once.
        if response.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            before = response.diverging
            partition.restart_at(response.log_start_offset, -1 if before is None else before[0])
        elif response.diverging is not None:
            partition.truncate_for_divergence(*response.diverging)
        elif response.error is ErrorCode.NONE:
            partition.append_as_follower(
                memoryview(response.records),
                0,
                len(response.records),
                leader_epoch=state.leader_epoch,
                leader_high_watermark=response.high_watermark,
                leader_log_start=response.log_start_offset,
                now_ms=self.cell.now_ms,
            )


class Cell:
    """See the module. Node ids are 1, 2, 3, …; the first one leads in epoch 0."""

    def __init__(
        self,
        nodes_count: int = 3,
        *,
        min_insync_replicas: int = 2,
        config: LogConfig | None = None,
        lag_messages_max: int = -1,
        isr: tuple[int, ...] | None = None,
        cutting: tuple[int, ...] = (),
        fold_factories: Sequence[FoldFactory] = (),
    ) -> None:
        """The brokers `cutting` have threads cut their logs."""
        self.now_ms = START_MS
        self.fold_factories = fold_factories
        self.min_insync_replicas = min_insync_replicas
        self.lag_messages_max = lag_messages_max
        self.values = iter(range(1 << 60))
        node_ids = tuple(range(1, nodes_count + 1))
        partition = PartitionImage(node_ids, isr or node_ids, 1)
        self.image = Image(0, partition, {node_id: Broker(1) for node_id in node_ids})
        config = config or LogConfig(segment_bytes=4096, retention_ms=-1, file_delete_delay_ms=0)
        self.nodes = {node_id: Node(self, node_id, config) for node_id in node_ids}
        for node in self.nodes.values():
            node.broker_epoch = 1
            node.cuts_in_threads = node.node_id in cutting
            node.start()

    @property
    def state(self) -> PartitionImage:
        return self.image.partition

    @property
    def leader(self) -> Node:
        return self.nodes[self.state.leader]

    def up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up]

    # The store

    def commit(
        self,
        *,
        isr: tuple[int, ...] | None = None,
        elr: tuple[int, ...] | None = None,
        leader: int | None = None,
        brokers: dict[int, Broker] | None = None,
        replicas: tuple[int, ...] | None = None,
    ) -> None:
        """Change the state; nobody has seen it yet."""
        old = self.state
        new_leader = old.leader if leader is None else leader
        last_known = old.leader if new_leader == NO_LEADER != old.leader else old.last_known_leader
        new = replace(
            old,
            replicas=old.replicas if replicas is None else replicas,
            isr=old.isr if isr is None else isr,
            elr=old.elr if elr is None else elr,
            leader=new_leader,
            last_known_leader=last_known if new_leader == NO_LEADER else NO_LEADER,
            leader_epoch=old.leader_epoch + (new_leader != old.leader),
            partition_epoch=old.partition_epoch + 1,
        )
        self.image = Image(self.image.version + 1, new, {**self.image.brokers, **(brokers or {})})

    def elr_for(self, isr: tuple[int, ...], lost: int = 0) -> tuple[int, ...]:
        """The ELR that follows from a new ISR (KIP-966)."""
        old = self.state
        if len(isr) >= min(self.min_insync_replicas, len(old.replicas)):
            return ()
        return tuple(sorted({*old.elr, *old.isr} - {*isr, lost}))

    def commit_proposal(self, node: Node, proposal: IsrProposal) -> bool:
        """What the leader's broker commits; whether it was taken."""
        state = self.state
        is_current = (
            state.leader == node.node_id
            and state.leader_epoch == proposal.leader_epoch
            and state.partition_epoch == proposal.partition_epoch
        )
        if not is_current:
            return False
        for node_id, broker_epoch in proposal.joining:
            broker = self.image.brokers[node_id]
            if broker.broker_epoch != broker_epoch or broker.is_fenced:
                return False
        self.commit(isr=proposal.isr, elr=self.elr_for(proposal.isr))
        return True

    # The controller and registration

    def fence(self, node_id: int) -> None:
        """The broker is silent: it leaves the ISR, and somebody else leads."""
        state = self.state
        broker = self.image.brokers[node_id]
        isr = tuple(one for one in state.isr if one != node_id)
        self.commit(
            isr=isr,
            elr=self.elr_for(isr),
            leader=NO_LEADER if state.leader == node_id else state.leader,
            brokers={node_id: broker._replace(is_fenced=True)},
        )
        self.elect()

    def elect(self) -> bool:
        """Give the partition a leader, if it needs one and somebody may lead."""
        state = self.state
        if state.leader != NO_LEADER:
            return False
        electable = state.isr or state.elr or (state.last_known_leader,)
        for node_id in electable:
            if node_id in self.nodes and not self.image.brokers[node_id].is_fenced:
                isr = state.isr if node_id in state.isr else (*state.isr, node_id)
                elr = tuple(one for one in state.elr if one != node_id)
                self.commit(isr=isr, elr=elr, leader=node_id)
                return True
        return False

    def register(self, node_id: int, *, is_clean: bool) -> None:
        """A new incarnation; without the mark of a clean stop it leaves every ISR and ELR."""
        state = self.state
        node = self.nodes[node_id]
        node.broker_epoch = self.image.version + 2
        brokers = {node_id: Broker(node.broker_epoch)}
        if is_clean:
            self.commit(brokers=brokers)
        else:
            isr = tuple(one for one in state.isr if one != node_id)
            self.commit(
                isr=isr,
                elr=self.elr_for(isr, lost=node_id),
                leader=NO_LEADER if state.leader == node_id else state.leader,
                brokers=brokers,
            )
        node.start()

    # Shorthands for scenarios

    def deliver(self) -> None:
        """Everybody who is up sees the newest image."""
        for node in self.up():
            node.deliver()

    def fetch(self, node_id: int, times: int = 1) -> Response:
        """A follower asks its leader, and takes the answer."""
        node = self.nodes[node_id]
        for _ in range(times):
            request = node.ask()
            assert request is not None
            response = self.nodes[node.partition.leader_id].answer(request)
            node.take(response)
        return response

    def catch_up(self, *node_ids: int) -> None:
        """Fetch until there is nothing more, and once more to have said so."""
        for _ in range(100):
            ends = [self.nodes[node_id].partition.fetch_state() for node_id in node_ids]
            for node_id in node_ids:
                self.fetch(node_id)
            if ends == [self.nodes[node_id].partition.fetch_state() for node_id in node_ids]:
                return
        raise AssertionError("followers never catch up")

    def lead(self, node_id: int) -> None:
        """Make `node_id` the leader by a clean election, and everybody knows."""
        self.commit(leader=node_id)
        self.deliver()
