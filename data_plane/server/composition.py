"""The composition root: every part of a broker, made and joined. No decisions, no I/O of its own
beyond opening what the parts keep on disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data_plane.broker import (
    admin,
    api_versions,
    fetch,
    fetch_poll,
    group_handlers,
    init_producer_id,
    list_offsets,
    log_dirs,
    log_threshold,
    offset_for_leader_epoch,
    produce,
)
from data_plane.broker.api import Executor, HandlerTable
from data_plane.broker.fetch_poll import FetchSessions
from data_plane.broker.group_commit import GroupCommit
from data_plane.broker.groups import GroupService
from data_plane.broker.init_producer_id import ProducerIds
from data_plane.broker.log_maintenance import LogMaintenance
from data_plane.broker.metadata_writer import MetadataWriter
from data_plane.broker.metrics import BrokerCollector, BrokerCounters, make_registry
from data_plane.broker.services import Config, Logger, Services
from data_plane.broker.topic_partitions import TopicPartitions
from data_plane.cell.identity import claim_directories, cluster_id_from
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.log.file_system import OsFileSystem
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.replica.partition import Partition
from data_plane.server.configuration import BrokerConfig
from data_plane.server.disk_space import measure_space
from data_plane.server.logging_setup import THRESHOLD

NEVER_MS = 1 << 62


def make_handlers() -> HandlerTable:
    """Everything that this broker answers."""
    table = HandlerTable()
    for module in (
        api_versions,
        produce,
        fetch,
        list_offsets,
        offset_for_leader_epoch,
        init_producer_id,
        group_handlers,
    ):
        module.register(table)
    admin.register_admin(table)
    return table


def maintenance_config(config: Config) -> MaintenanceConfig:
    """How often logs are looked at, from the broker's properties."""
    backoff_ms = config.get_int("log.cleaner.backoff.ms")
    return MaintenanceConfig(
        retention_check_interval_ms=config.get_int("log.retention.check.interval.ms"),
        checkpoint_interval_ms=config.get_int("log.flush.offset.checkpoint.interval.ms"),
        producer_expiration_check_interval_ms=config.get_int(
            "producer.id.expiration.check.interval.ms"
        ),
        cleaner_backoff_ms=backoff_ms if config.get_bool("log.cleaner.enable") else NEVER_MS,
    )


def make_services(
    settings: BrokerConfig,
    executor: Executor,
    maintenance_executor: Executor,
    now_ms: Callable[[], int],
    log: Logger,
    open_segments_max: int,
) -> Services:
    """Open the data directories and join the parts. Raises what the stores raise when a directory
    belongs to another broker, is in use, or cannot be read."""
    fs = OsFileSystem()
    source = random.SystemRandom()
    data_directory = str(settings.data_directories[0])
    identity = claim_directories(
        fs,
        [str(directory) for directory in settings.data_directories],
        cluster_id=settings.cluster_id,
        node_id=settings.node_id,
        new_cluster_id=cluster_id_from(source.randbytes(16)),
    )
    store = LocalMetadataStore(fs, data_directory, identity.cluster_id)
    image = store.read()
    config = settings.effective()
    config.update(image)
    logs = LogManager(
        settings.data_directories,
        fs=fs,
        default_config=config.log_config({}),
        now_ms=now_ms(),
        open_segments_max=open_segments_max,
        maintenance=maintenance_config(config),
    )
    for failure in logs.start(now_ms()):
        log.error("log_directory_offline", directory=failure.directory, reason=failure.reason)
    counters = BrokerCounters()
    collector = BrokerCollector(counters)

    def sync_failed(partition: Partition, error: BaseException) -> None:
        log.error(
            "sync_failed", topic=partition.topic, partition=partition.index, error=repr(error)
        )

    group_commit = GroupCommit(
        executor, lambda partition: Path(partition.log.log_directory.path), sync_failed
    )
    partitions = TopicPartitions(
        settings.node_id, image, logs, config.log_config, group_commit.request_sync
    )
    partitions.on_open_failed = lambda topic, index, error: log.error(
        "partition_open_failed", topic=topic, partition=index, error=str(error)
    )
    services = Services(
        config=config,
        store=store,
        image=image,
        logs=logs,
        partitions=partitions,
        handlers=make_handlers(),
        executor=executor,
        counters=counters,
        metrics=make_registry(collector),
        node_id=settings.node_id,
        cluster_id=identity.cluster_id,
        random=source,
        log=log,
        rack=settings.rack,
    )
    services.metadata = MetadataWriter(services, now_ms)
    partitions.configure_logs()
    for topic_id, index in partitions.delete_strays(now_ms()):
        log.warning("stray_log_deleted", topic_id=str(topic_id), partition=index)
    services.parts[log_dirs.PART] = measure_space
    services.parts[log_threshold.PART] = THRESHOLD
    services.parts[init_producer_id.PART] = ProducerIds(services)
    sessions = FetchSessions(services)
    services.parts[fetch_poll.PART] = sessions
    services.groups = GroupService(services)
    services.components += [
        LogMaintenance(services, maintenance_executor),
        services.groups,
        sessions,
    ]
    _add_metrics(collector, services, sessions, group_commit)
    return services


def _add_metrics(
    collector: BrokerCollector,
    services: Services,
    sessions: FetchSessions,
    group_commit: GroupCommit,
) -> None:
    gauges: list[tuple[str, str, Callable[[], Any]]] = [
        ("tidewheel_topics", "Topics.", lambda: len(services.image.topics_by_id)),
        ("tidewheel_partitions_open", "Partitions in use.", lambda: len(services.partitions)),
        ("tidewheel_fetch_sessions", "Fetch sessions.", lambda: len(sessions.cache)),
        (
            "tidewheel_fetch_session_partitions",
            "Partitions in fetch sessions.",
            sessions.cache.partitions_count,
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
        "tidewheel_group_commits", "Group-committed syncs.", lambda: group_commit.syncs_count
    )
