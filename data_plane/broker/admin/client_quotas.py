"""DescribeClientQuotas and AlterClientQuotas, versions 0 and 1 (KIP-546).

They are those of the tenant whose connection asks. Outcomes and words are Apache Kafka's (4.3,
KRaft): an entity with any mistake is not changed at all, and the others of the request are. In the
protocol the name of a default is null, and no name is empty.

A limit that a control plane has declared is not changed here: POLICY_VIOLATION names its resource.

Deliberately absent: quotas of IP addresses, which are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from data_plane.broker.admin.declared_quotas import QuotaSpecification, quota_name
from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.broker.topics.ownership import managed
from data_plane.cell.acls import AclOperation
from data_plane.cell.changes import Change
from data_plane.cell.client_quotas import (
    CLIENT_ID,
    DEFAULT_NAME,
    NO_CLIENT_QUOTAS,
    USER,
    AlterClientQuotas,
    QuotaEntity,
    TenantClientQuotas,
    client_quotas_altered,
)
from data_plane.cell.declarations import QUOTA_KIND
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_client_quotas_request import AlterClientQuotasRequest
from data_plane.wire.messages.alter_client_quotas_request import EntryData as Alteration
from data_plane.wire.messages.alter_client_quotas_response import AlterClientQuotasResponse
from data_plane.wire.messages.alter_client_quotas_response import EntityData as AlteredEntity
from data_plane.wire.messages.alter_client_quotas_response import EntryData as Altered
from data_plane.wire.messages.describe_client_quotas_request import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from data_plane.wire.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 1
IP: Final = "ip"
# The protocol's numbers of how a component matches.
MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_SPECIFIED: Final = 2


class _Filter(NamedTuple):
    """By type: the name that is asked for, None for any."""

    names: dict[str, str | None]
    is_strict: bool

    def takes(self, entity: QuotaEntity) -> bool:
        there = _named(entity)
        if self.is_strict and len(there) != len(self.names):
            return False
        return all(
            kind in there and name in (None, there[kind]) for kind, name in self.names.items()
        )


def handle_describe(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest, now_ms: int
) -> DescribeClientQuotasResponse:
    try:
        if not context.may_to_cluster(AclOperation.DESCRIBE_CONFIGS):
            raise _denied()
        wanted = _filter_of(request)
    except Refusal as refusal:
        return DescribeClientQuotasResponse(
            error_code=int(refusal.code), error_message=refusal.message, entries=None
        )
    quotas = services.image.client_quotas.get(context.tenant, NO_CLIENT_QUOTAS)
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                entity=[
                    EntityData(entity_type=kind, entity_name=name or None)
                    for kind, name in _named(entity).items()
                ],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in quotas.items()
            if wanted.takes(entity)
        ],
    )


def _filter_of(request: DescribeClientQuotasRequest) -> _Filter:
    """Raises Refusal."""
    names: dict[str, str | None] = {}
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in names:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (USER, CLIENT_ID, IP):
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        names[kind] = _name_of(component)
    if IP in names and len(names) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return _Filter(names, request.strict)


def _name_of(component: ComponentData) -> str | None:
    match_type = component.match_type
    if match_type == MATCH_EXACT:
        if component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        # No entity has the empty name, which is that of defaults here.
        return component.match or "\0"
    if match_type not in (MATCH_DEFAULT, MATCH_SPECIFIED):
        raise _invalid(f"Unknown match type {match_type}")
    if component.match is not None:
        kind = "DEFAULT" if match_type == MATCH_DEFAULT else "SPECIFIED"
        raise _invalid(f"Request specified MATCH_TYPE_{kind}, but also specified a match string.")
    return DEFAULT_NAME if match_type == MATCH_DEFAULT else None


def handle_alter(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest, now_ms: int
) -> AlterClientQuotasResponse | Deferred[AlterClientQuotasResponse]:
    if not context.may_to_cluster(AclOperation.ALTER_CONFIGS):
        return AlterClientQuotasResponse(
            entries=[_altered(entry, _denied()) for entry in request.entries]
        )
    deferred: Deferred[AlterClientQuotasResponse] = Deferred()
    # A decision that raises leaves them as they are, and is an answer, too.
    outcomes: list[Refusal | None] = [None] * len(request.entries)

    def decide(image: MetadataImage) -> Sequence[Change]:
        nonlocal outcomes
        outcomes, changes = decide_alterations(image, context.tenant, request.entries)
        return () if request.validate_only else changes

    def done(error: BaseException | None) -> None:
        failed = None if error is None else commit_refusal(error)
        deferred.complete(
            AlterClientQuotasResponse(
                entries=[
                    _altered(entry, outcome or failed)
                    for entry, outcome in zip(request.entries, outcomes, strict=True)
                ]
            )
        )

    services.metadata.write(decide, done, author=context.author, cost=len(request.entries))
    return deferred


def decide_alterations(
    image: MetadataImage, tenant: str, entries: Sequence[Alteration]
) -> tuple[list[Refusal | None], list[Change]]:
    """What becomes of each entry, None when it is done, and the changes that do it."""
    quotas = image.client_quotas.get(tenant, NO_CLIENT_QUOTAS)
    outcomes: list[Refusal | None] = []
    changes: list[Change] = []
    seen: set[QuotaEntity] = set()
    for entry in entries:
        try:
            if image.metadata_level < TENANCY_LEVEL:
                raise Refusal(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"Client quotas need {METADATA_VERSION} {TENANCY_LEVEL}",
                )
            change = AlterClientQuotas(tenant, _entity_of(entry), _values_of(entry))
            if change.entity in seen:
                raise _invalid("Ignoring duplicate entity")
            seen.add(change.entity)
            _refuse_declared(image, change)
            quotas = _altered_quotas(quotas, change)
        except Refusal as refusal:
            outcomes.append(refusal)
        else:
            outcomes.append(None)
            changes.append(change)
    return outcomes, changes


def _refuse_declared(image: MetadataImage, change: AlterClientQuotas) -> None:
    """That a client may alter these values. Raises Refusal."""
    name = quota_name(change.entity)
    owned = image.declarations.owner_of(QUOTA_KIND, change.tenant, name)
    if owned is None:
        return
    declared = QuotaSpecification.from_text(owned.specification).limits
    altered = [key for key, value in change.values if key in declared and declared[key] != value]
    if altered:
        thing = f"{', '.join(sorted(altered))} of {change.entity}"
        raise managed(owned.resource_id, thing, "changed")


def _altered_quotas(quotas: TenantClientQuotas, change: AlterClientQuotas) -> TenantClientQuotas:
    altered = client_quotas_altered(quotas, change)
    if isinstance(altered, str):
        raise _invalid(altered)
    return altered


def _entity_of(entry: Alteration) -> QuotaEntity:
    """Raises Refusal."""
    names: dict[str, str] = {}
    for component in entry.entity:
        kind, name = component.entity_type, component.entity_name
        if kind == IP:
            raise _invalid("Quotas of IP addresses are not served")
        if kind not in (USER, CLIENT_ID):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT_NAME if name is None else name
    return QuotaEntity(names.get(USER), names.get(CLIENT_ID))


def _values_of(entry: Alteration) -> tuple[tuple[str, float | None], ...]:
    values: dict[str, float | None] = {}
    for op in entry.ops:
        if op.key in values:
            raise _invalid(f"Duplicate quota key {op.key}")
        values[op.key] = None if op.remove else op.value
    return tuple(values.items())


def _altered(entry: Alteration, refusal: Refusal | None) -> Altered:
    return Altered(
        error_code=0 if refusal is None else int(refusal.code),
        error_message=None if refusal is None else refusal.message,
        entity=[
            AlteredEntity(entity_type=one.entity_type, entity_name=one.entity_name)
            for one in entry.entity
        ],
    )


def _named(entity: QuotaEntity) -> dict[str, str]:
    pairs = ((USER, entity.user), (CLIENT_ID, entity.client_id))
    return {kind: name for kind, name in pairs if name is not None}


def _denied() -> Refusal:
    return Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def register(table: HandlerTable) -> None:
    table.register(ApiKey.DESCRIBE_CLIENT_QUOTAS, MIN_VERSION, MAX_VERSION, handle_describe)
    table.register(ApiKey.ALTER_CLIENT_QUOTAS, MIN_VERSION, MAX_VERSION, handle_alter)
