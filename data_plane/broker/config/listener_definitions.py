"""Broker properties: who this broker is, where it listens, and what one connection may ask for."""

from __future__ import annotations

import ipaddress
import re

from data_plane.broker.config.definition import (
    INT32_MAX,
    Allowed,
    Update,
    Value,
    at_least,
    between,
    define,
    list_of,
    one_of,
)

CLUSTER = Update.CLUSTER_WIDE

LOG_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
LOG_FORMATS = ("console", "json")


def _check_port(_: str, value: Value) -> str | None:
    assert isinstance(value, int)
    return None if 0 <= value <= 65535 else "Value must be between 0 and 65535"


PORT = Allowed("0 (any free port) to 65535", _check_port)


def connection_limits(overrides: str) -> dict[str, int]:
    """What max.connections.per.ip.overrides says: connections by address, as sockets name it.
    Raises ValueError, which names the item that is none."""
    limits: dict[str, int] = {}
    for item in filter(None, map(str.strip, overrides.split(","))):
        address, _, count_text = map(str.strip, item.rpartition(":"))
        try:
            host = str(ipaddress.ip_address(address.removeprefix("[").removesuffix("]")))
        except ValueError:
            host = ""
        if not host or re.fullmatch("[0-9]{1,9}", count_text) is None:
            raise ValueError(
                f"{item!r} is not of the form address:count; names of hosts are not looked up"
            )
        limits[host] = int(count_text)
    return limits


def _check_connection_limits(_: str, value: Value) -> str | None:
    assert isinstance(value, str)
    try:
        connection_limits(value)
    except ValueError as error:
        return str(error)
    return None


CONNECTION_LIMITS = Allowed("address:count,address:count", _check_connection_limits)

REFUSES_EVERY_ADDRESS = (
    "nobody could connect: max.connections.per.ip.overrides lets no address in either"
)


def refuses_every_address(limit: Value, overrides: str) -> bool:
    """Whether max.connections.per.ip and its overrides leave nobody who may connect."""
    return limit == 0 and not any(connection_limits(overrides).values())


LISTENER_DEFINITIONS = (
    define("node.id", "INT", 0, "This broker's number in the cell.", at_least(0)),
    define("broker.id", "INT", None, "The old name of node.id; both must agree.", at_least(0)),
    define(
        "cluster.id",
        "STRING",
        None,
        "The cell's id. Chosen at random at the first start when it is not given; data of another "
        "cell is refused. A property of this broker, not of Apache Kafka.",
    ),
    define("broker.rack", "STRING", None, "Where this broker stands, for clients and placement."),
    define(
        "listeners",
        "LIST",
        "PLAINTEXT://127.0.0.1:9092",
        "Addresses to listen on, as NAME://host:port. An empty host is every interface, port 0 any "
        "free one. Apache Kafka's default listens on every interface; this one does not.",
    ),
    define(
        "advertised.listeners",
        "LIST",
        None,
        "Addresses that clients are told to connect to, when they differ from `listeners`.",
    ),
    define(
        "listener.security.protocol.map",
        "STRING",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "Which security protocol each listener's name stands for, as NAME:PROTOCOL,…. The names of "
        "the protocols stand for themselves: PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    ),
    define(
        "sasl.enabled.mechanisms",
        "LIST",
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "What clients of listeners with SASL may authenticate with. PLAIN sends passwords as they "
        "are: a listener without TLS has it on loopback addresses only. Apache Kafka has GSSAPI.",
        list_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    ),
    define(
        "sasl.server.max.receive.size",
        "INT",
        65_536,
        "The largest request of a client that has not authenticated yet. Apache Kafka has 524288, "
        "for mechanisms with larger tokens.",
        at_least(1024),
    ),
    define(
        "connections.max.reauth.ms",
        "LONG",
        0,
        "For how long a client of a listener with SASL is authenticated: then it must authenticate "
        "anew (KIP-368), which clients do in time. 0: for as long as its connection lasts.",
        at_least(0),
    ),
    define(
        "connection.failed.authentication.delay.ms",
        "INT",
        100,
        "How long after a failed authentication a client is told so, and its connection closed.",
        between(0, 5_000),
    ),
    define(
        "http.host",
        "STRING",
        "127.0.0.1",
        "Where /metrics and /healthz are served. Not a property of Apache Kafka.",
    ),
    define(
        "http.port",
        "INT",
        0,
        "Port of /metrics and /healthz; 0 takes a free one. Not a property of Apache Kafka.",
        PORT,
    ),
    define(
        "log.dirs",
        "LIST",
        None,
        "Folders for data, separated by commas. The first one also holds the metadata.",
    ),
    define("log.dir", "STRING", "data", "The folder for data when log.dirs is not set."),
    define(
        "logging.level",
        "STRING",
        "INFO",
        "The least severe event that is written. Not a property of Apache Kafka.",
        one_of(*LOG_LEVELS),
    ),
    define(
        "logging.format",
        "STRING",
        "console",
        "How events are written: lines for people or one JSON object each. Not a property of "
        "Apache Kafka.",
        one_of(*LOG_FORMATS),
    ),
    define(
        "shutdown.timeout.ms",
        "LONG",
        5_000,
        "How long a stopping broker waits for requests in progress. Not Apache Kafka's.",
        at_least(0),
    ),
    define(
        "connections.max.idle.ms",
        "LONG",
        600_000,
        "A connection without a request for this long is closed; -1 never closes one.",
        at_least(-1),
    ),
    define(
        "max.connections",
        "INT",
        INT32_MAX,
        "Connections that this broker accepts in all.",
        at_least(1),
        CLUSTER,
    ),
    define(
        "max.connections.per.ip",
        "INT",
        INT32_MAX,
        "Connections from one address; 0 only where max.connections.per.ip.overrides lets some in.",
        at_least(0),
        CLUSTER,
    ),
    define(
        "max.connections.per.ip.overrides",
        "STRING",
        "",
        "Other limits for single IP addresses, as address:count,address:count.",
        CONNECTION_LIMITS,
        CLUSTER,
    ),
    define(
        "socket.listen.backlog.size",
        "INT",
        1024,
        "Connections that the operating system holds until the broker accepts them. Apache "
        "Kafka has 50, which a thousand clients that reconnect at once overrun.",
        at_least(1),
    ),
    define(
        "socket.receive.buffer.bytes",
        "INT",
        -1,
        "SO_RCVBUF of a connection; -1 leaves it to the operating system, which adapts it. Apache "
        "Kafka has 102400.",
        at_least(-1),
    ),
    define(
        "socket.send.buffer.bytes",
        "INT",
        262_144,
        "SO_SNDBUF of a connection. -1 leaves it to the operating system, which adapts it: better "
        "for clients and brokers with a long round trip. Apache Kafka has 102400.",
        at_least(-1),
    ),
    define(
        "socket.request.max.bytes",
        "INT",
        104_857_600,
        "The largest request; a larger one closes its connection.",
        at_least(1),
    ),
    define(
        "fetch.max.bytes",
        "INT",
        57_671_680,
        "The most that one fetch is answered with.",
        at_least(1024),
    ),
    define(
        "max.incremental.fetch.session.cache.slots",
        "INT",
        1000,
        "Incremental fetch sessions that are kept.",
        at_least(0),
    ),
    define(
        "max.request.partition.size.limit",
        "INT",
        2000,
        "Partitions in one answer of DescribeTopicPartitions.",
        at_least(1),
    ),
)
