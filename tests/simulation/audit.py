"""The heavy checks: now and then while a cell runs, and all of them when it has come to rest.

- What a broker reads from its log is what its disk was seen to get, byte for byte (by CRC).
- Folds equal a replay of the log: producer states, leader epochs, the chain of batches, and pins.
- At rest: all replicas equal the committed log; each record of each idempotent producer stands
  there at most once and in order; each acknowledged one stands at its offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data_plane.log.errors import LogError
from data_plane.log.log import Log
from data_plane.wire.records import decode_batch, iter_batch_headers
from tests.simulation import large_states
from tests.simulation.chain_fold import Chain, ChainFold
from tests.simulation.committed import SEQUENCES
from tests.simulation.compacted import CompactedView, key_as_it_is, read_stored
from tests.simulation.delays import DELAYS, check_pending
from tests.simulation.partition_history import PartitionHistory
from tests.simulation.pin_fold import PinFold, Pins
from tests.simulation.replicas import (
    READ_BYTES,
    Batch,
    DiskView,
    TopicPartition,
    read_batches,
)
from tests.simulation.retries import OF_BROKERS, WORK, check_retry_folds

if TYPE_CHECKING:
    from data_plane.cell.metadata import MetadataImage, TopicImage
    from tests.simulation.cell import Cell

CACHED_BATCHES = 5


def check_folds(cell: Cell) -> None:
    """All logs that are in memory: folds against a replay of what the disk got."""
    for node in cell.nodes.values():
        if node.is_up:
            for view in cell.history.disks.get(node.name, {}).values():
                check_folds_of(cell, view)
    for partition in cell.history.partitions.values():
        topic = cell.store.image.topics_by_id.get(partition.key[0])
        if topic is not None and partition.key[1] < len(topic.partitions):
            cell.history.held.check_isr(partition, topic.partitions[partition.key[1]].isr)


def check_folds_of(cell: Cell, view: DiskView) -> None:
    """The same for one log."""
    log = view.log
    if view.node_name in cell.history.partition(view.topic_partition).rotten:
        return  # Recovery may have passed over what is damaged.
    if log is not None and log.is_loaded and not log.is_closed:
        _check_producers(cell, view, log)
        if not isinstance(view, CompactedView):
            _check_epochs(cell, view, log)
            _check_chain(cell, view, log)
        if "pins" in cell.extras:
            _check_pins(cell, view, log)
        topic = cell.history.partition(view.topic_partition).topic
        if topic == DELAYS:
            check_pending(cell, view, log)
        if topic == WORK:
            check_retry_folds(cell, view, log)


def _replay(batches: list[Batch]) -> dict[int, tuple[int, list[tuple[int, int, int, int]]]]:
    """producer id → (epoch, its last batches as (sequences, offsets))."""
    states: dict[int, tuple[int, list[tuple[int, int, int, int]]]] = {}
    for batch in batches:
        if batch.producer_id < 0 or batch.is_control:
            continue
        epoch, known = states.get(batch.producer_id, (batch.producer_epoch, []))
        if epoch != batch.producer_epoch:
            known = []
        count = batch.last_offset - batch.base_offset
        last_sequence = (batch.base_sequence + count) % SEQUENCES
        entry = (batch.base_sequence, last_sequence, batch.base_offset, batch.last_offset)
        states[batch.producer_id] = (batch.producer_epoch, [*known, entry][-CACHED_BATCHES:])
    return states


def _check_producers(cell: Cell, view: DiskView, log: Log) -> None:
    expected = _replay(view.batches)
    actual = {
        producer_id: (
            entry.producer_epoch,
            [
                (one.first_sequence, one.last_sequence, one.first_offset, one.last_offset)
                for one in entry.batches
            ],
        )
        for producer_id, entry in log.producers.producers.items()
    }
    if isinstance(view, CompactedView):
        # Of a producer that is silent the cleaner leaves the last batch; of one that has gone on
        # nothing perhaps, for a replica that does not have all yet.
        expected = {
            one: (epoch, last[-1:])
            for one, (epoch, last) in expected.items()
            if view.is_all_there or last[-1][2] not in view.filled
        }
    elif view.begins_at_zero:
        if actual != expected:
            cell.world.violate(f"{view}: producer states {actual}, a replay gives {expected}")
        return
    for producer_id, (epoch, batches) in expected.items():
        found = actual.get(producer_id)
        if found is None or found[0] != epoch or found[1][-len(batches) :] != batches:
            cell.world.violate(
                f"{view}: producer {producer_id} is {found}, a replay gives {epoch, batches}"
            )


def _check_chain(cell: Cell, view: DiskView, log: Log) -> None:
    if view.begins_at_zero:
        expected = Chain()
        for batch in view.batches:
            expected.add(batch.base_offset, batch.last_offset, batch.crc)
        found = log.fold(ChainFold).state
        if found != expected.state:
            cell.world.violate(f"{view}: the chain is {found}, a replay gives {expected.state}")


def _check_pins(cell: Cell, view: DiskView, log: Log) -> None:
    """Of a compacted log, too: who was pinned by the newest record of a key is that still."""
    partition = cell.history.partition(view.topic_partition)
    if partition.is_lossy and partition.compacted is not None:
        return  # What was cleaned by what is lost now cannot be replayed.
    if partition.topic == DELAYS and partition.compacted is not None:
        return  # Hidden records, which are nobody's newest, are pinned, too, and go.
    if log.log_directory.failure is not None:
        return  # It may have failed amid a swap, and who reads waits for the end of that.
    expected = Pins()
    start = log.log_start_offset
    for stored in read_stored(log, start, log.log_end_offset, key_of=key_as_it_is):
        for said in () if stored.batch.is_control else stored.records:
            expected.add(*said)
    found = log.fold(PinFold).since(start)
    if found != expected.since(start):
        cell.world.violate(f"{view}: pins {found}, a replay gives {expected.since(start)}")
    cell.world.count("pins compared with a replay", len(found))


def _check_epochs(cell: Cell, view: DiskView, log: Log) -> None:
    end_offset = log.log_end_offset
    beyond = [entry for entry in log.epochs.entries if entry.start_offset >= end_offset]
    if beyond and end_offset > log.log_start_offset:
        cell.world.violate(f"{view} ends at {end_offset}, and has epochs {beyond}")
    last_epoch = -1
    for batch in view.batches:
        if batch.epoch != last_epoch and batch.base_offset >= log.log_start_offset:
            last_epoch = batch.epoch
            known = log.epochs.epoch_at(batch.base_offset)
            if known != batch.epoch:
                cell.world.violate(
                    f"{view}: epoch {known} at {batch.base_offset}, the batch has {batch.epoch}: "
                    f"{log.epochs.entries}"
                )


def check_logs(cell: Cell) -> None:
    """At rest: what brokers read is what was committed, on every replica."""
    for node in cell.nodes.values():
        for view in cell.history.disks.get(node.name, {}).values():
            log = view.log
            if log is None:
                continue
            if isinstance(view, CompactedView):
                if not cell.history.partitions[view.topic_partition].is_lossy:
                    view.check(node)
                continue
            start = max(log.log_start_offset, view.start_offset)
            try:
                found = read_batches(log, start, log.log_end_offset, checks_crc=True)
            except LogError as error:
                cell.world.violate(f"{view} cannot be read: {error}")
            expected = [batch for batch in view.batches if batch.last_offset >= start]
            if found != expected:
                cell.world.violate(f"{view} reads {len(found)} batches, it got {len(expected)}")
            partition = cell.history.partitions[view.topic_partition]
            for batch in found:
                known = partition.by_offset.get(batch.base_offset)
                if known is not None and known != batch:
                    cell.world.violate(f"{view} has {batch}, committed is {known}")
            if not found and partition.end_offset > log.log_end_offset:
                cell.world.violate(f"{view} ends before {partition.end_offset}")


def check_records(cell: Cell) -> None:
    """At rest: records of idempotent producers, once and in order; acknowledged ones all there."""
    image = cell.store.image
    for key, partition in cell.history.partitions.items():
        topic = image.topics_by_id.get(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            continue
        leader = topic.partitions[key[1]].leader
        view = cell.history.disks.get(f"b{leader}", {}).get(key)
        if view is None or view.log is None or topic.internal or partition.compacted is not None:
            continue
        if topic.name == DELAYS or topic.name in OF_BROKERS:
            # What is delivered has its number twice, and is looked at by others.
            continue
        _check_numbers(cell, partition, view.log)


def _check_numbers(cell: Cell, partition: PartitionHistory, log: Log) -> None:
    idempotent = {producer.name for producer in cell.workload.producers if producer.is_idempotent}
    last: dict[str, int] = {}
    # Of what was sent once, whatever came of it: in order on each connection.
    unanswered = {producer.name for producer in cell.workload.producers if not producer.acks}
    if "large states" not in cell.extras:
        unanswered.clear()
    last_of_link: dict[tuple[str, bytes], int] = {}
    offsets: dict[tuple[str, int], int] = {}
    position = log.log_start_offset
    while position < log.log_end_offset:
        result = log.read_cold(
            position, READ_BYTES, max_offset=log.log_end_offset, at_least_one_batch=True
        )
        for buffer in result.buffers:
            for header in iter_batch_headers(buffer, 0, len(buffer)):
                for record in decode_batch(buffer, header.position):
                    assert record.value is not None
                    fields = bytes(record.value).split(b"/")
                    producer, number = fields[0].decode(), int(fields[1])
                    if producer in unanswered:
                        link = (producer, fields[2])
                        if number <= last_of_link.get(link, -1):
                            cell.world.violate(
                                f"{partition}: record {number} of {producer} at {record.offset} "
                                f"was sent before {last_of_link[link]}, on the same connection"
                            )
                        last_of_link[link] = number
                    if producer not in idempotent:
                        continue
                    offsets[(producer, number)] = record.offset
                    if number <= last.get(producer, -1) and not partition.is_lossy:
                        cell.world.violate(
                            f"{partition}: record {number} of {producer} at {record.offset} "
                            f"stands behind {last[producer]}"
                        )
                    last[producer] = number
        if result.next_offset <= position:
            break
        position = result.next_offset
    if partition.is_lossy:
        return
    for (producer, number), offset in cell.promises.acknowledged_numbers.get(
        partition.key, {}
    ).items():
        if offset >= log.log_start_offset and offsets.get((producer, number)) != offset:
            cell.world.violate(
                f"{partition}: record {number} of {producer}, acknowledged at {offset}, is at "
                f"{offsets.get((producer, number))}"
            )


def open_ends(cell: Cell) -> list[str]:
    """What is not as it should be in a healthy cell at rest; empty when all is well."""
    found: list[str] = []
    image = cell.store.image
    for node in cell.nodes.values():
        if not node.is_up or node.is_stopping:
            found.append(f"{node.name} is not up")
            continue
        assert node.services is not None
        if node.services.image.version != image.version:
            found.append(f"{node.name} is at version {node.services.image.version}")
        broker = image.brokers.get(node.node_id)
        if broker is None or broker.is_fenced or broker.in_controlled_shutdown:
            found.append(f"{node.name} is registered as {broker}")
        if node.services.deletion_permit.why_nothing:
            reason = node.services.deletion_permit.why_nothing
            found.append(f"{node.name} deletes nothing: {reason}")
    for topic in image.topics_by_id.values():
        for index, state in enumerate(topic.partitions):
            name = f"{topic.name}-{index}"
            if state.leader < 0:
                found.append(f"{name} has no leader: {state}")
                continue
            found += _strayed(image, topic, index)
            if set(state.isr) != set(state.replicas) or state.elr:
                found.append(f"{name} has an ISR of {state.isr}, ELR {state.elr}")
            found += _rotten(cell, name, (topic.topic_id, index), state.replicas)
            if state.adding_replicas or state.removing_replicas:
                found.append(f"{name} is being reassigned: {state}")
            found += _open_ends_of_disks(cell, name, (topic.topic_id, index), state.replicas)
            for replica in state.replicas:
                node = cell.nodes[replica]
                view = cell.history.disks.get(node.name, {}).get((topic.topic_id, index))
                if view is not None and node.is_up:
                    found += cell.history.retention.open_ends(node, name, view)
            found += _not_deleted(cell, name, (topic.topic_id, index), state.replicas, state.leader)
    for producer in cell.workload.producers:
        if producer.unsettled_count:
            found.append(f"{producer.name} waits for {producer.unsettled_count} batches")
    for administrator in cell.workload.administrators:
        if not administrator.is_settled:
            found.append(f"{administrator.name} is not done")
    if "large states" in cell.extras:
        found += large_states.orphans(cell)
    if "delays" in cell.extras:
        found += cell.history.delays.open_ends()
    if "retries" in cell.extras:
        found += cell.history.retries.open_ends()
    return found + _open_ends_of_readers(cell)


def _strayed(image: MetadataImage, topic: TopicImage, index: int) -> list[str]:
    """A subscription's partition that is not where its source's is."""
    source = None if topic.source_id is None else image.topics_by_id.get(topic.source_id)
    if source is None:
        return []
    own, of_source = topic.partitions[index], source.partitions[index]
    if own.replicas == of_source.replicas and own.leader == of_source.leader:
        return []
    return [f"{topic.name}-{index} is not where its source is: {own}, {of_source}"]


def _rotten(cell: Cell, name: str, key: TopicPartition, replicas: tuple[int, ...]) -> list[str]:
    partition = cell.history.partitions.get(key)
    rotten = {} if partition is None else partition.rotten
    return [
        f"{name} on {node} is damaged at {batch.base_offset}"
        for node, batch in rotten.items()
        if int(node[1:]) in replicas and node in cell.history.disks
    ]


def _open_ends_of_disks(
    cell: Cell, name: str, key: TopicPartition, replicas: tuple[int, ...]
) -> list[str]:
    found = []
    partition = cell.history.partitions.get(key)
    end_offset = 0 if partition is None else partition.end_offset
    for replica in replicas:
        view = cell.history.disks.get(f"b{replica}", {}).get(key)
        log = None if view is None else view.log
        if log is None:
            if end_offset:
                found.append(f"{name} is missing on b{replica}")
        elif (log.log_end_offset, log.high_watermark) != (end_offset, end_offset):
            found.append(
                f"{name} on b{replica} ends at {log.log_end_offset}, high watermark "
                f"{log.high_watermark}, committed {end_offset}"
            )
    return found


def _not_deleted(
    cell: Cell, name: str, key: TopicPartition, replicas: tuple[int, ...], leader: int
) -> list[str]:
    """Who still has what was deleted at the leader."""
    starts = {}
    for replica in replicas:
        view = cell.history.disks.get(f"b{replica}", {}).get(key)
        if view is not None and view.log is not None:
            starts[replica] = view.log.log_start_offset
    deleted = starts.get(leader, 0)
    return [
        f"{name} on b{replica} begins at {start}, with its leader at {deleted}"
        for replica, start in starts.items()
        if start < deleted
    ]


def _open_ends_of_readers(cell: Cell) -> list[str]:
    found: list[str] = []
    workload = cell.workload
    for reader in (*workload.readers, *workload.consumers(), *workload.maps):
        found += reader.open_ends()
    for member in workload.consumers():
        if not member.is_settled:
            found.append(f"{member.name} is {member.state}")
    for instance in workload.instances:
        found += instance.open_ends()
    return found
