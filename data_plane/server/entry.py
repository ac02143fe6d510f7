"""How a process becomes the broker of its number: the steps before the logs are opened.

A broker that is alone takes its data directories and opens the metadata beside them. Blocking work,
done once; the server runs it before the loop has anything else to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_plane.broker.services import Config
from data_plane.cell.identity import claim_directories, cluster_id_from
from data_plane.cell.local_store import LocalMetadataStore
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.metadata_store import MetadataStore
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.server.configuration import BrokerConfig
from data_plane.server.ports import Ports

NEVER_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where clients and where other brokers reach this one, with the ports really taken."""

    host: str
    port: int
    inter_broker_host: str = ""
    inter_broker_port: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """What `enter_cell` has got hold of. `make_services` takes it over; else `close` it."""

    addresses: Addresses
    store: MetadataStore
    image: MetadataImage
    logs: LogManager


def enter_cell(settings: BrokerConfig, ports: Ports, addresses: Addresses) -> Entry:
    """Take the data directories and learn the metadata.

    Raises IdentityMismatch, StoreError, OSError."""
    new_cluster_id = cluster_id_from(ports.random.randbytes(16))
    shared = ports.shared_store
    cluster_id = settings.cluster_id if shared is None else shared.read().cluster_id
    identity = claim_directories(
        ports.fs,
        [str(directory) for directory in settings.data_directories],
        cluster_id=cluster_id,
        node_id=settings.node_id,
        new_cluster_id=new_cluster_id,
    )
    store: MetadataStore
    if shared is None:
        data_directory = str(settings.data_directories[0])
        store = LocalMetadataStore(ports.fs, data_directory, identity.cluster_id)
    else:
        store = shared
    image = store.read()
    return Entry(addresses, store, image, _logs(settings, ports, image))


def _logs(settings: BrokerConfig, ports: Ports, image: MetadataImage) -> LogManager:
    config = settings.effective()
    config.update(image)
    return LogManager(
        settings.data_directories,
        fs=ports.fs,
        default_config=config.log_config({}),
        now_ms=ports.now_ms(),
        open_segments_max=ports.open_segments_max,
        maintenance=maintenance_config(config),
    )


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
