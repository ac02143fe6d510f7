"""A broker's configuration: a properties file, the environment and flags, checked as a whole.

Precedence, strongest first: `--set KEY=VALUE` flags, `TIDEWHEEL_BROKER_…` variables, the file,
defaults. Names are Apache Kafka's. In the environment a name is written in capitals with `_` for
`.`: TIDEWHEEL_BROKER_LOG_RETENTION_MS is log.retention.ms. A topic property (`retention.ms`) stands
for the broker property that gives its default (`log.retention.ms`).

Nothing is passed over silently: an unknown name, a value that is not allowed, a property of Apache
Kafka whose absence would mislead, and properties that contradict each other are all reported at
once, each with where it was given. docs/configuration.md is made from the same definitions.

Deliberately absent: values set at run time by AlterConfigs, which live in the metadata store.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS, refusal_of
from data_plane.broker.config.definition import ConfigDefinition, InvalidValue
from data_plane.broker.config.effective import EffectiveConfig
from data_plane.broker.config.listener_definitions import (
    REFUSES_EVERY_ADDRESS,
    refuses_every_address,
)
from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES, TopicProperties
from data_plane.server import cell_admin_settings
from data_plane.server.cell_admin_settings import CellAdminSettings
from data_plane.server.configured_listeners import (
    Listener,
    Problem,
    client_listeners,
    definition_for_listener,
    is_every_interface,
)
from data_plane.server.inter_broker_tls import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    TlsFiles,
    find_problems,
)
from data_plane.server.properties_file import MalformedProperties, parse_properties

ENVIRONMENT_PREFIX = "TIDEWHEEL_BROKER_"
# An IPv6 address stands in brackets.
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]*):(\d{1,5})")
INTER_BROKER = "INTER_BROKER"
# One heartbeat may be late, and one lost, before a broker counts as gone.
HEARTBEATS_PER_SESSION_MIN = 3
SUGGESTIONS_MAX = 3


class ConfigurationError(Exception):
    """All that is wrong with a configuration; `problems` are sentences, one per mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Setting(NamedTuple):
    """One given property; `source` is where a person finds it."""

    source: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """A validated configuration. `properties` are those that were given, under broker names.

    `metadata_store_url` None: the broker is alone, and what is about other brokers has no effect.
    """

    node_id: int
    cluster_id: str | None
    rack: str | None
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    inter_broker_listener: Listener
    inter_broker_tls: TlsFiles | None
    host_id: str
    metadata_store_url: str | None
    metadata_store_schema: str
    data_directories: tuple[Path, ...]
    http_host: str
    http_port: int
    logging_level: str
    logging_format: str
    properties: Mapping[str, str]
    # What topics can have.
    topics: TopicProperties
    cell_admin: CellAdminSettings | None = None

    def effective(self) -> EffectiveConfig:
        """A resolver over these properties, without dynamic values yet."""
        return EffectiveConfig(self.properties, self.node_id, self.topics)

    def moot_properties(self) -> list[tuple[str, str]]:
        """(name, reason) of given properties that have no effect here."""
        return [
            (name, BROKER_DEFINITIONS[name].moot)
            for name in sorted(self.properties)
            if BROKER_DEFINITIONS[name].moot
        ]


def load_configuration(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[str] = (),
    topics: TopicProperties = KAFKA_TOPIC_PROPERTIES,
) -> BrokerConfig:
    """Read all sources; `topics` are the properties that topics can have. Raises ConfigurationError
    with everything that is wrong."""
    problems: list[str] = []
    layers = [
        [] if file is None else _file_settings(file, problems),
        _environment_settings(environment or {}, topics),
        _flag_settings(flags, problems),
    ]
    given: dict[str, Setting] = {}
    for layer in layers:
        for setting in _checked_layer(layer, topics, problems):
            given[setting.name] = setting
    config = _build(given, topics, problems)
    if problems or config is None:
        raise ConfigurationError(problems)
    return config


def _file_settings(file: Path, problems: list[str]) -> list[Setting]:
    try:
        entries = parse_properties(file.read_text(encoding="utf-8"))
    except MalformedProperties as error:
        problems.append(f"{file}:{error.line}: {error.reason}")
        return []
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{file}: cannot be read: {error}")
        return []
    return [Setting(f"{file}:{entry.line}", entry.key, entry.value) for entry in entries]


def _environment_settings(environment: Mapping[str, str], topics: TopicProperties) -> list[Setting]:
    names = {_variable(name): name for name in (*topics.definitions, *BROKER_DEFINITIONS)}
    settings = []
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        name = names.get(variable)
        if name is None:
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        settings.append(Setting(f"environment variable {variable}", name, environment[variable]))
    return settings


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_").replace("-", "_")


def _flag_settings(flags: Iterable[str], problems: list[str]) -> list[Setting]:
    settings = []
    for flag in flags:
        name, separator, value = flag.partition("=")
        if not separator or not name.strip():
            problems.append(f"--set {flag}: must have the form KEY=VALUE")
        else:
            settings.append(Setting("--set", name.strip(), value))
    return settings


def _checked_layer(
    layer: Iterable[Setting], topics: TopicProperties, problems: list[str]
) -> Iterable[Setting]:
    """The valid settings of one source, under broker names. Two values for one are a mistake."""
    seen: dict[str, Setting] = {}
    for setting in layer:
        name = _broker_name(setting.name, topics)
        definition = BROKER_DEFINITIONS.get(name) or definition_for_listener(name)
        if definition is None:
            problems.append(f"{setting.source}: {_unknown(setting, topics)}")
            continue
        before = seen.get(name)
        if before is not None and before.value != setting.value:
            problems.append(
                f"{setting.source}: {setting.name} is set twice: {before.source} has "
                f"{before.name}={_shown(definition, before.value)}"
            )
            continue
        try:
            definition.parse(setting.value)
        except InvalidValue as error:
            problems.append(f"{setting.source}: {_invalid(definition, setting, error)}")
            continue
        seen[name] = Setting(setting.source, name, setting.value)
    return seen.values()


def _broker_name(name: str, topics: TopicProperties) -> str:
    if name not in BROKER_DEFINITIONS and name in topics.synonyms:
        return topics.synonyms[name][0][0]
    return name


def _unknown(setting: Setting, topics: TopicProperties) -> str:
    reason = refusal_of(setting.name)
    if reason is not None:
        return f"{setting.name} is a property of Apache Kafka that is refused here: {reason}"
    if setting.name in topics.definitions:
        return f"{setting.name} can only be set on a topic"
    known = sorted({*BROKER_DEFINITIONS, *topics.synonyms})
    near = difflib.get_close_matches(setting.name, known, n=SUGGESTIONS_MAX, cutoff=0.75)
    hint = f"; did you mean {' or '.join(near)}?" if near else "; see docs/configuration.md"
    return f"unknown property {setting.name}{hint}"


def _shown(definition: ConfigDefinition, value: str) -> str:
    return "(hidden)" if definition.sensitive else value


def _invalid(definition: ConfigDefinition, setting: Setting, error: InvalidValue) -> str:
    allowed = f" (allowed: {definition.allowed.text})" if definition.allowed else ""
    message = "not allowed" if definition.sensitive else str(error)
    return f"{message}{allowed}"


def _build(
    given: Mapping[str, Setting], topics: TopicProperties, problems: list[str]
) -> BrokerConfig | None:
    values = {name: setting.value for name, setting in given.items()}
    properties = {name: value for name, value in values.items() if name in BROKER_DEFINITIONS}
    own = {name: value for name, value in values.items() if name not in BROKER_DEFINITIONS}

    def source(name: str) -> str:
        return given[name].source if name in given else "default"

    def problem(name: str, reason: str) -> None:
        problems.append(f"{source(name)}: {name}: {reason}")

    # Two names of one thing: clients ask for either.
    if "node.id" in properties:
        properties.setdefault("broker.id", properties["node.id"])
    elif "broker.id" in properties:
        properties["node.id"] = properties["broker.id"]
    if "listeners" in properties:
        # Clients that ask for the broker's configuration look for what it advertises.
        properties.setdefault("advertised.listeners", properties["listeners"])
    resolver = EffectiveConfig(properties, 0, topics)
    node_id = resolver.get_int("node.id")
    if resolver.get("broker.id") not in (None, node_id):
        problem("broker.id", f"must be the same as node.id, which is {node_id}")
    listeners, advertised = client_listeners(resolver, own, problem)
    _check_limits(resolver, problem)
    inter_broker = _inter_broker_listener(resolver, problem)
    inter_broker_tls = _inter_broker_tls(resolver, inter_broker.host, problem)
    cell_admin = cell_admin_settings.read_settings(resolver, problem)
    directories = _data_directories(resolver, problem)
    if problems:
        return None
    cluster_id = resolver.get("cluster.id")
    rack = resolver.get("broker.rack")
    store_url = resolver.get("metadata.store.url")
    return BrokerConfig(
        node_id=node_id,
        cluster_id=str(cluster_id) if cluster_id else None,
        rack=str(rack) if rack else None,
        listeners=listeners,
        advertised_listeners=advertised,
        inter_broker_listener=inter_broker,
        inter_broker_tls=inter_broker_tls,
        host_id=str(resolver.get("host.id") or ""),
        metadata_store_url=str(store_url) if store_url else None,
        metadata_store_schema=resolver.get_str("metadata.store.schema"),
        data_directories=directories,
        http_host=resolver.get_str("http.host"),
        http_port=resolver.get_int("http.port"),
        logging_level=resolver.get_str("logging.level"),
        logging_format=resolver.get_str("logging.format"),
        properties=properties,
        topics=topics,
        cell_admin=cell_admin,
    )


def _inter_broker_listener(resolver: EffectiveConfig, problem: Problem) -> Listener:
    name = "inter.broker.listener"
    text = resolver.get_str(name)
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or int(match[2]) > 65535:
        problem(name, f"{text!r} is not of the form host:port")
        return Listener(INTER_BROKER, "", 0)
    listener = Listener(INTER_BROKER, match[1].strip("[]"), int(match[2]))
    if is_every_interface(listener.host):
        problem(name, f"{text!r} needs an address that the other brokers can connect to")
    return listener


def _inter_broker_tls(resolver: EffectiveConfig, host: str, problem: Problem) -> TlsFiles | None:
    files = TlsFiles(*(str(resolver.get(name) or "") for name in (CERTIFICATE, KEY, AUTHORITY)))
    for name, reason in find_problems(host, *files):
        problem(name, reason)
    return files if files.certificate else None


def _check_limits(resolver: EffectiveConfig, problem: Problem) -> None:
    timeout_ms = resolver.get_int("broker.session.timeout.ms")
    if timeout_ms < HEARTBEATS_PER_SESSION_MIN * resolver.get_int("broker.heartbeat.interval.ms"):
        problem(
            "broker.session.timeout.ms",
            f"{timeout_ms} is less than {HEARTBEATS_PER_SESSION_MIN} times "
            f"broker.heartbeat.interval.ms={resolver.get_int('broker.heartbeat.interval.ms')}",
        )
    for low, high in (
        ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
        ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ):
        if resolver.get_int(low) > resolver.get_int(high):
            problem(low, f"{resolver.get_int(low)} is more than {high}={resolver.get_int(high)}")
    if refuses_every_address(
        resolver.get_int("max.connections.per.ip"),
        resolver.get_str("max.connections.per.ip.overrides"),
    ):
        problem("max.connections.per.ip", REFUSES_EVERY_ADDRESS)


def _data_directories(resolver: EffectiveConfig, problem: Problem) -> tuple[Path, ...]:
    name = "log.dir" if resolver.get("log.dirs") is None else "log.dirs"
    items = [resolver.get_str(name)] if name == "log.dir" else resolver.get_list(name)
    if not items or not all(items):
        problem(name, "needs the path of at least one folder")
    directories = tuple(Path(item).absolute() for item in items)
    if len(set(directories)) != len(directories):
        problem(name, "names a folder twice")
    return directories
