"""Changes as JSON-ready lists, for journals and feeds: the kind first, then the fields in order.

Each commit is written in the form of the metadata.version that is finalized when it is made
(features.py). From level 2 on an object with fields by name may end a change, as it may end a
broker or a partition. Those of a new topic that this version does not know stay with the topic;
other changes leave nothing behind that they could stay with.

A kind that this version does not know is TooNew. It cannot come before its level is finalized, and
that is not finalized while a broker is registered that does not support it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never
from uuid import UUID

from data_plane.cell.acls import AddAcls, RemoveAcls, decode_acls, encode_acls
from data_plane.cell.authors import NameAuthor, decode_author, encode_author
from data_plane.cell.changes import (
    AddPartitions,
    AllocateProducerIds,
    AlterConfigs,
    Assignment,
    Change,
    ChangeBroker,
    ChangePartition,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    UnregisterBroker,
    UpdateFeature,
)
from data_plane.cell.client_quotas import AlterClientQuotas, QuotaEntity, encode_entity
from data_plane.cell.credentials import (
    DeleteCredential,
    PutCredential,
    PutDecoyKey,
    decode_credential,
    decode_key,
    encode_credential,
    encode_key,
)
from data_plane.cell.declarations import (
    PutDeclaration,
    decode_declaration,
    encode_declaration,
)
from data_plane.cell.features import CLOSED_LEVEL, METADATA_VERSION, NEWEST_LEVEL, TooNew
from data_plane.cell.metadata import (
    decode_broker,
    decode_partition,
    encode_broker,
    encode_partition,
)
from data_plane.cell.named_fields import split_named, unknown_in, unknown_named
from data_plane.cell.tenant_quotas import PutTenantQuotas, decode_quotas, encode_quotas
from data_plane.cell.tenants import (
    TENANT_FIELD,
    DeleteTenant,
    PutTenant,
    PutTenantState,
    decode_tenant,
    encode_tenant,
    named_tenant,
    tenant_in,
    with_named,
)
from data_plane.cell.topic_deletions import ChangeDeletion, deletion_in, named_deletion
from data_plane.cell.topic_sources import SOURCE_FIELD, named_source, source_in


def encode_changes(changes: Iterable[Change], level: int) -> list[list[Any]]:
    """The changes of one commit, decided on an image of that metadata.version."""
    encoded = []
    for change in changes:
        encoded.append(encode_change(change, level))
        if isinstance(change, UpdateFeature) and change.name == METADATA_VERSION:
            level = change.level
    return encoded


def encode_change(change: Change, level: int) -> list[Any]:
    """A JSON-ready form, used by journals and feeds."""
    match change:
        case CreateTopic():
            configs = [[*pair] for pair in change.configs]
            assignments = _encode_assignments(change.assignments)
            created = ["create_topic", change.name, change.topic_id.hex, assignments, configs]
            named = {
                **unknown_named(change.unknown_fields),
                **named_tenant(change.tenant),
                **named_source(change.source_id),
            }
            return [*created, named] if named else created
        case DeleteTopic():
            fields = ["delete_topic", change.topic_id.hex]
            is_named = level > CLOSED_LEVEL and change.name
            return [*fields, {"tenant": change.tenant, "name": change.name}] if is_named else fields
        case ChangeDeletion():
            deletion = named_deletion(change.deletion, change.pause)
            return ["change_deletion", change.topic_id.hex, deletion]
        case AddPartitions():
            return ["add_partitions", change.topic_id.hex, _encode_assignments(change.assignments)]
        case AlterConfigs():
            values = [list(pair) for pair in change.values]
            resource = (int(change.resource_type), change.resource_name)
            return with_named(["alter_configs", *resource, values], change.tenant)
        case RegisterBroker():
            return ["register_broker", *encode_broker(change.broker, level)]
        case ChangeBroker():
            return ["change_broker", *encode_broker(change.broker, level)]
        case UnregisterBroker():
            return ["unregister_broker", change.node_id, change.broker_epoch]
        case ChangePartition():
            place = change.topic_id.hex, change.index
            return ["change_partition", *place, encode_partition(change.partition, level)]
        case AllocateProducerIds():
            return ["allocate_producer_ids", change.first_producer_id, change.count]
        case UpdateFeature():
            return ["update_feature", change.name, change.level]
        case PutTenant():
            return ["put_tenant", encode_tenant(change.tenant)]
        case DeleteTenant():
            return ["delete_tenant", change.name]
        case PutCredential():
            return ["put_credential", encode_credential(change.credential)]
        case DeleteCredential():
            return ["delete_credential", change.login]
        case PutDecoyKey():
            return ["put_decoy_key", encode_key(change.key)]
        case PutDeclaration():
            return ["put_declaration", encode_declaration(change.declaration)]
        case AddAcls():
            return ["add_acls", change.tenant, encode_acls(change.acls)]
        case RemoveAcls():
            return ["remove_acls", change.tenant, encode_acls(change.acls)]
        case PutTenantState():
            return ["put_tenant_state", change.tenant, change.state, change.reason]
        case PutTenantQuotas():
            return ["put_tenant_quotas", change.tenant, encode_quotas(change.quotas)]
        case AlterClientQuotas():
            entity, numbers = encode_entity(change.entity), [[*pair] for pair in change.values]
            return ["alter_client_quotas", change.tenant, *entity, numbers]
        case NameAuthor():
            return ["name_author", *encode_author(change.author)]
        case _:
            assert_never(change)


def decode_change(item: Sequence[Any]) -> Change:
    """The inverse of `encode_change`. Raises TooNew for a kind that it does not know."""
    kind = item[0]
    if kind in ("register_broker", "change_broker"):
        broker = decode_broker(item[1:])
        return RegisterBroker(broker) if kind == "register_broker" else ChangeBroker(broker)
    if kind == "put_tenant":
        return PutTenant(decode_tenant(item[1]))
    if kind == "put_credential":
        return PutCredential(decode_credential(item[1]))
    if kind == "put_declaration":
        return PutDeclaration(decode_declaration(item[1]))
    if kind == "put_tenant_quotas":
        return PutTenantQuotas(item[1], decode_quotas(item[2]))
    (_, *fields), named = split_named(item)
    match kind:
        case "create_topic":
            name, topic_id, runs, configs = fields
            pairs = tuple((key, value) for key, value in configs)
            assignments = _decode_assignments(runs)
            unknown = unknown_in(named, TENANT_FIELD, SOURCE_FIELD)
            source_id = source_in(named)
            return CreateTopic(
                tenant_in([named]), name, UUID(topic_id), assignments, pairs, unknown, source_id
            )
        case "delete_topic":
            return DeleteTopic(UUID(fields[0]), named.get("tenant", ""), named.get("name", ""))
        case "change_deletion":
            return ChangeDeletion(UUID(fields[0]), *deletion_in(named))
        case "add_partitions":
            return AddPartitions(UUID(fields[0]), _decode_assignments(fields[1]))
        case "alter_configs":
            resource_type, name, values = fields
            pairs = tuple((key, value) for key, value in values)
            return AlterConfigs(tenant_in([named]), resource_type, name, pairs)
        case "unregister_broker":
            return UnregisterBroker(*fields)
        case "change_partition":
            topic_hex, index, partition = fields
            return ChangePartition(UUID(topic_hex), index, decode_partition(partition))
        case "allocate_producer_ids":
            return AllocateProducerIds(fields[0], fields[1])
        case "update_feature":
            name, level = fields
            if name == METADATA_VERSION and level > NEWEST_LEVEL:
                raise TooNew(f"{name} {level}")
            return UpdateFeature(name, level)
        case "name_author":
            return NameAuthor(decode_author(fields))
        case "delete_tenant":
            return DeleteTenant(fields[0])
        case "delete_credential":
            return DeleteCredential(fields[0])
        case "put_decoy_key":
            return PutDecoyKey(decode_key(fields[0]))
        case "add_acls":
            return AddAcls(fields[0], decode_acls(fields[1]))
        case "remove_acls":
            return RemoveAcls(fields[0], decode_acls(fields[1]))
        case "put_tenant_state":
            return PutTenantState(*fields)
        case "alter_client_quotas":
            tenant, user, client_id, values = fields
            pairs = tuple((key, value) for key, value in values)
            return AlterClientQuotas(tenant, QuotaEntity(user, client_id), pairs)
        case _:
            raise TooNew(f"a change of unknown kind {kind!r}")


def _encode_assignments(assignments: Sequence[Assignment]) -> list[list[Any]]:
    """Runs of equal assignments as [count, replicas]: most partitions share theirs."""
    runs: list[list[Any]] = []
    for replicas in assignments:
        if runs and runs[-1][1] == list(replicas):
            runs[-1][0] += 1
        else:
            runs.append([1, list(replicas)])
    return runs


def _decode_assignments(runs: Sequence[Sequence[Any]]) -> tuple[Assignment, ...]:
    assignments: list[Assignment] = []
    for count, replicas in runs:
        assignments.extend([tuple(replicas)] * count)
    return tuple(assignments)
