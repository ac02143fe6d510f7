"""How a process becomes the broker of its number: the steps before the logs are opened.

A broker that is alone takes its data directories and opens the metadata beside them. A member of a
cell asks the store, and registers:

    image on disk ─► read the store ─► claim and lock the directories ─► logs whole? ─► register
                          │ no answer
                          └─► logs whole: begin with the image on disk, register later
                              else: wait for the store; what this disk acknowledged may be gone

Only then are logs opened and clients let in, so that a broker whose disk may have lost something
has left every ISR before it could vouch for anything.

Invariants
- The directories are locked before anything is registered: a second process on the same data
  gives up without a trace.
- A number whose session somebody else renews is not taken.
- Nothing is deleted or opened here.

Everything blocks; in a cell it runs in a thread. Deliberately absent: trying again after
StoreUnavailable, which is the caller's, with whatever pauses he likes.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from data_plane.broker.cell.controller_settings import controller_settings
from data_plane.broker.replicas.log_maintenance import cleaner_backoff_ms
from data_plane.broker.services import Config
from data_plane.cell.features import incarnation_with
from data_plane.cell.identity import (
    IdentityMismatch,
    claim_directories,
    cluster_id_from,
)
from data_plane.cell.image_file import ImageFile
from data_plane.cell.local_store import SNAPSHOT_PREFIX, LocalMetadataStore
from data_plane.cell.metadata import BrokerImage, Endpoint, MetadataImage
from data_plane.cell.metadata_store import MetadataStore, StoreUnavailable, VersionConflict
from data_plane.cell.producer_id_file import ProducerIdFile, Ranges
from data_plane.cell.registration import decide_registration
from data_plane.log.maintenance import MaintenanceConfig
from data_plane.log.manager import LogManager
from data_plane.log.vouched_date import VouchedDate
from data_plane.server.configuration import BrokerConfig
from data_plane.server.ports import Ports

# Somebody else may commit in between; hardly so often in a row.
REGISTRATION_ATTEMPTS = 20
# How often the store is asked again for the outcome of the registration.
LOST_ANSWERS_MAX = 3


class NodeIdTaken(Exception):
    """Another process is the broker of this number, and lives."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where clients and where other brokers reach this one, with the ports really taken."""

    host: str
    port: int
    inter_broker_host: str = ""
    inter_broker_port: int = 0
    # All for clients, by name, if there are several.
    listeners: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """What `enter_cell` has got hold of. `make_services` takes it over; else `close` it.

    - `broker`: this broker as it is, or will be, registered; None when it is alone.
    - `is_current`: the image is the store's; with False it is the one on disk, which may be old,
      and this incarnation is not registered yet.
    - `kept_producer_ids`: what may be given out without the store, when it cannot be reached.
    - `clean_broker_epoch`: under which the last process here wrote, if nothing of it is lost.
    """

    addresses: Addresses
    store: MetadataStore
    image: MetadataImage
    logs: LogManager
    broker: BrokerImage | None = None
    is_current: bool = True
    clean_broker_epoch: int | None = None
    kept_producer_ids: Ranges = ()

    def close(self, now_ms: int) -> None:
        """Let go of the directories."""
        self.logs.close(now_ms, clean=False)


def new_incarnation_id(ports: Ports) -> str:
    """One for each process."""
    return uuid.UUID(int=ports.random.getrandbits(128)).hex


def enter_cell(
    settings: BrokerConfig, ports: Ports, addresses: Addresses, incarnation_id: str = ""
) -> Entry:
    """Take the data directories, learn the metadata and, in a cell, register.

    A process that tries again names the same `incarnation_id`: its first attempt may have
    registered it without an answer, and another incarnation would count as one that has lost
    records. Without one it is made here.

    Raises StoreUnavailable (try again), NodeIdTaken, RegistrationRefused, IdentityMismatch,
    DirectoryLocked, other StoreErrors, OSError."""
    if ports.shared_store is None:
        return _enter_alone(settings, ports, addresses)
    incarnation_id = incarnation_id or new_incarnation_id(ports)
    return _Entrance(settings, ports, ports.shared_store, addresses, incarnation_id).enter()


def image_file(settings: BrokerConfig, ports: Ports) -> ImageFile:
    """The copy of the cell's image on this broker's disk."""
    return ImageFile(ports.fs, str(settings.data_directories[0]))


def producer_id_file(settings: BrokerConfig, ports: Ports) -> ProducerIdFile:
    """The producer ids that a life without the store may go on with."""
    return ProducerIdFile(ports.fs, str(settings.data_directories[0]))


def _enter_alone(settings: BrokerConfig, ports: Ports, addresses: Addresses) -> Entry:
    file = image_file(settings, ports)
    if file.read() is not None:
        raise IdentityMismatch(
            f"{file.path}: this is the data of a broker of a cell, whose metadata is in Postgres; "
            "give its metadata.store.url"
        )
    unreadable: dict[str, OSError] = {}
    identity = claim_directories(
        ports.fs,
        _directories(settings),
        cluster_id=settings.cluster_id,
        node_id=settings.node_id,
        new_cluster_id=cluster_id_from(ports.random.randbytes(16)),
        on_unreadable=unreadable.__setitem__,
    )
    store = LocalMetadataStore(
        ports.fs, _directories(settings)[0], identity.cluster_id, ports.features
    )
    image = store.read()
    return Entry(addresses, store, image, _logs(settings, ports, image, unreadable))


class _Entrance:
    """One attempt to enter a cell."""

    def __init__(
        self,
        settings: BrokerConfig,
        ports: Ports,
        store: MetadataStore,
        addresses: Addresses,
        incarnation_id: str,
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._store = store
        self._addresses = addresses
        self._file = image_file(settings, ports)
        self._broker = BrokerImage(
            settings.node_id,
            addresses.host,
            addresses.port,
            settings.rack,
            addresses.inter_broker_host,
            addresses.inter_broker_port,
            settings.host_id or addresses.host,
            incarnation_id=incarnation_with(incarnation_id, ports.features),
            is_fenced=True,
            features=tuple(sorted(ports.features)),
            listeners=addresses.listeners,
        )

    def enter(self) -> Entry:
        settings, ports = self._settings, self._ports
        self._refuse_metadata_of_its_own()
        known = self._file.read()
        unavailable: StoreUnavailable | None = None
        try:
            image = self._store.read()
        except StoreUnavailable as error:
            if known is None:
                raise
            unavailable = error
            image = known[0]
        if settings.cluster_id is not None and settings.cluster_id != image.cluster_id:
            raise IdentityMismatch(
                f"the metadata store is that of the cell {image.cluster_id}, but cluster.id is "
                f"{settings.cluster_id}"
            )
        unreadable: dict[str, OSError] = {}
        claim_directories(
            ports.fs,
            _directories(settings),
            cluster_id=image.cluster_id,
            node_id=settings.node_id,
            new_cluster_id=image.cluster_id,
            on_unreadable=unreadable.__setitem__,
        )
        logs = _logs(settings, ports, image, unreadable)
        try:
            logs.lock()
            clean_epoch = logs.clean_broker_epoch()
            if unavailable is None:
                self._refuse_if_alive(image, None if known is None else known[0])
                image = self._register(image, clean_epoch)
                logs.set_broker_epoch(image.brokers[settings.node_id].broker_epoch)
                self._file.write(image, self._store.identity)
                kept: Ranges = ()
            else:
                if not logs.was_stopped_cleanly():
                    # A killed process has lost nothing, but its image on disk may be a second old:
                    # it would lead on with an ISR that it has since made larger.
                    clean_epoch = None
                epoch = self._check_begins_alone(image, clean_epoch, unavailable)
                kept = producer_id_file(settings, ports).take(epoch)
        except BaseException:
            logs.close(ports.now_ms(), clean=False)
            raise
        return Entry(
            self._addresses,
            self._store,
            image,
            logs,
            image.brokers[settings.node_id] if unavailable is None else self._broker,
            unavailable is None,
            clean_epoch,
            kept,
        )

    def _refuse_metadata_of_its_own(self) -> None:
        folder = f"{_directories(self._settings)[0]}/metadata"
        try:
            names = self._ports.fs.list_directory(folder)
        except FileNotFoundError:
            return
        if any(name.startswith(SNAPSHOT_PREFIX) for name in names):
            raise IdentityMismatch(
                f"{folder}: this is the data of a broker that is alone and keeps its metadata "
                "here; it cannot join a cell. Take metadata.store.url away, or another data "
                "directory"
            )

    def _check_begins_alone(
        self, image: MetadataImage, clean_epoch: int | None, unavailable: StoreUnavailable
    ) -> int:
        """Whether this disk has all that the image says of it, although nobody can be asked; the
        broker epoch of the last life."""
        known = image.brokers.get(self._settings.node_id)
        if known is None or clean_epoch is None or known.broker_epoch != clean_epoch:
            raise StoreUnavailable(
                "the last stop was not clean, so this broker must register before it serves: "
                f"{unavailable}"
            ) from unavailable
        return clean_epoch

    def _refuse_if_alive(self, image: MetadataImage, on_disk: MetadataImage | None) -> None:
        """Raises NodeIdTaken when another process renews the session of this number."""
        node_id = self._settings.node_id
        other = image.brokers.get(node_id)
        if other is None or other.is_fenced or other.incarnation_id == self._broker.incarnation_id:
            return
        before = None if on_disk is None else on_disk.brokers.get(node_id)
        if before is not None and before.incarnation_id == other.incarnation_id:
            # It ran in this directory, which is locked by this process now.
            return
        config = self._settings.effective()
        interval_ms = config.get_int("broker.heartbeat.interval.ms")
        timeout_ms = config.get_int("broker.session.timeout.ms")
        renewals = self._renew(timeout_ms)
        for _ in range(-(-timeout_ms // interval_ms)):
            self._ports.sleep_ms(interval_ms)
            renewals += 1
            if self._renew(timeout_ms) != renewals:
                raise NodeIdTaken(
                    f"broker {node_id} of this cell is running already, at "
                    f"{other.host}:{other.port}: give this one another node.id"
                )

    def _renew(self, timeout_ms: int) -> int:
        """Renew the session of this number; how often that was done by anybody."""
        node_id, incarnation_id = self._broker.node_id, self._broker.incarnation_id
        heartbeat = self._store.heartbeat(
            node_id, incarnation_id, timeout_ms, wants_controller=False
        )
        return heartbeat.sessions[node_id].renewals

    def _register(self, image: MetadataImage, clean_epoch: int | None) -> MetadataImage:
        """The image with this incarnation in it."""
        request_id = uuid.UUID(int=self._ports.random.getrandbits(128)).hex
        lost_answers = 0
        for _ in range(REGISTRATION_ATTEMPTS):
            config = self._settings.effective()
            config.update(image)
            settings = controller_settings(config)
            changes = decide_registration(image, self._broker, clean_epoch, settings)
            if not changes:
                return image
            try:
                return self._store.apply(changes, image.version, request_id)
            except VersionConflict:
                image = self._store.read()
            except StoreUnavailable:
                lost_answers += 1
                if lost_answers > LOST_ANSWERS_MAX:
                    raise
                self._ports.sleep_ms(100 * lost_answers)
        raise StoreUnavailable("other brokers are always faster; this one could not register")


def _directories(settings: BrokerConfig) -> list[str]:
    return [str(directory) for directory in settings.data_directories]


def _logs(
    settings: BrokerConfig,
    ports: Ports,
    image: MetadataImage,
    unreadable: Mapping[str, OSError],
) -> LogManager:
    config = settings.effective()
    config.update(image)
    logs = LogManager(
        settings.data_directories,
        fs=ports.fs,
        default_config=config.log_config({}),
        now_ms=ports.now_ms(),
        open_segments_max=ports.open_segments_max,
        fold_factories=ports.fold_factories,
        maintenance=maintenance_config(config),
        # Of nobody yet: see deletion_guard.py.
        vouched_date=VouchedDate(booted_ms=ports.booted_ms),
    )
    for path, error in unreadable.items():
        logs.leave_alone(path, error)
    return logs


def maintenance_config(config: Config) -> MaintenanceConfig:
    """How often logs are looked at, from the broker's properties."""
    return MaintenanceConfig(
        retention_check_interval_ms=config.get_int("log.retention.check.interval.ms"),
        checkpoint_interval_ms=config.get_int("log.flush.offset.checkpoint.interval.ms"),
        producer_expiration_check_interval_ms=config.get_int(
            "producer.id.expiration.check.interval.ms"
        ),
        cleaner_backoff_ms=cleaner_backoff_ms(config),
        cleaner_buffer_bytes=config.get_int("log.cleaner.dedupe.buffer.size"),
        scrub_interval_ms=config.get_int("log.scrub.interval.ms"),
        scrub_bytes_per_second=config.get_int("log.scrub.bytes.per.second"),
    )
