"""The composition root: every part of a broker, made and joined.

    entry = enter_cell(settings, ports, addresses)      blocks; server/entry.py
    services = make_services(settings, ports, entry)    opens the logs
    services.start(now_ms)                              begins with heartbeats, in a cell
    ControlledShutdown(…).begin(now_ms)                 in a cell; goes on serving until it is done
    services.stop(now_ms); close_services(services, now_ms)

The server calls it with the real world, the simulator with its own: all that a broker has of the
world comes in `Ports`. No decisions here, no I/O beyond opening what the parts keep on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from data_plane.broker.admin import handlers
from data_plane.broker.authentication import sasl_handlers
from data_plane.broker.authentication.authentication import Authentication
from data_plane.broker.cell.deletion_guard import DeletionGuard
from data_plane.broker.cell.metadata_writer import MetadataWriter
from data_plane.broker.cell.tenant_deletions import TenantDeletions
from data_plane.broker.config.effective import EffectiveConfig
from data_plane.broker.coordinators import group_handlers
from data_plane.broker.coordinators.groups import GroupService
from data_plane.broker.fetch import (
    describe_delayed,
    fetch_handler,
    list_offsets,
    offset_for_leader_epoch,
)
from data_plane.broker.fetch.open_fetches import OpenFetches
from data_plane.broker.produce import init_producer_id, produce_handler
from data_plane.broker.produce.init_producer_id import ProducerIds
from data_plane.broker.quotas.quota_manager import BrokerQuotas
from data_plane.broker.quotas.quota_metrics import add_quota_metrics
from data_plane.broker.quotas.share_exchange import ShareExchange
from data_plane.broker.replicas.due_openings import DueOpenings
from data_plane.broker.replicas.fsync_batches import RETRY_MS as SYNC_RETRY_MS
from data_plane.broker.replicas.fsync_batches import GroupCommit
from data_plane.broker.replicas.log_maintenance import LogMaintenance
from data_plane.broker.replicas.stray_logs import delete_strays
from data_plane.broker.replicas.topic_partitions import TopicPartitions
from data_plane.broker.request import api_versions
from data_plane.broker.request.api import HandlerTable
from data_plane.broker.request.metrics import BrokerCollector, BrokerCounters, make_registry
from data_plane.broker.request.timers import TimerQueue
from data_plane.broker.request.wall_clock import WallClock
from data_plane.broker.services import Logger, Services
from data_plane.broker.topics.topic_purges import TopicPurges
from data_plane.log.config import LogConfig
from data_plane.log.errors import LogDirFailure, LogError
from data_plane.log.manager import LogManager
from data_plane.replica.partition import Partition
from data_plane.server.configuration import BrokerConfig
from data_plane.server.entry import Entry
from data_plane.server.ports import Ports
from data_plane.server.start_progress import StartProgress


def make_handlers() -> HandlerTable:
    """Everything that this broker answers."""
    table = HandlerTable()
    for module in (
        api_versions,
        sasl_handlers,
        produce_handler,
        fetch_handler,
        list_offsets,
        offset_for_leader_epoch,
        describe_delayed,
        init_producer_id,
        group_handlers,
    ):
        module.register(table)
    handlers.register_admin(table)
    return table


def make_services(settings: BrokerConfig, ports: Ports, entry: Entry) -> Services:
    """Open the logs and join the parts, on the loop. The listeners and `services.start` are the
    caller's. Raises LogError when a log cannot be opened."""
    image = entry.image
    config = settings.effective()
    config.update(image)
    # The time from here on counts against the date that the logs know.
    begun_ms = ports.now_ms()
    _open_logs(ports, entry, config)
    counters = BrokerCounters()
    collector = BrokerCollector(counters)
    timers = TimerQueue()
    group_commit = _make_group_commit(ports, timers)
    wall_clock = make_wall_clock(entry, config, begun_ms)
    partitions = TopicPartitions(
        settings.node_id,
        image,
        entry.logs,
        config,
        group_commit.request_sync,
        wall_clock,
        ports.executor,
    )
    partitions.on_open_failed = _tell_of_partitions(entry.logs, ports.log)
    services = Services(
        config=config,
        store=entry.store,
        image=image,
        logs=entry.logs,
        partitions=partitions,
        handlers=make_handlers(),
        executor=ports.executor,
        counters=counters,
        metrics=make_registry(collector),
        node_id=settings.node_id,
        cluster_id=image.cluster_id,
        random=ports.random,
        log=ports.log,
        advertised_host=entry.addresses.host,
        advertised_port=entry.addresses.port,
        advertised_listeners=entry.addresses.listeners,
        rack=settings.rack,
        timers=timers,
        turns=ports.turns,
        wall_clock=wall_clock,
        features=ports.features,
        loop_bounds=ports.loop_bounds,
    )
    if ports.store_executor is not None:
        services.store_executor = ports.store_executor
    if ports.read_executor is not None:
        services.read_executor = ports.read_executor
    services.peers = ports.make_peers(services)
    services.feature_peers = ports.make_peers(services)
    services.metadata = MetadataWriter(services, ports.now_ms)
    _take_over_logs(services, ports, entry)
    # Before anything is stored.
    now_ms = ports.now_ms()
    wall_clock.observe(now_ms, now_ms + ports.ahead_ms())
    _add_components(services, ports, entry, collector)
    if entry.broker is not None:
        # A broker that is alone starts faster without it.
        from data_plane.server.cell_parts import join_cell

        join_cell(services, settings, ports, entry, collector)
    collector.add_total(
        "tidewheel_group_commits", "Group-committed syncs.", lambda: group_commit.syncs_count
    )
    for plug_in in ports.plug_ins:
        plug_in(services)
    return services


def _open_logs(ports: Ports, entry: Entry, config: EffectiveConfig) -> None:
    log, logs = ports.log, entry.logs
    topics_by_id = entry.image.topics_by_id

    def config_of(topic_id: UUID) -> LogConfig:
        """What a log's topic has set, as far as this image knows it."""
        topic = topics_by_id.get(topic_id)
        if topic is None or not topic.configs:
            # One for all of them.
            return logs.default_config
        return config.log_config(topic.configs)

    progress = StartProgress(log, ports.now_ms)
    for failure in logs.start(ports.now_ms(), progress.opened, config_of):
        log.error("log_directory_offline", directory=failure.directory, reason=failure.reason)


def make_wall_clock(entry: Entry, config: EffectiveConfig, begun_ms: int) -> WallClock:
    """With what the logs, which have been opened since `begun_ms`, know of the date."""
    logs = entry.logs
    # Other brokers may have what this one does not.
    is_empty = not entry.image.topics_by_id and not logs.partition_ids()
    return WallClock(
        config.get_int("clock.jump.max.ms"),
        config.get_int("clock.settle.ms"),
        follows_store=entry.broker is not None,
        known_offset_ms=logs.vouched_date.known_offset_ms(begun_ms),
        has_past=not is_empty or not entry.is_current or logs.has_unread_directories,
    )


def _make_group_commit(ports: Ports, timers: TimerQueue) -> GroupCommit:
    def sync_failed(partition: Partition, error: BaseException) -> None:
        ports.log.error(
            "sync_failed", topic=partition.topic, partition=partition.index, error=repr(error)
        )

    def retry_sync(again: Callable[[], None]) -> None:
        timers.schedule(ports.now_ms() + SYNC_RETRY_MS, lambda _: again())

    return GroupCommit(
        ports.executor,
        lambda partition: Path(partition.log.log_directory.path),
        sync_failed,
        retry_sync,
    )


def _take_over_logs(services: Services, ports: Ports, entry: Entry) -> None:
    """Have them configured as the image says, and delete those of topics that are gone."""
    partitions = services.partitions
    partitions.configure_logs()
    partitions.is_image_old = not entry.is_current
    if entry.is_current:
        # An image that may be old does not know all topics.
        strays = delete_strays(entry.logs, entry.image, services.node_id, ports.now_ms())
        for topic_id, index in strays:
            ports.log.warning("stray_log_deleted", topic_id=str(topic_id), partition=index)


def _add_components(
    services: Services, ports: Ports, entry: Entry, collector: BrokerCollector
) -> None:
    """What every broker has. The guard is first: the others ask for its permit."""
    guard = DeletionGuard(services, ports.ahead_ms)
    services.deletion_guard = guard
    services.measure_space = ports.measure_space
    services.log_threshold = ports.log_threshold
    services.producer_ids = ProducerIds(services, entry.kept_producer_ids)
    services.fetches = OpenFetches(services)
    services.partitions.leading_ones.on_hidden = services.fetches.look_up_again
    purges = TopicPurges(services)
    services.authentication = Authentication(services, ports.now_ms)
    services.groups = GroupService(services)
    services.components += [
        guard,
        LogMaintenance(services, ports.maintenance_lanes),
        purges,
        services.groups,
        services.fetches,
        services.producer_ids,
        TenantDeletions(services),
        DueOpenings(services),
    ]
    quotas = _add_quotas(services, ports, entry)
    guard.add_metrics(collector)
    collector.add_total(
        "tidewheel_purged_topics",
        "Deleted topics that this broker has purged when their time was over.",
        lambda: purges.purged_count,
    )
    _add_metrics(collector, services)
    add_quota_metrics(collector, quotas)


def _add_quotas(services: Services, ports: Ports, entry: Entry) -> BrokerQuotas:
    """With connections of its own: behind a follower's long poll a share would be late."""
    services.quotas = quotas = BrokerQuotas(
        services, ports.now_ms, ports.clock_ns, ports.thread_clock_ns
    )
    peers = None if entry.broker is None else ports.make_peers(services)
    exchange = ShareExchange(services, quotas, peers, ports.now_ms)
    quotas.on_tenants_changed = exchange.quotas_changed
    services.share_exchange = exchange
    services.components.append(exchange)
    return quotas


def _tell_of_partitions(logs: LogManager, log: Logger) -> Callable[[str, int, LogError], None]:
    """What is told of a partition that cannot be opened: nothing but what was told of its disk, for
    clients ask for it again and again."""

    def open_failed(topic: str, index: int, error: LogError) -> None:
        offline = {directory.path for directory in logs.offline_directories()}
        if not isinstance(error, LogDirFailure) or error.directory not in offline:
            log.error("partition_open_failed", topic=topic, partition=index, error=str(error))

    return open_failed


def close_services(services: Services, now_ms: int) -> None:
    """Close what `make_services` has opened, in good order, and leave the mark of a clean stop.
    Nothing runs any more; blocks."""
    membership = services.membership
    broker_epoch = None if membership is None else membership.broker_epoch_at_stop
    for keep in services.kept_at_stop:
        try:
            keep(broker_epoch)
        except OSError as error:
            services.log.error("not_kept_for_the_next_start", error=repr(error))
    services.logs.close(now_ms, broker_epoch=broker_epoch)
    services.store.close()


def _add_metrics(collector: BrokerCollector, services: Services) -> None:
    sessions = services.fetches
    authentication = services.authentication
    collector.add_total(
        "tidewheel_authentications",
        "SASL authentications that succeeded.",
        lambda: authentication.successes_count,
    )
    collector.add_total(
        "tidewheel_failed_authentications",
        "SASL authentications that failed.",
        lambda: authentication.failures_count,
    )
    gauges: list[tuple[str, str, Callable[[], Any]]] = [
        (
            "tidewheel_offline_log_directories",
            "Log directories whose disk is full or has failed.",
            lambda: len(services.logs.offline_directories()),
        ),
        ("tidewheel_topics", "Topics.", lambda: len(services.image.topics_by_id)),
        ("tidewheel_partitions_open", "Partitions in use.", lambda: len(services.partitions)),
        ("tidewheel_fetch_sessions", "Fetch sessions.", lambda: len(sessions.cache)),
        (
            "tidewheel_fetch_session_partitions",
            "Partitions that fetch sessions, and polls without one, remember.",
            lambda: sessions.kept.count,
        ),
        ("tidewheel_parked_fetches", "Long polls waiting.", lambda: len(sessions.parked)),
    ]
    for name, documentation, read in gauges:
        collector.add_gauge(name, documentation, read)
    collector.add_total(
        "tidewheel_fetch_session_evictions",
        "Fetch sessions evicted for others.",
        lambda: sessions.cache.evictions_count,
    )
    collector.add_total(
        "tidewheel_throttled_fetches",
        "Times that a partition's records were held back from a follower out of sync.",
        lambda: sessions.throttle.held_count,
    )
