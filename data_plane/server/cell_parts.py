"""The parts of a broker that has others, made and joined; a part of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from data_plane.broker.cell.broker_lifecycle import Membership
from data_plane.broker.cell.controller_settings import controller_settings
from data_plane.broker.cell.metadata_follower import MetadataFollower
from data_plane.broker.replicas.failed_directories import FailedDirectories
from data_plane.broker.replicas.isr_changes import IsrManager
from data_plane.broker.replicas.log_ends import LogEndReporter
from data_plane.broker.replicas.read_index import ReadIndex
from data_plane.broker.replicas.replica_repair import ReplicaRepair
from data_plane.broker.replicas.replication import ReplicationManager
from data_plane.broker.request.metrics import BrokerCollector
from data_plane.broker.services import Services
from data_plane.cell.controller import Controller
from data_plane.server.configuration import BrokerConfig
from data_plane.server.entry import Entry, image_file, producer_id_file
from data_plane.server.ports import Ports


def join_cell(
    services: Services,
    settings: BrokerConfig,
    ports: Ports,
    entry: Entry,
    collector: BrokerCollector,
) -> None:
    """Membership starts last: once heartbeats are sent this broker may be elected."""
    assert entry.broker is not None
    file = image_file(settings, ports)
    follower = MetadataFollower(
        services, ports.now_ms, lambda image: file.write(image, services.store.identity)
    )
    member = Membership(
        services,
        ports.now_ms,
        follower,
        Controller(controller_settings(services.config)),
        entry.broker,
        entry.clean_broker_epoch,
    )
    services.deletion_guard.image_doubt = member.image_doubt
    isr_manager = IsrManager(services)
    manager = ReplicationManager(services)
    failed = FailedDirectories(
        services, services.partitions.min_insync_replicas, manager.directory_failed
    )
    repair = ReplicaRepair(
        services, services.partitions.min_insync_replicas, manager.damage_changed
    )
    reporter = LogEndReporter(services, entry.broker.incarnation_id)
    index = ReadIndex(services, ports.make_peers(services), member.is_image_current)
    producer_ids = services.producer_ids
    ids_file = producer_id_file(settings, ports)

    def keep_producer_ids(broker_epoch: int | None) -> None:
        if broker_epoch is not None:
            ids_file.write(producer_ids.unused, broker_epoch)

    services.metadata_follower = follower
    services.membership = member
    services.read_index = index
    services.kept_at_stop += [lambda broker_epoch: follower.write_now(), keep_producer_ids]
    services.components[:0] = [follower]
    # Damage that is known is looked at before anything is fetched.
    services.components += [isr_manager, repair, manager, failed, reporter, index, member]
    manager.add_metrics(collector)
    repair.add_metrics(collector)
    _add_metrics(collector, services, follower, member, isr_manager)


def _add_metrics(
    collector: BrokerCollector,
    services: Services,
    follower: MetadataFollower,
    member: Membership,
    isr_manager: IsrManager,
) -> None:
    gauges: list[tuple[str, str, Callable[[], Any]]] = [
        ("tidewheel_metadata_version", "Metadata version.", lambda: services.image.version),
        ("tidewheel_is_controller", "1: this is the controller.", lambda: member.is_controller),
        ("tidewheel_is_active", "1: registered, not fenced.", lambda: member.is_active),
    ]
    for name, documentation, read in gauges:
        collector.add_gauge(name, documentation, read)
    totals: list[tuple[str, str, Callable[[], int]]] = [
        (
            "tidewheel_isr_expands",
            "Followers taken into an ISR.",
            lambda: isr_manager.expands_count,
        ),
        ("tidewheel_isr_shrinks", "ISRs left by followers.", lambda: isr_manager.shrinks_count),
        (
            "tidewheel_metadata_store_outages",
            "Times that the metadata store could not be reached.",
            lambda: follower.outages_count,
        ),
        (
            "tidewheel_missed_heartbeats",
            "Heartbeats without an answer.",
            lambda: member.missed_heartbeats_count,
        ),
    ]
    for name, documentation, read_total in totals:
        collector.add_total(name, documentation, read_total)
