"""Topic configurations, typed: what is refused here never gets to a cell.

The names and bounds are those of the cell (a test compares). Values arrive as text, as Kafka has
them, or as JSON numbers and booleans, and are kept as text in one form: what is stored compares
equal to what was declared, however it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from control_plane.tenancy.errors import Invalid

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
UNDELETE_MS_MAX: Final = 90 * 24 * 3600 * 1000
CONFIGS_MAX: Final = 100
VALUE_CHARACTERS_MAX: Final = 4096

Json = str | int | float | bool
Parser = Callable[[Json], str]


def _integer(low: int, high: int, value: Json) -> str:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("is no whole number")
    try:
        number = int(value)
    except ValueError as error:
        raise ValueError("is no whole number") from error
    if not low <= number <= high:
        raise ValueError(f"is not from {low} to {high}")
    return str(number)


def _gzip_level(value: Json) -> str:
    text = _integer(-1, 9, value)
    if text == "0":
        raise ValueError("is neither -1 nor from 1 to 9")
    return text


def _real(low: float, high: float, value: Json) -> str:
    try:
        number = float(value)
    except ValueError as error:
        raise ValueError("is no number") from error
    if isinstance(value, bool) or not low <= number <= high:
        raise ValueError(f"is not from {low} to {high}")
    return repr(number)


def _boolean(value: Json) -> str:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text


def _one_of(allowed: tuple[str, ...], value: Json) -> str:
    if value not in allowed:
        raise ValueError(f"is none of {', '.join(allowed)}")
    return str(value)


def _list_of(allowed: tuple[str, ...], value: Json) -> str:
    parts = [part.strip() for part in str(value).split(",") if part.strip()]
    if any(part not in allowed for part in parts) or len(set(parts)) != len(parts):
        raise ValueError(f"is no list of {', '.join(allowed)}")
    return ",".join(sorted(parts))


def _int(low: int) -> Parser:
    return partial(_integer, low, INT32_MAX)


def _long(low: int) -> Parser:
    return partial(_integer, low, INT64_MAX)


CONFIGS: Final[Mapping[str, Parser]] = {
    "cleanup.policy": partial(_list_of, ("compact", "delete")),
    "compression.gzip.level": _gzip_level,
    "compression.lz4.level": partial(_integer, 1, 17),
    "compression.type": partial(
        _one_of, ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ),
    "compression.zstd.level": partial(_integer, -131072, 22),
    "delete.retention.ms": _long(0),
    "durability": partial(_one_of, ("os", "fsync")),
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(0),
    "index.interval.bytes": _int(0),
    "max.compaction.lag.ms": _long(1),
    "max.message.bytes": _int(0),
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.type": partial(_one_of, ("CreateTime", "LogAppendTime")),
    "min.cleanable.dirty.ratio": partial(_real, 0, 1),
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1),
    "replica.lag.max.messages": _long(-1),
    "retention.bytes": _long(-1),
    "retention.ms": _long(-1),
    "segment.bytes": _int(1_048_576),
    "segment.index.bytes": _int(4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(1),
    "tidewheel.headers": _boolean,
    "tidewheel.undelete.ms": partial(_integer, 0, UNDELETE_MS_MAX),
    "unclean.leader.election.enable": _boolean,
}


# What makes a topic a subscription, which is a resource of its own here.
OF_SUBSCRIPTIONS: Final = ("tidewheel.source", "tidewheel.filter")

# What is chosen when a topic is made, with its default, and stays.
FIXED: Final[Mapping[str, str]] = {"tidewheel.headers": "false"}


def refuse_other_fixed(present: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Raise Invalid where `wanted` changes what is chosen once."""
    for name, default in FIXED.items():
        if present.get(name, default) != wanted.get(name, default):
            raise Invalid(f"{name} is chosen when a topic is made.", field=f"/spec/configs/{name}")


def normalized(configs: Mapping[str, Json]) -> dict[str, str]:
    """The configurations in their one form, by name. Raises Invalid, which names the key."""
    if len(configs) > CONFIGS_MAX:
        raise Invalid(f"More than {CONFIGS_MAX} configurations.", field="/spec/configs")
    result: dict[str, str] = {}
    for name in sorted(configs):
        field = f"/spec/configs/{name.replace('~', '~0').replace('/', '~1')}"
        if name in OF_SUBSCRIPTIONS:
            raise Invalid(f"{name} is a subscription's; make one at /subscriptions.", field=field)
        if name not in CONFIGS:
            raise Invalid(f"There is no topic configuration {name[:200]}.", field=field)
        value = configs[name]
        if isinstance(value, str) and len(value) > VALUE_CHARACTERS_MAX:
            raise Invalid(f"{name} is too long.", field=field)
        try:
            result[name] = CONFIGS[name](value)
        except (ValueError, OverflowError) as error:
            raise Invalid(f"{name} {error}.", field=field) from error
    low = int(result.get("min.compaction.lag.ms", 0))
    if low > int(result.get("max.compaction.lag.ms", INT64_MAX)):
        raise Invalid(
            "min.compaction.lag.ms is more than max.compaction.lag.ms.",
            field="/spec/configs/min.compaction.lag.ms",
        )
    return result
