"""The metadata store of a cell in the server: which one it is, and a thread that waits at it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from data_plane.broker.services import Logger
from data_plane.cell.features import SupportedFeatures
from data_plane.cell.identity import read_identity
from data_plane.cell.image_file import ImageFile
from data_plane.cell.metadata_store import MetadataStore, StoreError
from data_plane.log.file_system import FileSystem
from data_plane.server.configuration import BrokerConfig, ConfigurationError

WAIT_MS = 10_000
# What was told must have been read before it is worth waiting for more; the follower's own pauses
# are bounded likewise.
READ_TIMEOUT_S = 1.0
JOIN_TIMEOUT_S = 2.0


def open_shared_store(
    settings: BrokerConfig, fs: FileSystem, log: Logger, features: SupportedFeatures
) -> MetadataStore | None:
    """The cell's store, not connected yet; None for a broker that is alone. A new one begins with
    the newest levels of `features`.

    Raises ConfigurationError, IdentityMismatch, StoreCorrupt, StoreTooNew, OSError."""
    if settings.metadata_store_url is None:
        return None
    # A broker that is alone needs no driver.
    from data_plane.cell.postgres_store import PostgresMetadataStore

    directory = str(settings.data_directories[0])
    identity = read_identity(fs, directory)
    cluster_id = settings.cluster_id or (None if identity is None else identity.cluster_id)
    if cluster_id is None:
        raise ConfigurationError(["cluster.id: a new broker of a cell needs the cell's id"])
    try:
        return PostgresMetadataStore(
            settings.metadata_store_url,
            cluster_id,
            lambda: time.monotonic_ns() // 1_000_000,
            schema=settings.metadata_store_schema,
            seen=ImageFile(fs, directory).read(),
            on_warning=lambda message: log.warning("metadata_store", message=message),
            features=features,
        )
    except ValueError as error:
        raise ConfigurationError([f"metadata.store.url: {error}"]) from error


class StoreWatch:
    """Blocks in `store.wait` and calls `on_change`, on the loop, when there is something new."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MetadataStore,
        version: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._store = store
        self._version = version
        self._on_change = on_change
        self._has_read = threading.Event()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def image_changed(self) -> None:
        """To be called after each change of the image."""
        self._has_read.set()

    def stop(self) -> None:
        """Not to be woken any more. The store's `close` ends a wait that is under way."""
        self._is_stopped.set()
        self._has_read.set()

    def join(self) -> None:
        self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            version = self._version()
            try:
                has_news = self._store.wait(version, WAIT_MS)
            except StoreError:
                # The store paces its waits while it cannot be reached; heartbeats tell of it.
                continue
            if not has_news or self._is_stopped.is_set():
                continue
            self._has_read.clear()
            if self._version() != version:
                # It may have been this broker's own commit that woke the wait. Nothing is left to
                # read then, and nobody would say that it has been read.
                continue
            try:
                self._loop.call_soon_threadsafe(self._on_change)
            except RuntimeError:
                # The loop is closed: the process is on its way out.
                return
            self._has_read.wait(READ_TIMEOUT_S)
