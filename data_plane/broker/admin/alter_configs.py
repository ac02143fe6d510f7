"""AlterConfigs (versions 0 to 2) and IncrementalAlterConfigs (versions 0 and 1).

Both come down to the same: the overrides that a resource shall have from now on. AlterConfigs
names them all and takes the others away; IncrementalAlterConfigs sets, deletes, appends to and
subtracts from single ones. All resources that pass are committed together; values take effect when
the new image is applied, before the answer leaves.

The level of the one logger, `root`, is no metadata: it changes in this process until its next
start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from data_plane.broker.admin.log_threshold import ROOT_LOGGER, check_level
from data_plane.broker.cell.controller_settings import controller_settings
from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS
from data_plane.broker.config.definition import ConfigDefinition, ConfigType, parse_list
from data_plane.broker.config.group_definitions import GROUP_DEFINITIONS
from data_plane.broker.config.resources import why_not_authorized
from data_plane.broker.config.topic_bounds import TOPIC_BOUNDS, refuse_beyond_bounds
from data_plane.broker.config.validation import (
    CONNECTIONS_PER_IP,
    check_broker_values,
    check_connections_per_ip,
    check_fixed_values,
    check_group_values,
    check_levels,
    check_topic_values,
    check_unknown_properties,
    effective_config,
    similar_broker_property,
)
from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.namespaces import Held, Topics
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.request.topic_names import invalid_name_reason
from data_plane.broker.services import Services
from data_plane.broker.topics.ownership import refuse_declared_configs
from data_plane.broker.topics.virtual_rights import check_edit
from data_plane.cell.acls import AclOperation
from data_plane.cell.changes import AlterConfigs, Change
from data_plane.cell.metadata import ConfigResource, MetadataImage, ResourceType
from data_plane.cell.min_isr_changes import decide_min_isr_changes
from data_plane.cell.settings import MIN_INSYNC_REPLICAS
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages import alter_configs_request, incremental_alter_configs_request
from data_plane.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from data_plane.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from data_plane.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)
from data_plane.wire.registry import ApiKey

ALTER_MIN_VERSION, ALTER_MAX_VERSION = 0, 2
INCREMENTAL_MIN_VERSION, INCREMENTAL_MAX_VERSION = 0, 1

UNKNOWN_WARNINGS_MAX = 10
"""In the log, for one request."""

# Groups of a tenant that have a configuration of their own.
CONFIGURED_GROUPS_MAX = 1_000
_TOO_MANY_GROUPS = Refusal(
    ErrorCode.POLICY_VIOLATION,
    f"{CONFIGURED_GROUPS_MAX} groups have a configuration, which is the maximum.",
)


class Operation(IntEnum):
    """What an incremental change does with its value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Wish(NamedTuple):
    """One property of one resource; AlterConfigs only knows SET."""

    name: str
    operation: int
    value: str | None


class _Resource(NamedTuple):
    type: int
    name: str
    wishes: Sequence[_Wish]
    # Why its properties are none of the sender's business.
    refusal: Refusal | None


def _resource(
    context: RequestContext, resource_type: int, name: str, wishes: Sequence[_Wish]
) -> _Resource:
    return _Resource(
        resource_type,
        name,
        wishes,
        why_not_authorized(context, AclOperation.ALTER_CONFIGS, resource_type, name),
    )


class _Outcome(NamedTuple):
    resource: _Resource
    refusal: Refusal | None


def handle_alter_configs(
    services: Services,
    context: RequestContext,
    request: alter_configs_request.AlterConfigsRequest,
    now_ms: int,
) -> Deferred[AlterConfigsResponse]:
    resources = [
        _resource(
            context,
            resource.resource_type,
            resource.resource_name,
            [_Wish(config.name, Operation.SET, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    deferred: Deferred[AlterConfigsResponse] = Deferred()

    def respond(outcomes: Sequence[_Outcome]) -> None:
        responses = []
        for resource, refusal in outcomes:
            response = AlterConfigsResourceResponse(
                error_message=None, resource_type=resource.type, resource_name=resource.name
            )
            if refusal is not None:
                response.error_code = int(refusal.code)
                response.error_message = refusal.message
            responses.append(response)
        deferred.complete(AlterConfigsResponse(responses=responses))

    _alter(services, context, resources, False, request.validate_only, respond)
    return deferred


def handle_incremental_alter_configs(
    services: Services,
    context: RequestContext,
    request: incremental_alter_configs_request.IncrementalAlterConfigsRequest,
    now_ms: int,
) -> Deferred[IncrementalAlterConfigsResponse]:
    resources = [
        _resource(
            context,
            resource.resource_type,
            resource.resource_name,
            [
                _Wish(config.name, config.config_operation, config.value)
                for config in resource.configs
            ],
        )
        for resource in request.resources
    ]
    deferred: Deferred[IncrementalAlterConfigsResponse] = Deferred()

    def respond(outcomes: Sequence[_Outcome]) -> None:
        responses = []
        for resource, refusal in outcomes:
            response = IncrementalResourceResponse(
                error_message=None, resource_type=resource.type, resource_name=resource.name
            )
            if refusal is not None:
                response.error_code = int(refusal.code)
                response.error_message = refusal.message
            responses.append(response)
        deferred.complete(IncrementalAlterConfigsResponse(responses=responses))

    _alter(services, context, resources, True, request.validate_only, respond)
    return deferred


def _alter(
    services: Services,
    context: RequestContext,
    resources: Sequence[_Resource],
    incremental: bool,
    validate_only: bool,
    respond: Callable[[Sequence[_Outcome]], None],
) -> None:
    outcomes: list[_Outcome] = []
    levels: list[str | None] = []
    stored: list[AlterConfigs] = []

    def decide(image: MetadataImage) -> Sequence[Change]:
        outcomes.clear()
        levels.clear()
        changes: list[AlterConfigs] = []
        groups_left = None
        counts = Counter((resource.type, resource.name) for resource in resources)
        for resource in resources:
            try:
                if counts[resource.type, resource.name] > 1:
                    raise _invalid_request("Each resource must appear at most once.")
                if resource.refusal is not None:
                    raise resource.refusal
                if incremental and resource.type == ResourceType.BROKER_LOGGER:
                    levels.append(_decide_level(services, resource))
                else:
                    change = _decide(services, image, context.tenant, resource, incremental)
                    check_edit(context, image, change)
                    if _is_new_group(image, change):
                        if groups_left is None:
                            groups_left = _groups_left(image, context.tenant)
                        if groups_left <= 0:
                            raise _TOO_MANY_GROUPS
                        groups_left -= 1
                    if change.values:
                        changes.append(change)
            except Refusal as refusal:
                outcomes.append(_Outcome(resource, refusal))
            else:
                outcomes.append(_Outcome(resource, None))
        if validate_only:
            return ()
        stored[:] = changes
        settings = controller_settings(services.config)
        return [*changes, *decide_min_isr_changes(image, changes, settings)]

    def done(error: BaseException | None) -> None:
        if error is None:
            if not validate_only:
                _set_levels(services, levels)
                _warn_of_unknown_properties(services, stored)
            respond(outcomes)
        else:
            failed = commit_refusal(error)
            respond([_Outcome(resource, refusal or failed) for resource, refusal in outcomes])

    services.metadata.write(decide, done, author=context.author, cost=len(resources))


def _is_new_group(image: MetadataImage, change: AlterConfigs) -> bool:
    """Whether a group would be configured that is not."""
    resource = ConfigResource(change.tenant, change.resource_type, change.resource_name)
    is_group = change.resource_type == ResourceType.GROUP
    return is_group and bool(change.values) and resource not in image.configs


def _groups_left(image: MetadataImage, tenant: str) -> int:
    """How many more a tenant may configure. One is kept whether there is such a group or not."""
    there = (one.type == ResourceType.GROUP and one.tenant == tenant for one in image.configs)
    return CONFIGURED_GROUPS_MAX - sum(there)


def _decide(
    services: Services, image: MetadataImage, tenant: str, resource: _Resource, incremental: bool
) -> AlterConfigs:
    """The change of one resource. Raises Refusal."""
    # What a tenant calls so, unless it is a broker.
    owner = DEFAULT_TENANT if resource.type == ResourceType.BROKER else tenant
    names = [wish.name for wish in resource.wishes]
    if len(set(names)) != len(names):
        raise _invalid_request("Error due to duplicate config keys")
    nulls = [
        wish.name
        for wish in resource.wishes
        if wish.value is None and wish.operation != Operation.DELETE
    ]
    if nulls:
        raise _invalid_request(f"Null value not supported for : {','.join(nulls)}")
    definitions = _check_resource(services, image, tenant, resource)
    before = image.config_of(owner, resource.type, resource.name)
    after = dict(before) if incremental else {}
    for wish in resource.wishes:
        _fulfil(services, resource, definitions, after, wish)
    _check_values(services, resource, before, after)
    changed = [(name, value) for name, value in after.items() if before.get(name) != value]
    removed = [(name, None) for name in before if name not in after]
    if resource.type == ResourceType.TOPIC:
        touched = [name for name, _ in (*changed, *removed)]
        refuse_declared_configs(image, tenant, resource.name, touched)
        check_levels(effective_config(services).topics, image, (name for name, _ in changed))
        bounds = services.config.get_list(TOPIC_BOUNDS)
        refuse_beyond_bounds(tenant, bounds, dict(changed))
    if resource.type == ResourceType.BROKER:
        _check_min_isr(resource, {*names, *(name for name, _ in removed)}, after)
    return AlterConfigs(owner, resource.type, resource.name, (*changed, *removed))


def _check_min_isr(resource: _Resource, touched: set[str], after: Mapping[str, str]) -> None:
    """That all brokers go on agreeing on min.insync.replicas: who is in an ELR follows from it
    (KIP-966). Raises Refusal."""
    if MIN_INSYNC_REPLICAS not in touched:
        return
    if resource.name:
        words = f"Broker-level {MIN_INSYNC_REPLICAS} cannot be altered while ELR is enabled."
        raise Refusal(ErrorCode.INVALID_CONFIG, words)
    if MIN_INSYNC_REPLICAS not in after:
        words = f"Cluster-level {MIN_INSYNC_REPLICAS} cannot be removed while ELR is enabled."
        raise Refusal(ErrorCode.INVALID_CONFIG, words)


def _check_resource(
    services: Services, image: MetadataImage, tenant: str, resource: _Resource
) -> Mapping[str, ConfigDefinition]:
    """That the resource exists and can be altered; its definitions. Raises Refusal."""
    name = resource.name
    match resource.type:
        case ResourceType.TOPIC:
            if not name:
                raise _invalid_request("Default topic resources are not allowed.")
            reason = invalid_name_reason(name)
            if reason is not None:
                raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            if Topics(Held(image), tenant).by_name(name) is None:
                raise Refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
                )
            return effective_config(services).topics.definitions
        case ResourceType.BROKER:
            if name:
                _check_node(services, name, "broker id, expected")
            return BROKER_DEFINITIONS
        case ResourceType.GROUP:
            if not name:
                raise _invalid_request("Default group resources are not allowed.")
            return GROUP_DEFINITIONS
    raise _invalid_request(f"Unknown resource type {resource.type}")


def _decide_level(services: Services, resource: _Resource) -> str | None:
    """The level that the logger shall have; None when nothing is wished. Raises Refusal."""
    _check_node(services, resource.name, "node id. Expected")
    level = None
    for wish in resource.wishes:
        match wish.operation:
            case Operation.SET:
                level = wish.value or ""
                check_level(wish.name, level)
            case Operation.DELETE:
                if wish.name == ROOT_LOGGER:
                    raise _invalid_request(
                        f"Removing the log level of the {ROOT_LOGGER} logger is not allowed"
                    )
                raise Refusal(ErrorCode.INVALID_CONFIG, f"Logger {wish.name} does not exist!")
            case Operation.APPEND | Operation.SUBTRACT:
                operation = Operation(wish.operation)
                raise _invalid_request(
                    f"{operation.name} operation is not allowed for the BROKER_LOGGER resource"
                )
            case _:
                raise _invalid_request(f"Unknown config operation {wish.operation}")
    return level


def _set_levels(services: Services, levels: Sequence[str | None]) -> None:
    threshold = services.log_threshold
    for level in levels:
        if level is not None and threshold is not None:
            threshold.set(level)
            services.log.warning("log_level_changed", threshold=level)


def _warn_of_unknown_properties(services: Services, changes: Sequence[AlterConfigs]) -> None:
    """Say which properties are stored that nobody reads, and what was probably meant."""
    names = [
        name
        for change in changes
        if change.resource_type == ResourceType.BROKER
        for name, value in change.values
        if value is not None and name not in BROKER_DEFINITIONS
    ]
    for name in names[:UNKNOWN_WARNINGS_MAX]:
        near = similar_broker_property(name)
        services.log.warning("unknown_broker_property", name=name, did_you_mean=near)
    if len(names) > UNKNOWN_WARNINGS_MAX:
        more = len(names) - UNKNOWN_WARNINGS_MAX
        services.log.warning("unknown_broker_properties_not_named", count=more)


def _check_node(services: Services, name: str, words: str) -> None:
    """By the text: what was stored for broker 1 as "01" would never be found again."""
    try:
        int(name)
    except ValueError:
        raise _invalid_request(f"Node id must be an integer, but it is: {name}") from None
    if name != str(services.node_id):
        raise _invalid_request(f"Unexpected {words} {services.node_id}, but received {name}")


def _fulfil(
    services: Services,
    resource: _Resource,
    definitions: Mapping[str, ConfigDefinition],
    values: dict[str, str],
    wish: _Wish,
) -> None:
    """Change `values` as one wish says. Raises Refusal."""
    match wish.operation:
        case Operation.SET:
            assert wish.value is not None
            values[wish.name] = wish.value
        case Operation.DELETE:
            values.pop(wish.name, None)
        case Operation.APPEND | Operation.SUBTRACT:
            assert wish.value is not None
            operation = Operation(wish.operation)
            definition = definitions.get(wish.name)
            if definition is None and resource.type == ResourceType.BROKER:
                raise Refusal(ErrorCode.INVALID_CONFIG, f"Unknown config name: {wish.name}")
            if definition is None or definition.type is not ConfigType.LIST:
                raise Refusal(
                    ErrorCode.INVALID_CONFIG,
                    f"Can't {operation.name} to key {wish.name} because its type is not LIST.",
                )
            items = parse_list(_current(services, resource, definition, values))
            # Not `parse_list`: what is empty is refused with the value that comes out.
            for item in map(str.strip, wish.value.split(",")):
                if operation is Operation.SUBTRACT and item in items:
                    items.remove(item)
                elif operation is Operation.APPEND and item not in items:
                    items.append(item)
            values[wish.name] = ",".join(items)
        case _:
            raise _invalid_request(f"Unknown config operation {wish.operation}")


def _current(
    services: Services,
    resource: _Resource,
    definition: ConfigDefinition,
    values: Mapping[str, str],
) -> str:
    """The list that an append or a subtraction starts from: the value in force."""
    name = definition.name
    if name in values:
        return values[name]
    config = effective_config(services)
    if resource.type == ResourceType.TOPIC:
        return config.topic_value_text(name, {})
    if resource.type == ResourceType.BROKER:
        synonyms = config.broker_synonyms(name)
        return synonyms[0].value if synonyms else ""
    return definition.default or ""


def _check_values(
    services: Services,
    resource: _Resource,
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> None:
    """Raises Refusal. What stands unchanged was checked when it was set."""
    match resource.type:
        case ResourceType.TOPIC:
            properties = effective_config(services).topics
            check_topic_values(properties, after)
            check_fixed_values(properties, before, after)
        case ResourceType.BROKER:
            changed = {name: text for name, text in after.items() if before.get(name) != text}
            check_broker_values(changed, for_all_brokers=not resource.name)
            if any(before.get(name) != after.get(name) for name in CONNECTIONS_PER_IP):
                config = effective_config(services)
                check_connections_per_ip(config, after, for_all_brokers=not resource.name)
            if any(name not in BROKER_DEFINITIONS for name in changed):
                check_unknown_properties(after)
        case ResourceType.GROUP:
            check_group_values(effective_config(services), after)


def _invalid_request(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def register(table: HandlerTable) -> None:
    table.register(ApiKey.ALTER_CONFIGS, ALTER_MIN_VERSION, ALTER_MAX_VERSION, handle_alter_configs)
    table.register(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        INCREMENTAL_MIN_VERSION,
        INCREMENTAL_MAX_VERSION,
        handle_incremental_alter_configs,
    )
