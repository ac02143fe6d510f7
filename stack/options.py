"""What `up` was asked for, and what follows from it and from the data that is already there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from stack.broker_process import as_variable
from stack.errors import EXIT_USAGE, StackError
from stack.folder import MetadataStoreKind, StackFolder

DEFAULT_BROKERS = 3
BROKERS_MAX = 32
"""On one machine; a bound for typing errors, not for cells."""

BROKER_ID_MAX = 2**31 - 1
REPLICATION_FACTOR_MAX = 3
BROKER_ID_PLACE = "{id}"
DEFAULT_SCHEMA = "tidewheel_cell"
"""As of the broker property metadata.store.schema."""


@dataclass(frozen=True, slots=True)
class StackOptions:
    """What `up` was asked for.

    - `brokers` None: those that have data in the folder, or three.
    - `first_id` None: the ids that have data in the folder, or from 1 on.
    - `settings`: KEY=VALUE each, for all brokers; `{id}` stands for the id of each.
    - `more_listeners`: also for users with a password, within TLS, and for operators.
    - `is_secure`: with those, none for anybody.
    - `database_url`: a Postgres of the user's for the metadata; None lets the stack bring one.
    - `control_plane`: with one; its listeners for operators are needed.
    - `control_plane_database_url`: where its tables are; None is in the stack's Postgres.
    """

    data: Path
    brokers: int | None = None
    port: int = 9092
    first_id: int | None = None
    settings: tuple[str, ...] = ()
    database_url: str | None = None
    more_listeners: bool = False
    is_secure: bool = False
    control_plane: bool = False
    control_plane_database_url: str | None = None

    def settings_of(self, broker_id: int) -> tuple[str, ...]:
        """What one broker is given of `settings`.

        >>> StackOptions(Path("d"), settings=("broker.rack=room-{id}",)).settings_of(2)
        ('broker.rack=room-2',)
        """
        return tuple(each.replace(BROKER_ID_PLACE, str(broker_id)) for each in self.settings)

    def check(self) -> None:
        """Raises StackError when this cannot be a stack."""
        if self.brokers is not None and self.brokers < 1:
            raise StackError("--brokers must be at least 1.", EXIT_USAGE)
        if self.brokers is not None and self.brokers > BROKERS_MAX:
            raise StackError(
                f"--brokers {self.brokers}: a stack on one machine has {BROKERS_MAX} at most.",
                EXIT_USAGE,
            )
        if self.first_id is not None and not 0 <= self.first_id <= BROKER_ID_MAX:
            raise StackError("--first-id must be a broker id: 0 to 2147483647.", EXIT_USAGE)
        for setting in self.settings:
            name, equals, _ = setting.partition("=")
            if not equals or not name.strip():
                raise StackError(
                    f"--set {setting}: write KEY=VALUE, for example --set num.partitions=3.",
                    EXIT_USAGE,
                )


def decide_broker_ids(options: StackOptions, present: list[int]) -> list[int]:
    """The ids of the brokers to start, ascending; `present` have data in the folder.

    Raises StackError when data would be left out: its messages would silently be missing.

    >>> decide_broker_ids(StackOptions(Path("d"), brokers=4), [1, 2, 3])
    [1, 2, 3, 4]
    """
    count = options.brokers
    if count is None:
        count = len(present) or DEFAULT_BROKERS
    if options.first_id is not None:
        ids = list(range(options.first_id, options.first_id + count))
    else:
        first_new = max(present, default=0) + 1
        ids = present[:count] + list(range(first_new, first_new + count - len(present)))
    if ids[-1] > BROKER_ID_MAX:
        raise StackError(
            f"Broker ids end at {BROKER_ID_MAX}, and {count} brokers from {ids[0]} on go beyond.",
            EXIT_USAGE,
        )
    left_out = [broker_id for broker_id in present if broker_id not in ids]
    if left_out:
        raise StackError(
            f"{options.data} has the data of broker {', '.join(map(str, left_out))}, which this "
            f"start would leave out. Use another --data, or leave --brokers and --first-id out.",
            EXIT_USAGE,
        )
    return ids


def decide_store_kind(
    options: StackOptions, folder: StackFolder, brokers: int
) -> MetadataStoreKind:
    """Where the metadata is or will be. Raises StackError when the folder says otherwise."""
    kind = folder.store_kind()
    if kind is None:
        if brokers == 1:
            return MetadataStoreKind.LOCAL
        external = options.database_url is not None
        return MetadataStoreKind.EXTERNAL if external else MetadataStoreKind.POSTGRES
    if kind is MetadataStoreKind.LOCAL and brokers > 1:
        raise StackError(
            f"The data in {folder.path} is that of a single broker, which keeps its metadata by "
            "itself and cannot become a cell.\nStart it with --brokers 1, or start a cell with its "
            "own --data and --port.",
            EXIT_USAGE,
        )
    if kind is MetadataStoreKind.EXTERNAL and options.database_url is None:
        raise StackError(
            f"The metadata of the cell in {folder.path} is in a Postgres of yours: set "
            "DATABASE_URL to its address.",
            EXIT_USAGE,
        )
    return kind


def store_schema(kind: MetadataStoreKind, cluster_id: str) -> str:
    """The schema of a cell in its database. A database of the user's may hold several cells."""
    if kind is MetadataStoreKind.POSTGRES:
        return DEFAULT_SCHEMA
    return f"{DEFAULT_SCHEMA}_{hashlib.sha256(cluster_id.encode()).hexdigest()[:12]}"


def cell_environment(broker_id: int, store_url: str, brokers: int) -> dict[str, str]:
    """What one broker of a cell is told by its environment.

    The store's address has a password in it, which a command line would show to everybody. The
    rest are defaults of ours: a --set of the user's is stronger than the environment.
    """
    factor = str(min(brokers, REPLICATION_FACTOR_MAX))
    return {
        as_variable("metadata.store.url"): store_url,
        as_variable("default.replication.factor"): factor,
        as_variable("offsets.topic.replication.factor"): factor,
        # So that clients which read in their own rack can be tried.
        as_variable("broker.rack"): f"RACK{broker_id}",
    }


def cell_settings(
    broker_id: int, inter_broker_port: int, host: str = "127.0.0.1"
) -> tuple[str, ...]:
    """What one broker of a cell is told by flags."""
    return (
        f"inter.broker.listener={host}:{inter_broker_port}",
        # One machine carries them all; for placement they count as machines of their own.
        f"host.id=stack-host-{broker_id}",
    )
