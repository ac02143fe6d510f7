"""DescribeConfigs (versions 1 to 4) and ListConfigResources (versions 0 and 1).

Shown are the properties that this broker knows, with where each value comes from: topic, this
broker, all brokers, start-up, default. Values of sensitive properties are never shown. Resources
are topics, brokers (the empty name: what is set for all brokers), a broker's loggers, and groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from data_plane.broker.admin.log_threshold import ROOT_LOGGER
from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS
from data_plane.broker.config.client_metrics_definitions import CLIENT_METRICS_DEFINITIONS
from data_plane.broker.config.definition import ConfigDefinition, Update, unknown_property
from data_plane.broker.config.effective import Source, Synonym, config_text, shown_value
from data_plane.broker.config.group_definitions import GROUP_DEFINITIONS, GROUP_SYNONYMS
from data_plane.broker.config.resources import why_not_authorized
from data_plane.broker.config.validation import effective_config
from data_plane.broker.request.api import Deferred, HandlerTable, KeptRequest, RequestContext
from data_plane.broker.request.frames import begin_frame, finish_frame
from data_plane.broker.request.large_requests import LargeRequest, sliced
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.request.splicing import ArrayPlace
from data_plane.broker.request.topic_names import invalid_name_reason
from data_plane.broker.services import Services
from data_plane.broker.topics.requested_replicas import NewPartitions, registered_brokers
from data_plane.cell.acls import AclOperation
from data_plane.cell.metadata import ResourceType
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    decode_describe_configs_request,
)
from data_plane.wire.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    encode_describe_configs_response,
)
from data_plane.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from data_plane.wire.messages.list_config_resources_response import (
    ConfigResource,
    ListConfigResourcesResponse,
)
from data_plane.wire.primitives import Reader, Writer
from data_plane.wire.registry import ApiKey

DESCRIBE_MIN_VERSION, DESCRIBE_MAX_VERSION = 1, 4
# Version 0 is ListClientMetricsResources by another name; there are none here.
LIST_MIN_VERSION, LIST_MAX_VERSION = 0, 1
FLEXIBLE_VERSION = 4

LOGGER_TYPE = 0


# Broker properties that everybody is told: what holds where a topic or a group says nothing, and
# the bounds of what its clients may ask for.
SHOWN_TO_ALL: Final = frozenset(
    {
        "auto.create.topics.enable",
        "compression.type",
        "default.replication.factor",
        "delete.topic.enable",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "group.min.session.timeout.ms",
        "log.cleanup.policy",
        "log.message.timestamp.type",
        "log.retention.bytes",
        "log.retention.ms",
        "log.segment.bytes",
        "message.max.bytes",
        "min.insync.replicas",
        "num.partitions",
        "offset.metadata.max.bytes",
        "offsets.retention.minutes",
    }
)


class _Entry(NamedTuple):
    """One property of a resource; the first synonym is in force."""

    definition: ConfigDefinition
    value: str | None
    source: Source
    read_only: bool
    synonyms: Sequence[Synonym]


def handle_describe_configs(
    services: Services,
    context: RequestContext,
    buf: bytearray | memoryview,
    position: int,
    end: int,
    now_ms: int,
) -> list[bytearray] | Deferred[Any]:
    """A raw handler: configurations that topics have in common are encoded once."""
    version = context.api_version
    if end - position > services.loop_bounds.request_bytes_max:
        return _describe_in_slices(services, context, buf, position, end)
    request = decode_describe_configs_request(Reader(buf, position, end), version)
    encoded: dict[Any, tuple[int, bytes]] = {}
    results = [
        _encode_result(services, context, request, resource, encoded)
        for resource in _different(request)
    ]
    return _frame(context, results)


def _different(request: DescribeConfigsRequest) -> list[DescribeConfigsResource]:
    """A resource that is named again and again is answered once: repetition must cost nothing."""
    return list({(one.resource_type, one.resource_name): one for one in request.resources}.values())


def _frame(context: RequestContext, results: list[bytearray]) -> list[bytearray]:
    version = context.api_version
    place = _results_place(version)
    writer = Writer()
    writer.buf += begin_frame(context.correlation_id, place.is_flexible)
    writer.buf += place.splice(_empty_response(version), len(results), results)
    finish_frame([writer.buf])
    return [writer.buf]


def _describe_in_slices(
    services: Services,
    context: RequestContext,
    buf: bytearray | memoryview,
    position: int,
    end: int,
) -> Deferred[Any]:
    version = context.api_version
    encoded: dict[Any, tuple[int, bytes]] = {}
    results: list[bytearray] = []
    requests: list[DescribeConfigsRequest] = []

    def decode(kept: KeptRequest) -> list[Sequence[DescribeConfigsResource]]:
        reader = Reader(kept.buf, position - kept.shift, end - kept.shift)
        requests.append(decode_describe_configs_request(reader, version))
        return sliced(_different(requests[0]))

    def handle(resources: Sequence[DescribeConfigsResource], now_ms: int) -> None:
        for resource in resources:
            results.append(_encode_result(services, context, requests[0], resource, encoded))

    kept = context.connection.keep(buf, position, end)
    return LargeRequest(
        services, context, kept, decode, handle, lambda: _frame(context, results)
    ).deferred


def _encode_result(
    services: Services,
    context: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    encoded: dict[Any, tuple[int, bytes]],
) -> bytearray:
    """One element of the array of results; `encoded` holds what other resources have as well."""
    version = context.api_version
    result = DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    refused = why_not_authorized(
        context, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
    )
    if refused is not None:
        result.error_code = int(refused.code)
        result.error_message = refused.message
        return _configs_place(version).splice(_encode_element(result, version), 0, ())
    key = _content_key(services, context, resource)
    configs = encoded.get(key)
    if configs is None:
        try:
            configs = _encode_configs(_configs(services, context, request, resource), version)
        except Refusal as refusal:
            result.error_code = int(refusal.code)
            result.error_message = refusal.message
            configs = (0, b"")
        else:
            encoded[key] = configs
    count, chunk = configs
    return _configs_place(version).splice(_encode_element(result, version), count, (chunk,))


def _content_key(
    services: Services, context: RequestContext, resource: DescribeConfigsResource
) -> Any:
    """Equal for resources with the same answer: topics or groups with the same overrides."""
    keys = resource.configuration_keys
    wanted = frozenset(keys or ())
    if resource.resource_type == ResourceType.TOPIC:
        topic = context.topics.by_name(resource.resource_name)
        if topic is not None:
            return ResourceType.TOPIC, frozenset(topic.configs.items()), wanted
    if resource.resource_type == ResourceType.GROUP and resource.resource_name:
        overrides = services.image.config_of(
            context.tenant, ResourceType.GROUP, resource.resource_name
        )
        return ResourceType.GROUP, frozenset(overrides.items()), wanted
    return resource.resource_type, resource.resource_name, wanted


def _configs(
    services: Services,
    context: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> list[DescribeConfigsResourceResult]:
    """Raises Refusal."""
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        return _loggers(services, resource)
    keys = resource.configuration_keys
    return [
        _config(entry, request)
        for entry in _entries(services, context, resource)
        # An empty list means all, too.
        if not keys or entry.definition.name in keys
    ]


def _encode_configs(
    configs: list[DescribeConfigsResourceResult], version: int
) -> tuple[int, bytes]:
    """(how many, their bytes)."""
    with_configs = _encode_element(DescribeConfigsResult(configs=configs), version)
    without = _encode_element(DescribeConfigsResult(), version)
    count = len(configs)
    return count, _configs_place(version).elements(with_configs, without, count)


def _encode_element(result: DescribeConfigsResult, version: int) -> bytes:
    writer = Writer()
    encode_describe_configs_response(writer, DescribeConfigsResponse(results=[result]), version)
    return _results_place(version).elements(writer.buf, _empty_response(version), 1)


@cache
def _empty_response(version: int) -> bytes:
    writer = Writer()
    encode_describe_configs_response(writer, DescribeConfigsResponse(), version)
    return bytes(writer.buf)


def _results_place(version: int) -> ArrayPlace:
    """Behind the results stand tags."""
    is_flexible = version >= FLEXIBLE_VERSION
    return ArrayPlace(is_flexible, int(is_flexible))


def _configs_place(version: int) -> ArrayPlace:
    """Behind a result's configs stand tags."""
    return _results_place(version)


def _entries(
    services: Services, context: RequestContext, resource: DescribeConfigsResource
) -> Iterable[_Entry]:
    """Raises Refusal."""
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic_entries(services, context, name)
        case ResourceType.BROKER:
            is_shown_all = context.may_see_cell
            if not name:
                return _default_broker_entries(services) if is_shown_all else ()
            _check_node(services, name, " or empty string,")
            entries = _broker_entries(services)
            return entries if is_shown_all else map(_virtual, filter(_is_for_all, entries))
        case ResourceType.GROUP:
            if not name:
                raise _invalid_request("Group name must not be empty")
            return _group_entries(services, context.tenant, name)
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise _invalid_request("Client metrics subscription name must not be empty")
            return [
                _Entry(one, one.default, Source.DEFAULT, False, [])
                for one in CLIENT_METRICS_DEFINITIONS
            ]
    raise _invalid_request(ErrorCode.INVALID_REQUEST.message)


def _topic_entries(services: Services, context: RequestContext, name: str) -> Iterable[_Entry]:
    reason = invalid_name_reason(name)
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    topic = context.topics.by_name(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    config = effective_config(services)
    return [
        _Entry(
            config.topics.definitions[property_name],
            value,
            source,
            False,
            config.topic_synonyms(property_name, topic.configs),
        )
        for property_name, value, source in config.topic_values(topic.configs)
    ]


def _broker_entries(services: Services) -> Iterable[_Entry]:
    config = effective_config(services)
    entries = []
    names = {*BROKER_DEFINITIONS, *config.broker_values(), *config.default_broker_values()}
    for name in sorted(names):
        definition = BROKER_DEFINITIONS.get(name) or unknown_property(name)
        synonyms = config.broker_synonyms(name)
        if name == "default.replication.factor" and synonyms[0].source is Source.DEFAULT:
            factor = NewPartitions(services, services.image).default_factor(name)
            synonyms = [Synonym(name, str(factor), Source.DEFAULT)]
        value, source = definition.default, Source.DEFAULT
        if synonyms:
            value, source = synonyms[0].value, synonyms[0].source
        read_only = definition.update is Update.READ_ONLY
        entries.append(_Entry(definition, value, source, read_only, synonyms))
    return entries


def _is_for_all(entry: _Entry) -> bool:
    return entry.definition.name in SHOWN_TO_ALL


def _virtual(entry: _Entry) -> _Entry:
    """As who does not see the cell is told: the value, and nothing of where it comes from."""
    name, value = entry.definition.name, entry.value
    synonyms = [] if value is None else [Synonym(name, value, Source.DEFAULT)]
    return _Entry(entry.definition, value, Source.DEFAULT, True, synonyms)


def _default_broker_entries(services: Services) -> Iterable[_Entry]:
    source = Source.DYNAMIC_DEFAULT_BROKER
    entries = []
    for name, text in sorted(effective_config(services).default_broker_values().items()):
        value = shown_value(name, text)
        definition = BROKER_DEFINITIONS.get(name) or unknown_property(name)
        read_only = definition.update is Update.READ_ONLY
        entries.append(_Entry(definition, value, source, read_only, [Synonym(name, value, source)]))
    return entries


def _group_entries(services: Services, tenant: str, group_id: str) -> Iterable[_Entry]:
    overrides = services.image.config_of(tenant, ResourceType.GROUP, group_id)
    config = effective_config(services)
    entries = []
    for name, definition in sorted(GROUP_DEFINITIONS.items()):
        synonyms = config.broker_synonyms(GROUP_SYNONYMS[name])
        if name in overrides:
            value = config_text(definition.parse(overrides[name]))
            synonyms.insert(0, Synonym(name, value, Source.GROUP))
        value, source = synonyms[0].value, synonyms[0].source
        entries.append(_Entry(definition, value, source, False, synonyms))
    return entries


def _loggers(
    services: Services, resource: DescribeConfigsResource
) -> list[DescribeConfigsResourceResult]:
    if not resource.resource_name:
        raise _invalid_request("Broker id must not be empty")
    _check_node(services, resource.resource_name, "")
    keys = resource.configuration_keys
    if keys and ROOT_LOGGER not in keys:
        return []
    return [
        DescribeConfigsResourceResult(
            name=ROOT_LOGGER,
            value=_log_level(services),
            config_source=int(Source.DYNAMIC_BROKER_LOGGER),
            config_type=LOGGER_TYPE,
            documentation=None,
        )
    ]


def _log_level(services: Services) -> str:
    threshold = services.log_threshold
    return services.config.get_str("logging.level") if threshold is None else threshold.level


def _check_node(services: Services, name: str, alternative: str) -> None:
    if not name.isdigit():
        raise _invalid_request(f"Broker id must be an integer, but it is: {name}")
    # One spelling only ("01" is not 1 here): the answers to one request are bounded by that.
    if name != str(services.node_id):
        raise _invalid_request(
            f"Unexpected broker id, expected {services.node_id}{alternative} but received {name}"
        )


def _config(entry: _Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    definition = entry.definition
    hidden = definition.sensitive
    return DescribeConfigsResourceResult(
        name=definition.name,
        value=None if hidden else entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=hidden,
        synonyms=[
            DescribeConfigsSynonym(
                name=synonym.name,
                value=None if hidden else synonym.value,
                source=int(synonym.source),
            )
            for synonym in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=int(definition.type),
        documentation=(definition.description or None) if request.include_documentation else None,
    )


def _invalid_request(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def handle_list_config_resources(
    services: Services, context: RequestContext, request: ListConfigResourcesRequest, now_ms: int
) -> ListConfigResourcesResponse:
    # All that are registered, as in Apache Kafka: a broker that is away has its properties, too.
    brokers = [str(node_id) for node_id in sorted(registered_brokers(services, services.image))]
    resources: Mapping[int, list[str]] = {
        int(ResourceType.GROUP): sorted(
            resource.name
            for resource in services.image.configs
            if resource.type == ResourceType.GROUP and resource.tenant == context.tenant
        ),
        int(ResourceType.CLIENT_METRICS): [],
        int(ResourceType.BROKER_LOGGER): brokers,
        int(ResourceType.BROKER): brokers,
        int(ResourceType.TOPIC): sorted(context.topics.by_names()),
    }
    if context.api_version == 0:
        wanted = [int(ResourceType.CLIENT_METRICS)]
    else:
        wanted = request.resource_types or list(resources)
    if any(resource_type not in resources for resource_type in wanted):
        return ListConfigResourcesResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION))
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type, names in resources.items()
            if resource_type in wanted
            for name in names
        ]
    )


def register(table: HandlerTable) -> None:
    table.register_raw(
        ApiKey.DESCRIBE_CONFIGS, DESCRIBE_MIN_VERSION, DESCRIBE_MAX_VERSION, handle_describe_configs
    )
    table.register(
        ApiKey.LIST_CONFIG_RESOURCES,
        LIST_MIN_VERSION,
        LIST_MAX_VERSION,
        handle_list_config_resources,
    )
