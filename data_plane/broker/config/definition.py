"""One configurable property: its name, type, default, allowed values and what it is for.

Names, types, defaults and messages are Apache Kafka's (4.3) wherever Kafka has the property. Values
are kept as text, as the protocol carries them; `parse` turns text into a value or says, in Kafka's
words, why it cannot.

Invariants
- A definition's own default passes its own validator (tests/broker/test_config_definitions.py).
- `parse` depends on the text only: what several properties must fulfil together is checked where
  a whole configuration is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1
INT16_MAX = (1 << 15) - 1

Value = bool | int | float | str | list[str]
# Given the property's name and a parsed value: None, or why the value is not allowed.
Validator = Callable[[str, Value], str | None]


class ConfigType(IntEnum):
    """The protocol's numbers for types."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """When a broker property may change."""

    READ_ONLY = "restart"
    PER_BROKER = "per broker"
    CLUSTER_WIDE = "cluster-wide or per broker"


class InvalidValue(ValueError):
    """A value that its property does not allow; the text is Kafka's."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A validator and its words for the documentation."""

    text: str
    check: Validator


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """`default` None means that there is no value unless somebody sets one.

    `moot` says, for a property accepted for compatibility, why it has no effect here."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    allowed: Allowed | None = None
    update: Update = Update.READ_ONLY
    moot: str = ""

    @property
    def sensitive(self) -> bool:
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    @property
    def description(self) -> str:
        """What it is for, and why it has no effect if it has none."""
        if not self.moot:
            return self.documentation
        return f"{self.documentation} Accepted without effect: {self.moot}."

    def parse(self, text: str) -> Value:
        """The value that `text` stands for. Raises InvalidValue."""
        try:
            value = _PARSERS[self.type](text)
        except ValueError as error:
            raise InvalidValue(
                f"Invalid value {text} for configuration {self.name}: {error}"
            ) from error
        reason = None if self.allowed is None else self.allowed.check(self.name, value)
        if reason is not None:
            raise InvalidValue(
                f"Invalid value {_shown(value)} for configuration {self.name}: {reason}"
            )
        return value


def unknown_property(name: str) -> ConfigDefinition:
    """For a name that some client has set and that means nothing here. Its value, which may be
    anybody's password, is not shown."""
    return ConfigDefinition(name, ConfigType.UNKNOWN, None, "")


def _parse_boolean(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ValueError("Expected value to be either true or false")


def _integer_parser(type_name: str, limit: int) -> Callable[[str], int]:
    pattern = re.compile(r"[+-]?[0-9]{1,20}")

    def parse(text: str) -> int:
        stripped = text.strip()
        if pattern.fullmatch(stripped) is None or not -limit - 1 <= int(stripped) <= limit:
            raise ValueError(f"Not a number of type {type_name}")
        return int(stripped)

    return parse


def _parse_double(text: str) -> float:
    try:
        # Python takes more for a number than others do.
        if text.isascii() and "_" not in text:
            return float(text.strip())
    except ValueError:
        pass
    raise ValueError("Not a number of type DOUBLE")


def parse_list(text: str) -> list[str]:
    """Comma-separated items without the blanks around them; empty text is an empty list."""
    stripped = text.strip()
    return [item.strip() for item in stripped.split(",")] if stripped else []


_PARSERS: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str.strip,
    ConfigType.INT: _integer_parser("INT", INT32_MAX),
    ConfigType.SHORT: _integer_parser("SHORT", INT16_MAX),
    ConfigType.LONG: _integer_parser("LONG", INT64_MAX),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: parse_list,
    ConfigType.CLASS: str.strip,
    ConfigType.PASSWORD: str,
    ConfigType.UNKNOWN: str,
}


def _shown(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(value)}]"
    return str(value)


def between(low: float, high: float) -> Allowed:
    """Numbers from low to high, both included."""

    def check(_: str, value: Value) -> str | None:
        assert isinstance(value, int | float)
        if value < low:
            return f"Value must be at least {low}"
        if value > high:
            return f"Value must be no more than {high}"
        return None

    return Allowed(f"{low} to {high}", check)


def at_least(low: int) -> Allowed:
    """Numbers from low on."""

    def check(_: str, value: Value) -> str | None:
        assert isinstance(value, int | float)
        return f"Value must be at least {low}" if value < low else None

    return Allowed(f"{low} or more", check)


def one_of(*names: str) -> Allowed:
    """One of these words, in this spelling."""

    def check(_: str, value: Value) -> str | None:
        return None if value in names else f"String must be one of: {', '.join(names)}"

    return Allowed(", ".join(names), check)


class _ListItems:
    """A list of these words. Kafka names the first bad item, not the list, in its message."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __call__(self, name: str, value: Value) -> str | None:
        assert isinstance(value, list)
        for item in value:
            if not item:
                raise InvalidValue(f"Configuration '{name}' values must not be empty.")
            if item not in self._names:
                raise InvalidValue(
                    f"Invalid value {item} for configuration {name}: String must be one of: "
                    f"{', '.join(self._names)}"
                )
        return None


def list_of(*names: str) -> Allowed:
    """A list of these words."""
    return Allowed("a list of " + ", ".join(names), _ListItems(names))


def _check_gzip_level(_: str, value: Value) -> str | None:
    assert isinstance(value, int)
    if value == -1 or 1 <= value <= 9:
        return None
    return "Value must be between 1 and 9 or equal to -1"


GZIP_LEVEL = Allowed("-1, or 1 to 9", _check_gzip_level)


def _check_throttled_replicas(name: str, value: Value) -> str | None:
    assert isinstance(value, list)
    if value == ["*"] or all(re.fullmatch(r"\d+:\d+", item) for item in value):
        return None
    return (
        f"{name} must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


THROTTLED_REPLICAS = Allowed("*, or a list of partition:broker", _check_throttled_replicas)


def define(
    name: str,
    type_name: str,
    default: str | int | float | bool | None,
    documentation: str,
    allowed: Allowed | None = None,
    update: Update = Update.READ_ONLY,
    moot: str = "",
) -> ConfigDefinition:
    """A definition from a line of a table; defaults may be given as values."""
    if isinstance(default, bool):
        text: str | None = "true" if default else "false"
    else:
        text = None if default is None else str(default)
    return ConfigDefinition(name, ConfigType[type_name], text, documentation, allowed, update, moot)


def by_name(*tables: Sequence[ConfigDefinition]) -> dict[str, ConfigDefinition]:
    """All definitions of some tables; a name stands in one of them only."""
    definitions: dict[str, ConfigDefinition] = {}
    for table in tables:
        for definition in table:
            assert definition.name not in definitions, definition.name
            definitions[definition.name] = definition
    return definitions
