"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, as Apache Kafka answers them."""

from __future__ import annotations

from unittest import mock

import pytest

from data_plane.broker.admin.alter_configs import CONFIGURED_GROUPS_MAX
from data_plane.broker.admin.log_threshold import LogThreshold
from data_plane.broker.config.effective import EffectiveConfig
from data_plane.broker.config.topic_definitions import TOPIC_DEFINITIONS
from data_plane.broker.replicas.log_maintenance import NEVER_MS, LogMaintenance, cleaner_backoff_ms
from data_plane.cell.changes import AlterConfigs
from data_plane.cell.metadata import ResourceType
from data_plane.log.lanes import Lane
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_configs_request import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from data_plane.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from data_plane.wire.messages.incremental_alter_configs_request import (
    AlterConfigsResource as IncrementalResource,
)
from data_plane.wire.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    DELETE,
    GROUP,
    NODE,
    SET,
    SUBTRACT,
    TOPIC,
    AdminPlayer,
    Outcome,
    new_topic,
    synonyms,
)

E = ErrorCode
OK: Outcome = (0, None)
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def player() -> AdminPlayer:
    player = AdminPlayer()
    player.create(new_topic("cfg"))
    return player


def alter_all(
    player: AdminPlayer,
    resource_type: int,
    name: str,
    values: dict[str, str | None],
    version: int = 2,
) -> Outcome:
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[AlterableConfig(name=key, value=value) for key, value in values.items()],
            )
        ]
    )
    (result,) = player.ask(ApiKey.ALTER_CONFIGS, version, request).responses
    return result.error_code, result.error_message


# Describing


def test_a_topic_shows_every_property_with_its_source(player: AdminPlayer) -> None:
    result = player.describe(TOPIC, "cfg", documentation=True)
    assert (result.error_code, result.error_message) == (0, "")
    assert [config.name for config in result.configs] == sorted(TOPIC_DEFINITIONS)
    assert all(config.documentation for config in result.configs)
    assert all(not config.read_only for config in result.configs)
    by_name = {config.name: config for config in result.configs}
    retention = by_name["retention.ms"]
    assert (retention.value, retention.config_source) == (str(14 * DAY_MS), 5)
    segment = by_name["segment.bytes"]
    assert (segment.value, segment.config_source, segment.config_type) == ("1073741824", 5, 3)
    assert synonyms(segment) == [("log.segment.bytes", "1073741824", 5)]


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_of_describe(player: AdminPlayer, version: int) -> None:
    result = player.describe(TOPIC, "cfg", ["cleanup.policy"], version=version)
    (config,) = result.configs
    assert (config.name, config.value) == ("cleanup.policy", "delete")
    assert config.config_type == (7 if version >= 3 else 0)


def test_the_levels_of_a_value_as_apache_kafka(player: AdminPlayer) -> None:
    assert player.alter(BROKER, NODE, ("log.retention.ms", SET, "1000000")) == OK
    assert player.alter(BROKER, "", ("log.retention.ms", SET, "2000000")) == OK
    assert player.alter(TOPIC, "cfg", ("retention.ms", SET, "77777")) == OK
    broker_levels = [
        ("log.retention.ms", "1000000", 2),
        ("log.retention.ms", "2000000", 3),
        ("log.retention.hours", "336", 5),
    ]
    config = player.config(BROKER, NODE, "log.retention.ms")
    assert (config.value, config.config_source, config.read_only) == ("1000000", 2, False)
    assert synonyms(config) == broker_levels
    assert synonyms(player.config(TOPIC, "cfg", "retention.ms")) == [
        ("retention.ms", "77777", 1),
        *broker_levels,
    ]
    hours = player.config(BROKER, NODE, "log.retention.hours")
    assert (hours.value, hours.read_only) == ("336", True)
    assert synonyms(hours) == [("log.retention.hours", "336", 5)]
    assert player.config(BROKER, NODE, "log.retention.minutes").value is None
    defaults = player.describe(BROKER, "")
    assert [(config.name, config.value) for config in defaults.configs] == [
        ("log.retention.ms", "2000000")
    ]


def test_static_values_have_their_source() -> None:
    player = AdminPlayer({"num.partitions": "4"})
    config = player.config(BROKER, NODE, "num.partitions")
    assert (config.value, config.config_source, config.read_only) == ("4", 4, True)
    assert synonyms(config) == [("num.partitions", "4", 4), ("num.partitions", "1", 5)]


@pytest.mark.parametrize(
    ("resource_type", "name", "code", "message"),
    [
        (TOPIC, "nosuch", E.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (
            TOPIC,
            "",
            E.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (BROKER, "x", E.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (
            BROKER,
            "2",
            E.INVALID_REQUEST,
            f"Unexpected broker id, expected {NODE} or empty string, but received 2",
        ),
        (
            BROKER_LOGGER,
            "2",
            E.INVALID_REQUEST,
            f"Unexpected broker id, expected {NODE} but received 2",
        ),
        (BROKER_LOGGER, "", E.INVALID_REQUEST, "Broker id must not be empty"),
        (GROUP, "", E.INVALID_REQUEST, "Group name must not be empty"),
    ],
)
def test_resources_that_are_not_there_as_apache_kafka(
    player: AdminPlayer, resource_type: int, name: str, code: ErrorCode, message: str
) -> None:
    result = player.describe(resource_type, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])


def test_an_unknown_kind_of_resource_is_refused(player: AdminPlayer) -> None:
    assert player.describe(99, "x").error_code == E.INVALID_REQUEST


def test_only_the_keys_that_were_asked_for(player: AdminPlayer) -> None:
    every = player.describe(TOPIC, "cfg").configs
    assert len(every) == len(TOPIC_DEFINITIONS)
    # As Kafka has it, an empty list means all, too.
    assert player.describe(TOPIC, "cfg", []).configs == every
    assert len(player.describe(BROKER_LOGGER, NODE, []).configs) == 1
    assert player.describe(TOPIC, "cfg", ["nope"]).configs == []
    assert len(player.describe(TOPIC, "cfg", ["segment.ms", "nope"]).configs) == 1


def test_the_one_logger(player: AdminPlayer) -> None:
    (config,) = player.describe(BROKER_LOGGER, NODE).configs
    assert (config.name, config.value, config.config_source) == ("root", "INFO", 6)


def test_many_topics_are_described_one_by_one(player: AdminPlayer) -> None:
    player.create(*(new_topic(f"t{n}", configs={"retention.ms": str(n % 3)}) for n in range(200)))
    for version in (1, 2, 3, 4):
        names = [f"t{n}" for n in range(200)] + ["nosuch", "cfg", "t5"]
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=TOPIC, resource_name=name, configuration_keys=None
                )
                for name in names
            ]
        )
        results = player.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
        # A resource that is named twice is answered once.
        assert [result.resource_name for result in results] == names[:-1]
        for number, result in enumerate(results[:200]):
            configs = {config.name: config.value for config in result.configs}
            assert len(configs) == len(TOPIC_DEFINITIONS)
            assert configs["retention.ms"] == str(number % 3)
        assert (results[200].error_code, results[200].configs) == (3, [])


def test_naming_a_broker_again_and_again_costs_nothing(player: AdminPlayer) -> None:
    resources = [
        DescribeConfigsResource(
            resource_type=BROKER, resource_name=NODE.zfill(1 + n), configuration_keys=None
        )
        for n in range(1000)
    ] * 50
    request = DescribeConfigsRequest(resources=resources)
    pending = player.answered(player.send(ApiKey.DESCRIBE_CONFIGS, 4, request))
    assert pending.frames is not None
    assert sum(map(len, pending.frames)) < 1_500_000
    assert sum(result.error_code == 0 for result in pending.response.results) == 1


@pytest.mark.parametrize(
    ("broker", "logger", "operation", "level", "outcome"),
    [
        (NODE, "root", SET, "DEBUG", OK),
        (
            NODE,
            "root",
            SET,
            "LOUD",
            (
                E.INVALID_CONFIG,
                "Cannot set the log level of root to LOUD as it is not a supported log level. "
                "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
            ),
        ),
        (
            NODE,
            "no.such.logger",
            SET,
            "DEBUG",
            (E.INVALID_CONFIG, "Logger no.such.logger does not exist!"),
        ),
        (
            NODE,
            "root",
            APPEND,
            "INFO",
            (
                E.INVALID_REQUEST,
                "APPEND operation is not allowed for the BROKER_LOGGER resource",
            ),
        ),
        (
            NODE,
            "root",
            DELETE,
            None,
            (E.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
        ),
        (
            "2",
            "root",
            SET,
            "INFO",
            (E.INVALID_REQUEST, f"Unexpected node id. Expected {NODE}, but received 2"),
        ),
    ],
)
def test_log_levels_as_apache_kafka(
    player: AdminPlayer,
    broker: str,
    logger: str,
    operation: int,
    level: str | None,
    outcome: Outcome,
) -> None:
    threshold = player.services.log_threshold = LogThreshold("WARN")
    change = (logger, operation, level)
    assert player.alter(BROKER_LOGGER, broker, change, validate_only=True) == outcome
    assert threshold.level == "WARN"
    assert player.alter(BROKER_LOGGER, broker, change) == outcome
    expected = level if outcome == OK else "WARN"
    assert threshold.level == expected
    assert player.value(BROKER_LOGGER, NODE, "root") == expected
    assert player.services.image.configs == {}


def test_a_threshold_lets_pass_what_is_severe_enough() -> None:
    threshold = LogThreshold("WARN")
    methods = ("debug", "info", "warning", "error", "critical")
    assert [threshold.lets_pass(method) for method in methods] == [False, False, True, True, True]
    threshold.set("TRACE")
    assert all(threshold.lets_pass(method) for method in methods)


# Altering single values


@pytest.mark.parametrize(
    ("name", "operation", "value", "outcome"),
    [
        ("nope", SET, "1", (E.INVALID_CONFIG, "Unknown topic config name: nope")),
        (
            "segment.bytes",
            SET,
            "abc",
            (
                E.INVALID_CONFIG,
                "Invalid value abc for configuration segment.bytes: Not a number of type INT",
            ),
        ),
        (
            "segment.bytes",
            SET,
            None,
            (E.INVALID_REQUEST, "Null value not supported for : segment.bytes"),
        ),
        ("segment.bytes", DELETE, None, OK),
        ("retention.ms", DELETE, "7", OK),
        ("nope", DELETE, None, OK),
        ("cleanup.policy", APPEND, "compact", OK),
        (
            "cleanup.policy",
            APPEND,
            "foo",
            (
                E.INVALID_CONFIG,
                "Invalid value foo for configuration cleanup.policy: String must be one of: "
                "compact, delete",
            ),
        ),
        (
            "cleanup.policy",
            APPEND,
            None,
            (E.INVALID_REQUEST, "Null value not supported for : cleanup.policy"),
        ),
        (
            "segment.bytes",
            APPEND,
            "1",
            (
                E.INVALID_CONFIG,
                "Can't APPEND to key segment.bytes because its type is not LIST.",
            ),
        ),
        (
            "nope",
            SUBTRACT,
            "x",
            (E.INVALID_CONFIG, "Can't SUBTRACT to key nope because its type is not LIST."),
        ),
    ],
)
def test_single_changes_as_apache_kafka(
    player: AdminPlayer, name: str, operation: int, value: str | None, outcome: Outcome
) -> None:
    assert player.alter(TOPIC, "cfg", (name, operation, value), validate_only=True) == outcome


def test_lists_grow_and_shrink_from_the_value_in_force(player: AdminPlayer) -> None:
    for operation, item, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ):
        assert player.alter(TOPIC, "cfg", ("cleanup.policy", operation, item)) == OK
        assert player.value(TOPIC, "cfg", "cleanup.policy") == expected


@pytest.mark.parametrize(
    ("resource_type", "name", "key", "value", "outcome"),
    [
        (
            TOPIC,
            "nosuch",
            "retention.ms",
            "1",
            (E.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nosuch' does not exist."),
        ),
        (
            TOPIC,
            "bad name",
            "retention.ms",
            "1",
            (
                E.INVALID_TOPIC_EXCEPTION,
                "Topic name is invalid: 'bad name' contains one or more characters other than "
                "ASCII alphanumerics, '.', '_' and '-'",
            ),
        ),
        (
            TOPIC,
            "",
            "retention.ms",
            "1",
            (E.INVALID_REQUEST, "Default topic resources are not allowed."),
        ),
        (
            BROKER,
            NODE,
            "log.retention.ms",
            "abc",
            (
                E.INVALID_REQUEST,
                "Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
            ),
        ),
        (
            BROKER,
            "8",
            "log.retention.ms",
            "1",
            (E.INVALID_REQUEST, f"Unexpected broker id, expected {NODE}, but received 8"),
        ),
        (
            BROKER,
            "x",
            "log.retention.ms",
            "1",
            (E.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        ),
        (
            BROKER,
            NODE,
            "num.partitions",
            "3",
            (E.INVALID_REQUEST, "Cannot update these configs dynamically: [num.partitions]"),
        ),
        (
            BROKER,
            NODE,
            "authorizer.class.name",
            "org.example.Mine",
            (
                E.INVALID_CONFIG,
                "Broker config authorizer.class.name is not supported: this broker has one "
                "authorizer, and it is always there",
            ),
        ),
        (1, "x", "a", "b", (E.INVALID_REQUEST, "Unknown resource type 1")),
        (GROUP, "g", "consumer.session.timeout.ms", "50000", OK),
        (
            GROUP,
            "g",
            "consumer.session.timeout.ms",
            "5",
            (
                E.INVALID_CONFIG,
                "consumer.session.timeout.ms must be greater than or equal to "
                "group.consumer.min.session.timeout.ms",
            ),
        ),
        (
            GROUP,
            "",
            "consumer.session.timeout.ms",
            "50000",
            (E.INVALID_REQUEST, "Default group resources are not allowed."),
        ),
        (GROUP, "g", "nope", "1", (E.INVALID_CONFIG, "Unknown group config name: nope")),
    ],
)
def test_resources_as_apache_kafka(
    player: AdminPlayer, resource_type: int, name: str, key: str, value: str, outcome: Outcome
) -> None:
    assert player.alter(resource_type, name, (key, SET, value)) == outcome


def test_a_broker_property_without_a_meaning_is_stored_and_hidden(player: AdminPlayer) -> None:
    """As in Apache Kafka, where it may be a plug-in's; the log says that nobody reads it."""
    assert player.alter(BROKER, NODE, ("log.retnetion.ms", SET, "3")) == OK
    assert player.alter(BROKER, "", ("foo.bar", SET, "x"), ("log.retention.ms", SET, "9")) == OK
    for name, on, source in [
        ("log.retnetion.ms", NODE, 2),
        ("foo.bar", NODE, 3),
        ("foo.bar", "", 3),
    ]:
        config = player.config(BROKER, on, name)
        assert (config.value, config.config_source, config.config_type) == (None, source, 0)
        assert config.is_sensitive
        assert config.read_only
        assert config.documentation is None
        assert synonyms(config) == [(name, None, source)]
    assert [fields for _, event, fields in player.log.events if "unknown" in event] == [
        {"name": "log.retnetion.ms", "did_you_mean": "log.retention.ms"},
        {"name": "foo.bar", "did_you_mean": ""},
    ]
    assert player.value(BROKER, NODE, "log.retention.ms") == "9"
    assert player.alter(BROKER, NODE, ("log.retnetion.ms", DELETE, None)) == OK
    assert player.services.image.config_of("default", ResourceType.BROKER, NODE) == {}
    refused = (E.INVALID_CONFIG, "Unknown config name: foo.bar")
    assert player.alter(BROKER, "", ("foo.bar", APPEND, "y")) == refused


def test_properties_without_a_meaning_are_few_and_small(player: AdminPlayer) -> None:
    def stored() -> int:
        return len(player.services.image.config_of("default", ResourceType.BROKER, ""))

    hundred = [(f"foo.{index:03d}", SET, "x") for index in range(100)]
    assert player.alter(BROKER, "", *hundred, ("bar", SET, "x")) == (
        E.INVALID_CONFIG,
        "101 properties have no meaning here; at most 100 such can be stored",
    )
    assert player.alter(BROKER, "", *hundred) == OK
    assert player.alter(BROKER, "", ("bar", SET, "x")) == (
        E.INVALID_CONFIG,
        "101 properties have no meaning here; at most 100 such can be stored",
    )
    assert stored() == 100
    assert player.alter(BROKER, "", ("foo.000", DELETE, None), ("bar", SET, "x")) == OK
    large = (
        E.INVALID_CONFIG,
        "the properties that have no meaning here take 65537 characters; at most 65536 can be "
        "stored",
    )
    wide = ("foo.001", SET, "x" * 32_767)
    rest = 65_536 - 97 * 8 - (7 + 32_767) - (3 + 1) - 7
    assert (
        player.alter(BROKER, "", wide, ("bar", SET, "x"), ("foo.002", SET, "x" * (rest + 1)))
        == large
    )
    assert player.alter(BROKER, "", wide, ("bar", SET, "x"), ("foo.002", SET, "x" * rest)) == OK
    # What has a meaning is not counted, and another broker's are its own.
    assert player.alter(BROKER, "", ("log.retention.ms", SET, "9")) == OK
    assert player.alter(BROKER, NODE, ("bar", SET, "x")) == OK


def test_only_stored_properties_are_warned_of_and_only_ten(player: AdminPlayer) -> None:
    def warnings() -> list[tuple[str, dict[str, object]]]:
        return [(event, fields) for _, event, fields in player.log.events if "unknown" in event]

    dozen = [(f"foo.{index}", SET, "x") for index in range(12)]
    assert player.alter(BROKER, NODE, *dozen, ("num.io.threads", APPEND, "2"))[0] != 0
    assert player.alter(BROKER, NODE, *dozen, validate_only=True) == OK
    assert warnings() == []
    assert player.alter(BROKER, NODE, *dozen) == OK
    assert [event for event, _ in warnings()] == [
        *["unknown_broker_property"] * 10,
        "unknown_broker_properties_not_named",
    ]
    assert warnings()[-1][1] == {"count": 2}


@pytest.mark.parametrize("name", [f"0{NODE}", f" {NODE}", f"+{NODE}", f"0_{NODE}"])
def test_a_broker_has_one_name(player: AdminPlayer, name: str) -> None:
    """What is stored under another one would never be found."""
    assert player.alter(BROKER, name, ("log.retention.ms", SET, "1")) == (
        E.INVALID_REQUEST,
        f"Unexpected broker id, expected {NODE}, but received {name}",
    )


def test_the_replication_factor_is_the_one_that_topics_get(player: AdminPlayer) -> None:
    """The default is 3, but at most as many as there are brokers."""
    config = player.config(BROKER, NODE, "default.replication.factor")
    assert (config.value, config.config_source) == ("1", 5)
    assert synonyms(config) == [("default.replication.factor", "1", 5)]


def test_each_key_and_each_resource_once(player: AdminPlayer) -> None:
    assert player.alter(
        TOPIC, "cfg", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)
    ) == (E.INVALID_REQUEST, "Error due to duplicate config keys")
    request = IncrementalAlterConfigsRequest(
        resources=[IncrementalResource(resource_type=TOPIC, resource_name="cfg")] * 2
    )
    response = player.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    assert [(one.error_code, one.error_message) for one in response.responses] == [
        (E.INVALID_REQUEST, "Each resource must appear at most once.")
    ] * 2


def test_a_group_keeps_its_values(player: AdminPlayer) -> None:
    player.alter(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    config = player.config(GROUP, "g", "consumer.session.timeout.ms")
    assert (config.value, config.config_source) == ("50000", 8)
    assert synonyms(config) == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]


def test_so_many_groups_have_a_configuration(player: AdminPlayer) -> None:
    player.make_tenant("acme")
    values = (("consumer.session.timeout.ms", "46000"),)
    changes = [
        AlterConfigs(tenant, GROUP, f"g{number}", values)
        for tenant, count in (("default", CONFIGURED_GROUPS_MAX - 1), ("acme", 2))
        for number in range(count)
    ]
    image = player.services.store.apply(changes, player.services.image.version, "configure")
    player.services.apply_image(image, player.now_ms)
    wish = ("consumer.session.timeout.ms", SET, "50000")
    assert player.alter(GROUP, "last", wish)[0] == ErrorCode.NONE
    code, message = player.alter(GROUP, "more", wish)
    assert code == ErrorCode.POLICY_VIOLATION
    assert f"{CONFIGURED_GROUPS_MAX} groups" in (message or "")
    assert player.alter(GROUP, "g0", wish)[0] == ErrorCode.NONE
    assert player.alter(GROUP, "more", (wish[0], DELETE, None))[0] == ErrorCode.NONE
    assert player.alter(GROUP, "g0", (wish[0], DELETE, None))[0] == ErrorCode.NONE
    assert player.alter(GROUP, "more", wish)[0] == ErrorCode.NONE


def test_values_take_effect_on_open_logs_at_once(player: AdminPlayer) -> None:
    log = player.partition("cfg").log
    assert not log.config.durability_fsync
    player.alter(TOPIC, "cfg", ("durability", SET, "fsync"), ("retention.ms", SET, "5"))
    assert (log.config.durability_fsync, log.config.retention_ms) == (True, 5)
    player.alter(TOPIC, "cfg", ("retention.ms", DELETE, None))
    player.alter(BROKER, "", ("log.retention.ms", SET, "9"))
    assert log.config.retention_ms == 9
    player.alter(BROKER, NODE, ("log.retention.ms", SET, "8"))
    assert log.config.retention_ms == 8


def test_the_cleaner_s_pause_takes_effect_at_the_next_look(player: AdminPlayer) -> None:
    maintenance = LogMaintenance(player.services, dict.fromkeys(Lane, player.executor))
    maintenance.start(player.now_ms)
    player.services.components.append(maintenance)
    logs = player.services.logs
    with mock.patch.object(logs, "set_cleaner_backoff_ms") as set_backoff_ms:
        player.pass_time(3_000)
        assert not set_backoff_ms.called
        assert player.alter(BROKER, "", ("log.cleaner.backoff.ms", SET, "300")) == OK
        player.pass_time(1_000)
        set_backoff_ms.assert_called_once_with(300, mock.ANY)
    assert maintenance.next_deadline_ms() <= player.now_ms + 300


def test_without_a_cleaner_its_pause_has_no_end() -> None:
    assert cleaner_backoff_ms(EffectiveConfig({"log.cleaner.enable": "false"}, 0)) == NEVER_MS
    assert cleaner_backoff_ms(EffectiveConfig({}, 0)) == 15_000


def test_validate_only_changes_nothing(player: AdminPlayer) -> None:
    player.alter(TOPIC, "cfg", ("retention.ms", SET, "5"), validate_only=True)
    assert player.value(TOPIC, "cfg", "retention.ms") == str(14 * DAY_MS)


def test_values_survive_a_restart_of_the_store(player: AdminPlayer) -> None:
    player.alter(TOPIC, "cfg", ("retention.ms", SET, "5"))
    assert player.services.store.read().topics_of("default")["cfg"].configs == {"retention.ms": "5"}


# Replacing all values


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_takes_away_what_it_does_not_name(version: int) -> None:
    player = AdminPlayer()
    player.create(new_topic("cfg", configs={"segment.bytes": "2000000"}))
    assert alter_all(player, TOPIC, "cfg", {"retention.ms": "1000"}, version) == OK
    assert player.services.image.topics_of("default")["cfg"].configs == {"retention.ms": "1000"}
    assert alter_all(player, TOPIC, "cfg", {}, version) == OK
    assert player.services.image.topics_of("default")["cfg"].configs == {}


@pytest.mark.parametrize(
    ("resource_type", "name", "values", "outcome"),
    [
        (
            TOPIC,
            "cfg",
            {"retention.ms": None},
            (E.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        ),
        (TOPIC, "cfg", {"nope": "1"}, (E.INVALID_CONFIG, "Unknown topic config name: nope")),
        (
            TOPIC,
            "nosuch",
            {},
            (E.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nosuch' does not exist."),
        ),
        (
            BROKER,
            NODE,
            {"num.partitions": "3"},
            (E.INVALID_REQUEST, "Cannot update these configs dynamically: [num.partitions]"),
        ),
        (BROKER, "zz", {}, (E.INVALID_REQUEST, "Node id must be an integer, but it is: zz")),
        (BROKER_LOGGER, NODE, {}, (E.INVALID_REQUEST, "Unknown resource type 8")),
    ],
)
def test_alter_configs_refuses_as_apache_kafka(
    player: AdminPlayer,
    resource_type: int,
    name: str,
    values: dict[str, str | None],
    outcome: Outcome,
) -> None:
    assert alter_all(player, resource_type, name, values) == outcome


# Listing


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [(GROUP, "g"), (BROKER_LOGGER, NODE), (BROKER, NODE), (TOPIC, "cfg")]),
        ([TOPIC], [(TOPIC, "cfg")]),
        ([BROKER], [(BROKER, NODE)]),
    ],
)
def test_config_resources(
    player: AdminPlayer, types: list[int], expected: list[tuple[int, str]]
) -> None:
    player.alter(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    request = ListConfigResourcesRequest(resource_types=types)
    response = player.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, request)
    assert response.error_code == 0
    found = [(one.resource_type, one.resource_name) for one in response.config_resources]
    assert found == expected


def test_unknown_kinds_cannot_be_listed(player: AdminPlayer) -> None:
    response = player.ask(
        ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=[77])
    )
    assert (response.error_code, response.config_resources) == (E.UNSUPPORTED_VERSION, [])
