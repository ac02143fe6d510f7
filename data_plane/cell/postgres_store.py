"""The metadata store in Postgres: what the brokers of a cell share.

The database holds snapshot, feed and leases (migrations/0001_cell.sql); deciding and applying stay
here, in the same pure functions as everywhere. So a commit is checked by this process on its own
copy of the image, at exactly the version that the commit names, and the database only has to answer
"was that still the version?". See docs/adr/0009-metadata-in-postgres.md.

Threads: three connections, each with its lock. `apply`, `feed` and `read` share one; `heartbeat`
has its own, because a lease must not wait for a commit; so has `wait`, which listens.

Invariants
- One call is one statement for `apply` and `heartbeat`, and a bounded time for all.
- Every answer is held against what was seen before (`Lineage`): no call succeeds on a store that
  is not the one it was, or went back.
- `_image` is a version of the store's image, exactly; it is replaced, never changed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any, LiteralString

from data_plane.cell.change_codec import decode_change, encode_changes
from data_plane.cell.changes import Change, InvalidChange, apply_changes
from data_plane.cell.features import SUPPORTED_FEATURES, SupportedFeatures
from data_plane.cell.metadata import MetadataImage, decode_image, encode_image
from data_plane.cell.metadata_store import (
    FEED_COMMITS_KEPT,
    BrokerSession,
    Commit,
    ControllerLease,
    FeedTruncated,
    Heartbeat,
    StaleControllerEpoch,
    StoreCorrupt,
    StoreTooNew,
    StoreUnavailable,
    StoreWentBack,
    VersionConflict,
    decoding,
)
from data_plane.cell.postgres_connection import (
    REPLY_TIMEOUT_MS,
    Connection,
    PostgresLink,
    Row,
)
from data_plane.cell.postgres_schema import Lineage, prepare

DEFAULT_SCHEMA = "tidewheel_cell"
# The commit with a number that this divides takes the snapshot: exactly one broker, without talk.
# Reading the image then takes one snapshot and at most this many commits.
SNAPSHOT_EVERY_COMMITS = 512
# How often `wait` looks for itself, should a notification have got lost. Heartbeats say soon enough
# that there is something new; this is for whoever sends none.
POLL_INTERVAL_MS = 5000
# How soon `wait` notices that the store has been closed.
CLOSE_NOTICED_MS = 250
# A snapshot can be replaced, and a store recovered, between two statements; hardly twice in a row.
ATTEMPTS = 3

APPLY: LiteralString = (
    "SELECT outcome, current_seq, current_epoch FROM apply_commit(%s, %s, %s, %s, %s)"
)
HEARTBEAT: LiteralString = (
    "SELECT current_identity::text, current_seq, lease_node_id, lease_incarnation_id, lease_epoch,"
    " all_sessions, store_ms FROM heartbeat(%s, %s, %s, %s * interval '1 ms', %s)"
)
VERSION: LiteralString = "SELECT identity::text, seq FROM cell"
SNAPSHOT: LiteralString = (
    "SELECT cell.identity::text, cell.seq, snapshots.image::text FROM cell"
    " LEFT JOIN snapshots ON true ORDER BY snapshots.seq DESC NULLS LAST LIMIT 1"
)
FEED: LiteralString = (
    "SELECT cell.identity::text, cell.seq, commits.seq, commits.request_id,"
    " commits.controller_epoch, commits.changes::text"
    " FROM cell LEFT JOIN commits ON commits.seq > %s ORDER BY commits.seq"
)


class PostgresMetadataStore:
    """The MetadataStore adapter for a cell of several brokers. Makes no connection by itself: a
    broker can be built, and start from its image file, while the database is down."""

    def __init__(
        self,
        dsn: str,
        cluster_id: str,
        clock_ms: Callable[[], int],
        *,
        schema: str = DEFAULT_SCHEMA,
        seen: tuple[MetadataImage, str] | None = None,
        reply_timeout_ms: int = REPLY_TIMEOUT_MS,
        on_warning: Callable[[str], None] = lambda message: None,
        features: SupportedFeatures = SUPPORTED_FEATURES,
    ) -> None:
        """`clock_ms` is a clock that never goes back. A new store gets the newest levels of
        `features`. `seen` is what the broker's image file
        holds: the image and the identity of the store that it came from. No call waits for the
        database for longer than `reply_timeout_ms`, or two seconds for a connection. Raises
        ValueError when `dsn` or `schema` make no sense."""
        self._schema = schema
        self._clock_ms = clock_ms
        self._on_warning = on_warning
        self._features = features
        self._image = None if seen is None else seen[0]
        identity, version = ("", 0) if seen is None else (seen[1], seen[0].version)
        self._lineage = Lineage(cluster_id, identity, version)
        self._closed = threading.Event()
        # Ends what `wait` paces itself by.
        self._may_retry = threading.Event()

        def link(on_connect: Callable[[Connection], None]) -> PostgresLink:
            return PostgresLink(
                dsn, schema, clock_ms, on_connect, self._database_is_back, reply_timeout_ms
            )

        self._commits = link(self._accept)
        self._leases = link(self._accept)
        self._waiter = link(self._accept_and_listen)

    @property
    def is_shared(self) -> bool:
        return True

    @property
    def identity(self) -> str:
        return self._lineage.identity

    def read(self) -> MetadataImage:
        with self._commits.lock:
            return self._catch_up()

    def feed(self, after_version: int) -> Sequence[Commit]:
        with self._commits.lock:
            commits = self._fetch(after_version)
            self._advance(commits)
            return commits

    def apply(
        self,
        changes: Sequence[Change],
        expected_version: int,
        request_id: str,
        *,
        controller_epoch: int | None = None,
    ) -> MetadataImage:
        with self._commits.lock:
            image = self._image
            # Behind what a heartbeat has seen it would conflict anyway, or be taken by a store that
            # went back to just this version.
            if image is None or image.version < max(expected_version, self._lineage.version):
                image = self._catch_up()
            # On any other image the commit could not be checked, so it must not happen: then only
            # an old request can succeed.
            is_current = image.version == expected_version
            new_image = apply_changes(image, changes) if is_current else None
            encoded_changes = encode_changes(changes, image.metadata_level) if is_current else []
            encoded = json.dumps(encoded_changes, separators=(",", ":"))

            def statement(identity: str) -> Row | None:
                values = (
                    identity,
                    expected_version if is_current else -1,
                    request_id,
                    controller_epoch,
                    encoded,
                )
                row = self._commits.execute(APPLY, values)[0]
                return None if row[0] == "other store" else row

            outcome, version, epoch = self._on_known_store(self._commits, statement, version_at=1)
            match outcome:
                case "known":
                    return self._catch_up()
                case "stale controller":
                    assert controller_epoch is not None
                    raise StaleControllerEpoch(controller_epoch, epoch)
                case "conflict":
                    raise VersionConflict(expected_version, version)
            assert outcome == "committed"
            assert new_image is not None
            self._image = new_image
            if version % SNAPSHOT_EVERY_COMMITS == 0:
                self._keep_snapshot(new_image)
            else:
                self._keep_level(image, new_image)
            return new_image

    def heartbeat(
        self, node_id: int, incarnation_id: str, lease_ms: int, *, wants_controller: bool
    ) -> Heartbeat:
        def statement(identity: str) -> Row | None:
            values = (identity, node_id, incarnation_id, lease_ms, wants_controller)
            # An answer that comes after the lease has ended says nothing any more.
            row = self._leases.execute(HEARTBEAT, values, reply_timeout_ms=lease_ms)[0]
            return row if row[0] == identity else None

        with self._leases.lock:
            row = self._on_known_store(self._leases, statement, version_at=1)
        _, version, holder, holder_incarnation_id, epoch, sessions, store_ms = row
        controller = None
        if holder is not None:
            is_ours = (holder, holder_incarnation_id) == (node_id, incarnation_id)
            controller = ControllerLease(holder, holder_incarnation_id, epoch, is_ours)
        return Heartbeat(
            version,
            controller,
            {fields[0]: BrokerSession(*fields) for fields in sessions},
            store_ms,
        )

    def wait(self, after_version: int, timeout_ms: int) -> bool:
        """See the port. Paces itself while the store cannot be reached, so that a loop around it
        needs no sleep of its own."""
        deadline_ms = self._clock_ms() + timeout_ms
        while not self._closed.is_set():
            try:
                if self._look(after_version):
                    return True
                look_at_ms = min(deadline_ms, self._clock_ms() + POLL_INTERVAL_MS)
                self._listen(look_at_ms)
            except (StoreUnavailable, StoreWentBack, StoreCorrupt, StoreTooNew):
                self._pace(timeout_ms)
                raise
            if self._clock_ms() >= deadline_ms:
                return self._look(after_version)
        raise StoreUnavailable("this store has been closed")

    def _pace(self, timeout_ms: int) -> None:
        # In this order: what comes before is in the backoff, what comes after ends the wait.
        self._may_retry.clear()
        if not self._closed.is_set():
            self._may_retry.wait(min(self._waiter.backoff_ms(), timeout_ms) / 1000)

    def _database_is_back(self) -> None:
        """One link has found out. The others need not wait until it is their turn: a broker that
        came while the database was away is taken for dead if it registers too late."""
        for link in (self._commits, self._leases, self._waiter):
            link.retry_now()
        self._may_retry.set()

    def close(self) -> None:
        self._closed.set()
        self._may_retry.set()
        for link in (self._waiter, self._leases, self._commits):
            with link.lock:
                link.close()

    def _look(self, after_version: int) -> bool:
        def statement(identity: str) -> Row | None:
            rows = self._waiter.execute(VERSION, ())
            return rows[0] if rows and rows[0][0] == identity else None

        with self._waiter.lock:
            _, version = self._on_known_store(self._waiter, statement, version_at=1)
        return bool(version > after_version)

    def _listen(self, until_ms: int) -> None:
        """Return at a notification, or at `until_ms`, or when the store is closed."""
        while not self._closed.is_set():
            remaining_ms = until_ms - self._clock_ms()
            if remaining_ms <= 0:
                return
            with self._waiter.lock:
                if self._waiter.wait_for_notification(min(remaining_ms, CLOSE_NOTICED_MS)):
                    return

    def _accept(self, connection: Connection) -> None:
        """Refuse what is behind a new connection unless it is the store that is known."""
        floor = self._lineage.version
        # Whoever has seen a store never makes one: its own is elsewhere, or lost.
        cluster_id = None if self._lineage.identity else self._lineage.cluster_id
        row = prepare(connection, self._schema, cluster_id, self._features)
        self._lineage.accept(row, floor)

    def _accept_and_listen(self, connection: Connection) -> None:
        self._accept(connection)
        # The schema's name has been checked; it is the channel, as in apply_commit.
        connection.execute(f"LISTEN {self._schema}".encode())

    def _on_known_store(
        self, link: PostgresLink, statement: Callable[[str], Row | None], *, version_at: int
    ) -> Row:
        """Run a statement that returns None when the store is no longer the one it names. A new
        connection then tells whether that one is to be followed."""
        for _ in range(ATTEMPTS):
            link.ensure()
            floor = self._lineage.version
            row = statement(self._lineage.identity)
            if row is not None:
                self._lineage.saw(row[version_at], floor)
                return row
            link.drop()
        raise StoreUnavailable("the metadata store changes its identity again and again")

    def _catch_up(self) -> MetadataImage:
        """The newest image, read as the feed that is missing, or else from the snapshot."""
        for _ in range(ATTEMPTS):
            if self._image is None:
                self._image = self._load_snapshot()
            try:
                self._advance(self._fetch(self._image.version))
            except FeedTruncated:
                self._image = None
            else:
                return self._image
        raise StoreUnavailable("the metadata store's snapshots change faster than they are read")

    def _load_snapshot(self) -> MetadataImage:
        def statement(identity: str) -> Row | None:
            rows = self._commits.execute(SNAPSHOT, ())
            return rows[0] if rows and rows[0][0] == identity else None

        _, version, text = self._on_known_store(self._commits, statement, version_at=1)
        if text is None:
            raise StoreCorrupt(f"the metadata store at version {version} has no snapshot")
        with decoding("the metadata store's snapshot"):
            return decode_image(text)

    def _fetch(self, after_version: int) -> list[Commit]:
        found: list[Row] = []

        def statement(identity: str) -> Row | None:
            found[:] = self._commits.execute(FEED, (after_version,))
            return found[0] if found and found[0][0] == identity else None

        _, version, *_ = self._on_known_store(self._commits, statement, version_at=1)
        if version < after_version:
            # Somebody else in this process knows more than the store does.
            self._lineage.saw(version, after_version)
        commits = [_decode_commit(row[2:]) for row in found if row[2] is not None]
        if [commit.version for commit in commits] != list(range(after_version + 1, version + 1)):
            raise FeedTruncated(f"the feed from {after_version} to {version} has been cut")
        return commits

    def _advance(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            old = self._image
            if old is not None and commit.version == old.version + 1:
                try:
                    self._image = apply_changes(old, commit.changes)
                except InvalidChange as error:
                    raise StoreCorrupt(
                        f"commit {commit.version} of the metadata store does not fit: {error}"
                    ) from error
                self._keep_level(old, self._image)

    def _keep_level(self, old: MetadataImage, new: MetadataImage) -> None:
        """After a downgrade nobody needs to read what is of the higher level, and after an upgrade
        an older version is told at once that it is one. Everybody who sees it takes the snapshot:
        whoever made the commit may have lost its answer."""
        if new.metadata_level != old.metadata_level:
            self._keep_snapshot(new)

    def _keep_snapshot(self, image: MetadataImage) -> None:
        """The commit has happened, so a failure here must not look like one of the commit; only
        reading and the tables get longer, until the next one takes its snapshot."""
        values = (self.identity, image.version, encode_image(image).decode(), FEED_COMMITS_KEPT)
        try:
            self._commits.execute("SELECT keep_snapshot(%s, %s, %s, %s)", values)
        except StoreUnavailable as error:
            self._on_warning(f"no snapshot of version {image.version}: {error}")


def _decode_commit(fields: Sequence[Any]) -> Commit:
    version, request_id, controller_epoch, text = fields
    with decoding(f"commit {version} of the metadata store"):
        changes = tuple(decode_change(item) for item in json.loads(text))
    return Commit(version, request_id, changes, controller_epoch)
