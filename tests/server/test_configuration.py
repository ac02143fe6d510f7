"""A broker's configuration from a file, the environment and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS
from data_plane.server.client_tls import ListenerTls
from data_plane.server.configuration import (
    BrokerConfig,
    ConfigurationError,
    load_configuration,
)
from data_plane.server.configured_listeners import Listener
from data_plane.server.inter_broker_tls import TlsFiles
from data_plane.server.properties_file import MalformedProperties, parse_properties


def load(
    *flags: str, text: str = "", environment: Mapping[str, str] | None = None, folder: Path
) -> BrokerConfig:
    file = folder / "server.properties"
    file.write_text(text, encoding="utf-8")
    return load_configuration(file=file, environment=environment, flags=flags)


def problems(flags: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(environment=environment, flags=flags)
    return list(caught.value.problems)


def test_defaults() -> None:
    config = load_configuration()
    assert config.node_id == 0
    assert config.cluster_id is None
    assert config.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.advertised_listeners == config.listeners
    assert config.data_directories == (Path("data").absolute(),)
    assert (config.http_host, config.http_port) == ("127.0.0.1", 0)
    assert config.properties == {}


def test_flags_are_stronger_than_the_environment_and_that_than_the_file(tmp_path: Path) -> None:
    config = load(
        "num.partitions=3",
        text="num.partitions=1\nlog.retention.ms=1\nlog.segment.bytes=2000000\n",
        environment={
            "TIDEWHEEL_BROKER_NUM_PARTITIONS": "2",
            "TIDEWHEEL_BROKER_LOG_RETENTION_MS": "2",
            "TIDEWHEEL_URL": "not ours",
        },
        folder=tmp_path,
    )
    assert config.properties == {
        "num.partitions": "3",
        "log.retention.ms": "2",
        "log.segment.bytes": "2000000",
    }
    assert config.effective().get_int("num.partitions") == 3


def test_a_topic_property_sets_its_default() -> None:
    config = load_configuration(flags=["retention.ms=5", "durability=fsync"])
    assert config.properties == {"log.retention.ms": "5", "log.durability": "fsync"}
    assert config.effective().log_config({}).durability_fsync
    # A stronger source replaces it under either name.
    config = load_configuration(
        flags=["log.retention.ms=6"], environment={"TIDEWHEEL_BROKER_RETENTION_MS": "7"}
    )
    assert config.properties == {"log.retention.ms": "6"}


def test_all_mistakes_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(
            "log.retnetion.ms=4",
            "nonsense",
            "cleanup.policy=foo",
            text=(
                "# comment\nlog.retention.ms=abc\nssl.keystore.password=secret\n"
                "log.dirs=/tmp/a,/tmp/a\n"
            ),
            environment={"TIDEWHEEL_BROKER_NUM_PARTITION": "3"},
            folder=tmp_path,
        )
    file = tmp_path / "server.properties"
    assert caught.value.problems == (
        "--set nonsense: must have the form KEY=VALUE",
        f"{file}:2: Invalid value abc for configuration log.retention.ms: Not a number of type "
        "LONG (allowed: 1 or more, or -1)",
        f"{file}:3: ssl.keystore.password is a property of Apache Kafka that is refused here: this "
        "broker does not have this part of TLS; ignoring it could let somebody in",
        "environment variable TIDEWHEEL_BROKER_NUM_PARTITION: unknown property num.partition; "
        "did you mean num.partitions?",
        "--set: unknown property log.retnetion.ms; did you mean log.retention.ms or "
        "local.retention.ms or log.retention.minutes?",
        "--set: Invalid value foo for configuration log.cleanup.policy: String must be one of: "
        "compact, delete (allowed: a list of compact, delete)",
        f"{file}:4: log.dirs: names a folder twice",
    )
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("listeners=PLAINTEXT:9092", "'PLAINTEXT:9092' is not of the form NAME://host:port"),
        ("listeners=PLAINTEXT://h:70000", "is not of the form NAME://host:port"),
        ("listeners=", "needs at least one listener"),
        ("listeners=PLAINTEXT://a:1,PLAINTEXT://b:2", "the listener name PLAINTEXT is there twice"),
        ("listeners=USERS://a:1", "USERS has no entry in listener.security.protocol.map"),
        ("advertised.listeners=OTHER://h:1", "OTHER is not one of the listeners"),
        ("advertised.listeners=PLAINTEXT://0.0.0.0:1", "needs an address that clients can connect"),
        ("advertised.listeners=PLAINTEXT://:1", "not an empty one"),
        ("listener.security.protocol.map=PLAINTEXT", "is not of the form NAME:PROTOCOL"),
        ("group.min.session.timeout.ms=2000000", "is more than group.max.session.timeout.ms"),
        ("max.connections.per.ip.overrides=host", "'host' is not of the form address:count"),
        ("max.connections.per.ip=0", "max.connections.per.ip: nobody could connect"),
        ("max.connections.per.ip.overrides=[::1]:1,::2", "'::2' is not of the form"),
        ("max.connections=0", "Value must be at least 1"),
        ("log.dirs=", "needs the path of at least one folder"),
        ("log.dirs=/a,,/b", "needs the path of at least one folder"),
        ("remote.storage.enable=true", "refused here"),
        ("leader.replication.throttled.replicas=*", "can only be set on a topic"),
        ("zzz=1", "unknown property zzz; see docs/configuration.md"),
        ("node.id=-1", "Value must be at least 0"),
        ("process.roles=broker", "there is no quorum to join"),
    ],
)
def test_what_is_wrong_is_said(flag: str, words: str) -> None:
    assert any(words in problem for problem in problems([flag])), problems([flag])


def test_a_protocol_that_is_not_served_is_refused() -> None:
    found = problems(
        ["listeners=A://h:1", "listener.security.protocol.map=A:KERBEROS"],
    )
    assert found == [
        "--set: listeners: A asks for KERBEROS; PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL are served"
    ]


def test_listeners_are_named_by_what_they_stand_for() -> None:
    config = load_configuration(
        flags=[
            "listeners=PLAINTEXT://127.0.0.1:1,SASL_PLAINTEXT://h:2,USERS://h:3",
            "listener.security.protocol.map=USERS:SASL_PLAINTEXT",
        ]
    )
    assert [listener.security_protocol.has_sasl for listener in config.listeners] == [
        False,
        True,
        True,
    ]
    assert config.listeners[1].sasl_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert config.listeners[0].sasl_mechanisms == ()


def test_passwords_are_not_sent_in_the_clear() -> None:
    flags = ["sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", "listeners=SASL_PLAINTEXT://h:1"]
    assert problems(flags) == [
        "--set: sasl.enabled.mechanisms: PLAIN would send passwords in the clear to "
        "SASL_PLAINTEXT, which others can reach: listen at 127.0.0.1, or give the listener TLS"
    ]
    load_configuration(flags=[flags[0], "listeners=SASL_PLAINTEXT://localhost:1"])
    load_configuration(flags=[flags[0], "listeners=PLAINTEXT://h:1"])
    assert problems(["sasl.enabled.mechanisms=", "listeners=SASL_PLAINTEXT://h:1"]) == [
        "--set: sasl.enabled.mechanisms: clients of SASL_PLAINTEXT could not authenticate"
    ]


def test_one_source_may_not_contradict_itself() -> None:
    assert problems(["retention.ms=1", "log.retention.ms=2"]) == [
        "--set: log.retention.ms is set twice: --set has log.retention.ms=1"
    ]
    assert load_configuration(flags=["retention.ms=1", "log.retention.ms=1"]).properties == {
        "log.retention.ms": "1"
    }


def test_two_names_of_the_node() -> None:
    assert load_configuration(flags=["broker.id=5"]).node_id == 5
    config = load_configuration(flags=["node.id=5"])
    assert config.effective().get_int("broker.id") == 5
    assert problems(["node.id=5", "broker.id=6"]) == [
        "--set: broker.id: must be the same as node.id, which is 5"
    ]


def test_listeners() -> None:
    config = load_configuration(
        flags=[
            "listeners=plaintext://[::1]:0",
            "advertised.listeners=PLAINTEXT://broker.example:9092",
        ]
    )
    assert config.listeners == (Listener("PLAINTEXT", "::1", 0),)
    assert config.advertised_listeners == (Listener("PLAINTEXT", "broker.example", 9092),)


def test_what_is_advertised_can_be_asked_for() -> None:
    config = load_configuration(flags=["listeners=PLAINTEXT://:1"])
    assert config.advertised_listeners == config.listeners
    (first, *_) = config.effective().broker_synonyms("advertised.listeners")
    assert first == ("advertised.listeners", "PLAINTEXT://:1", 4)


def test_the_address_for_other_brokers_is_one_they_can_connect_to() -> None:
    config = load_configuration(flags=["inter.broker.listener=[::1]:7", "host.id=rack-3/slot-1"])
    assert config.inter_broker_listener == Listener("INTER_BROKER", "::1", 7)
    assert config.host_id == "rack-3/slot-1"
    for text in ("0.0.0.0:7", ":7", "[::]:7", "host", "host:70000", "PLAINTEXT://host:7"):
        with pytest.raises(ConfigurationError, match=r"inter\.broker\.listener"):
            load_configuration(flags=[f"inter.broker.listener={text}"])
    for text in ("127.0.0.1", "127.0.0.1:65536", "PLAINTEXT://127.0.0.1:7"):
        with pytest.raises(ConfigurationError, match="is not of the form host:port"):
            load_configuration(flags=[f"inter.broker.listener={text}"])


def test_brokers_meet_on_loopback_or_by_mutual_tls() -> None:
    with pytest.raises(ConfigurationError, match="mutual TLS"):
        load_configuration(flags=["inter.broker.listener=10.0.0.1:7"])
    files = {"certificate": "/c.pem", "key": "/k.pem", "ca": "/ca.pem"}
    flags = [f"inter.broker.tls.{name}={path}" for name, path in files.items()]
    config = load_configuration(flags=["inter.broker.listener=10.0.0.1:7", *flags])
    assert config.inter_broker_tls == TlsFiles("/c.pem", "/k.pem", "/ca.pem")
    assert load_configuration().inter_broker_tls is None
    with pytest.raises(ConfigurationError, match=r"inter\.broker\.tls\.ca: is missing"):
        load_configuration(flags=flags[:2])


def test_a_long_poll_is_shorter_than_what_watches_it() -> None:
    for name in ("replica.socket.timeout.ms", "replica.lag.time.max.ms"):
        with pytest.raises(ConfigurationError, match=f"500 is more than {name}=499"):
            load_configuration(flags=[f"{name}=499"])


def test_a_session_outlasts_some_heartbeats() -> None:
    flags = ["broker.heartbeat.interval.ms=700"]
    with pytest.raises(ConfigurationError, match=r"1500 is less than 3 times"):
        load_configuration(flags=flags)
    load_configuration(flags=[*flags, "broker.session.timeout.ms=2100"])


def test_the_address_of_the_metadata_store_is_kept_to_oneself() -> None:
    url = "postgresql://me:secret@localhost/cell"
    config = load_configuration(flags=[f"metadata.store.url={url}"])
    assert config.metadata_store_url == url
    assert BROKER_DEFINITIONS["metadata.store.url"].sensitive
    assert load_configuration().metadata_store_url is None


def test_what_has_no_effect_is_told_with_its_reason() -> None:
    config = load_configuration(flags=["num.io.threads=4", "num.partitions=1"])
    ((name, reason),) = config.moot_properties()
    assert name == "num.io.threads"
    assert "one event loop" in reason


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_configuration(file=tmp_path / "absent.properties")
    with pytest.raises(ConfigurationError, match=r"server.properties:1: \\uXYZ"):
        load(text="a=\\uXYZ\n", folder=tmp_path)


# The syntax of properties files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("  a : b ", [("a", "b ")]),
        ("a b", [("a", "b")]),
        ("a", [("a", "")]),
        ("a==b", [("a", "=b")]),
        ("#a=b\n!c=d\n\n  \n", []),
        ("a=1\\\n   2\\\n\t3", [("a", "123")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a\\=b\\ c=d", [("a=b c", "d")]),
        ("a=\\u00fc\\t\\q", [("a", "ü\tq")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=1\\", [("a", "1")]),
        ("=b", [("", "b")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_properties_as_java_reads_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(entry.key, entry.value) for entry in parse_properties(text)] == expected


def test_a_malformed_escape_has_its_line() -> None:
    with pytest.raises(MalformedProperties, match="line 2: "):
        parse_properties("a=1\nb=\\u12")


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        entries = parse_properties(text)
    except MalformedProperties:
        return
    assert all(1 <= entry.line <= len(text) + 1 for entry in entries)


def test_listeners_with_tls_have_a_certificate() -> None:
    assert problems(["listeners=SSL://h:1"]) == [
        "default: ssl.keystore.location: SSL needs a certificate: ssl.keystore.location, or "
        "ssl.keystore.certificate.chain with ssl.keystore.key, not both"
    ]
    assert problems(["listeners=SSL://h:1", "ssl.keystore.key=x"]) == [
        "default: ssl.keystore.certificate.chain: is missing: SSL needs the certificate and its key"
    ]
    config = load_configuration(
        flags=["listeners=SSL://h:1,SASL_SSL://h:2", "ssl.keystore.location=/k.pem"]
    )
    assert [one.tls for one in config.listeners] == [ListenerTls("/k.pem")] * 2
    # Passwords are safe in it.
    flags = ["listeners=SASL_SSL://h:2", "ssl.keystore.location=/k.pem"]
    load_configuration(flags=[*flags, "sasl.enabled.mechanisms=PLAIN"])


def test_a_listener_can_have_properties_of_its_own() -> None:
    flags = [
        "listeners=INSIDE://127.0.0.1:1,USERS://h:2",
        "listener.security.protocol.map=INSIDE:SASL_PLAINTEXT,USERS:SASL_SSL",
        "ssl.keystore.location=/all.pem",
        "ssl.client.auth=required",
        "listener.name.inside.sasl.enabled.mechanisms=PLAIN",
        "listener.name.users.ssl.keystore.location=/users.pem",
    ]
    inside, users = load_configuration(flags=flags).listeners
    assert inside.sasl_mechanisms == ("PLAIN",)
    assert users.sasl_mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    # Where SASL says who speaks a certificate is asked for by the listener's own property only.
    assert users.tls == ListenerTls("/users.pem")
    own = "listener.name.users.ssl.client.auth=required"
    assert problems([*flags, own]) == [
        "default: ssl.truststore.location: USERS needs the authorities of its clients: "
        "ssl.truststore.location or ssl.truststore.certificates, not both"
    ]
    config = load_configuration(flags=[*flags, own, "ssl.truststore.location=/ca.pem"])
    users_tls = config.listeners[1].tls
    assert users_tls is not None
    assert (users_tls.client_auth, users_tls.truststore) == ("required", "/ca.pem")
    assert not any(name.startswith("listener.name") for name in config.properties)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("listener.name.nobody.ssl.client.auth=none", "there is no such listener"),
        ("listener.name.plaintext.num.partitions=3", "refused"),
        ("listener.name.plaintext.ssl.client.auth=maybe", "must be one of"),
        ("ssl.keystore.type=JKS", "must be one of: PEM"),
        ("ssl.enabled.protocols=SSLv3", "must be one of"),
    ],
)
def test_what_cannot_be_of_tls_is_refused(flag: str, words: str) -> None:
    (problem,) = problems([flag])
    assert words in problem
