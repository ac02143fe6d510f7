"""CreateAcls, DescribeAcls and DeleteAcls, versions 1 to 3.

A tenant sees and changes its own ACLs, by the names that its clients use. They are in force on this
broker when the answer leaves. What each may be is Kafka's: cell/acls.py says what an ACL may be,
acl_filters.py what a filter means.

ACLs that a control plane has declared are not deleted here; each is answered by itself, with
POLICY_VIOLATION and its resource.

Bounds, each answered with POLICY_VIOLATION: a tenant has ACLS_MAX ACLs at most; the filters of one
DeleteAcls look at LOOKED_AT_MAX patterns and entries, and mean MATCHES_MAX ACLs, at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from data_plane.broker.admin.acl_filters import AclFilter
from data_plane.broker.cell.waiting_writes import COST_MAX
from data_plane.broker.request.api import Deferred, HandlerTable, LongAnswer, RequestContext
from data_plane.broker.request.authorizer import CLUSTER_NAME
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.broker.topics.ownership import managed
from data_plane.cell.acls import (
    ACLS_MAX,
    NO_ACLS,
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    RemoveAcls,
    ResourcePattern,
    TenantAcls,
    why_invalid_acl,
)
from data_plane.cell.changes import Change
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from data_plane.wire.messages.create_acls_response import AclCreationResult, CreateAclsResponse
from data_plane.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from data_plane.wire.messages.delete_acls_response import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsResponse,
)
from data_plane.wire.messages.describe_acls_request import DescribeAclsRequest
from data_plane.wire.messages.describe_acls_response import (
    AclDescription,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 1, 3

MATCHES_MAX: Final = ACLS_MAX
LOOKED_AT_MAX: Final = 20 * ACLS_MAX
# A tenant with more has them listed in a thread.
LISTED_HERE_MAX: Final = 200

_NOT_AUTHORIZED = Refusal(
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED.message
)
_TOO_MUCH = Refusal(
    ErrorCode.POLICY_VIOLATION, "The filters of this request mean too many ACLs: ask for fewer."
)


def _why_refused(services: Services, context: RequestContext) -> Refusal | None:
    """Why this request, as a whole, changes nothing."""
    if not context.may(AclOperation.ALTER, AclResourceType.CLUSTER, CLUSTER_NAME):
        return _NOT_AUTHORIZED
    level = services.newest_image.metadata_level
    if level < TENANCY_LEVEL:
        return Refusal(
            ErrorCode.SECURITY_DISABLED,
            f"{METADATA_VERSION} {level} has no ACLs: finalize {TENANCY_LEVEL}.",
        )
    return None


def handle_create_acls(
    services: Services, context: RequestContext, request: CreateAclsRequest, now_ms: int
) -> Deferred[CreateAclsResponse] | CreateAclsResponse:
    refusal = _why_refused(services, context)
    if refusal is not None:
        return _created(refusal for _ in request.creations)
    tenant = context.namespace
    wanted = [_acl_of(creation) for creation in request.creations]
    refusals = [why_not_created(tenant, acl) for acl in wanted]
    deferred: Deferred[CreateAclsResponse] = Deferred()
    outcomes: list[Refusal | None] = []

    def decide(image: MetadataImage) -> Sequence[Change]:
        outcomes[:] = refusals
        there = image.acls.get(tenant, NO_ACLS)
        known = image.tenant(tenant)
        acls_max = ACLS_MAX if known is None else min(ACLS_MAX, known.quotas.acls or ACLS_MAX)
        new: dict[Acl, None] = {}
        for index, acl in enumerate(wanted):
            if outcomes[index] is not None or acl in new or acl in there:
                continue
            count = there.count + len(new)
            if count >= acls_max:
                words = f"The tenant has {count} ACLs, and may have {acls_max}."
                outcomes[index] = Refusal(ErrorCode.POLICY_VIOLATION, words)
            else:
                new[acl] = None
        return [AddAcls(tenant, tuple(new))] if new else []

    def done(error: BaseException | None) -> None:
        failure = None if error is None else commit_refusal(error)
        deferred.complete(_created(outcome or failure for outcome in outcomes))

    services.metadata.write(decide, done, author=context.author, cost=len(wanted))
    return deferred


def _acl_of(creation: AclCreation) -> Acl:
    return Acl(
        ResourcePattern(
            creation.resource_type, creation.resource_pattern_type, creation.resource_name
        ),
        AclEntry(creation.principal, creation.host, creation.operation, creation.permission_type),
    )


def why_not_created(tenant: str, acl: Acl) -> Refusal | None:
    """Why a tenant cannot have this ACL, in Kafka's words where it has some."""
    pattern, entry = acl
    reason = ""
    if pattern.resource_type == AclResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        reason = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not pattern.name:
        reason = "Invalid empty resource name"
    reason = reason or why_invalid_acl(acl)
    if reason:
        return Refusal(ErrorCode.INVALID_REQUEST, reason)
    if entry.operation == AclOperation.CLUSTER_ACTION and tenant != DEFAULT_TENANT:
        return Refusal(ErrorCode.POLICY_VIOLATION, "CLUSTER_ACTION is for brokers only.")
    return None


def _created(outcomes: Iterable[Refusal | None]) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_message=None)
            if outcome is None
            else AclCreationResult(error_code=int(outcome.code), error_message=outcome.message)
            for outcome in outcomes
        ]
    )


def handle_describe_acls(
    services: Services, context: RequestContext, request: DescribeAclsRequest, now_ms: int
) -> Deferred[LongAnswer] | DescribeAclsResponse:
    if not context.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeAclsResponse(
            error_code=int(_NOT_AUTHORIZED.code), error_message=_NOT_AUTHORIZED.message
        )
    acls = services.image.acls.get(context.namespace, NO_ACLS)
    wanted = _filter_of(request)
    if wanted.why_unknown:
        return DescribeAclsResponse(
            error_code=int(ErrorCode.INVALID_REQUEST), error_message=wanted.why_unknown
        )

    def make() -> DescribeAclsResponse:
        return _described(acls, wanted)

    if acls.count <= LISTED_HERE_MAX:
        return make()
    answer: Deferred[LongAnswer] = Deferred()
    answer.complete(LongAnswer(make, context.connection.hold()))
    return answer


def _described(acls: TenantAcls, wanted: AclFilter) -> DescribeAclsResponse:
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    for pattern, entry in sorted(wanted.matching(acls)):
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
            )
        resource.acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def _filter_of(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def handle_delete_acls(
    services: Services, context: RequestContext, request: DeleteAclsRequest, now_ms: int
) -> Deferred[DeleteAclsResponse] | DeleteAclsResponse:
    refusal = _why_refused(services, context)
    if refusal is not None:
        return DeleteAclsResponse(filter_results=[_failed(refusal) for _ in request.filters])
    tenant = context.namespace
    filters = [_filter_of(each) for each in request.filters]
    deferred: Deferred[DeleteAclsResponse] = Deferred()
    results: list[list[Acl] | Refusal] = []
    managed_acls: dict[Acl, Refusal] = {}

    def decide(image: MetadataImage) -> Sequence[Change]:
        results[:] = _meant(filters, image.acls.get(tenant, NO_ACLS))
        managed_acls.clear()
        matches = [acl for result in results if not isinstance(result, Refusal) for acl in result]
        for acl in matches:
            granters = image.declarations.granters(tenant, acl)
            if granters:
                managed_acls[acl] = managed(min(granters), "The ACL", "deleted")
        matches = [acl for acl in matches if acl not in managed_acls]
        return [RemoveAcls(tenant, tuple(dict.fromkeys(matches)))] if matches else []

    def done(error: BaseException | None) -> None:
        failure = None if error is None else commit_refusal(error)
        deferred.complete(
            DeleteAclsResponse(
                filter_results=[
                    _failed(result)
                    if isinstance(result, Refusal)
                    else _failed(failure)
                    if failure is not None
                    else _deleted(result, managed_acls)
                    for result in results
                ]
            )
        )

    # Each of the filters may look at all that the tenant has.
    services.metadata.write(decide, done, author=context.author, cost=COST_MAX)
    return deferred


def _meant(filters: Sequence[AclFilter], acls: TenantAcls) -> list[list[Acl] | Refusal]:
    """What each filter means, or why it does not."""
    results: list[list[Acl] | Refusal] = []
    looked_at = matches_count = 0
    for wanted in filters:
        reason = wanted.why_unknown
        if reason:
            results.append(Refusal(ErrorCode.INVALID_REQUEST, reason))
            continue
        if looked_at >= LOOKED_AT_MAX:
            results.append(_TOO_MUCH)
            continue
        looked_at += wanted.cost(acls)
        matches = sorted(wanted.matching(acls))
        matches_count += len(matches)
        results.append(_TOO_MUCH if matches_count > MATCHES_MAX else matches)
    return results


def _failed(refusal: Refusal) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=int(refusal.code), error_message=refusal.message, matching_acls=[]
    )


def _deleted(acls: Iterable[Acl], refusals: Mapping[Acl, Refusal]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_message=None, matching_acls=[_match(acl, refusals.get(acl)) for acl in acls]
    )


def _match(acl: Acl, refusal: Refusal | None) -> DeleteAclsMatchingAcl:
    pattern, entry = acl
    return DeleteAclsMatchingAcl(
        error_code=0 if refusal is None else int(refusal.code),
        error_message=None if refusal is None else refusal.message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def register(table: HandlerTable) -> None:
    table.register(ApiKey.CREATE_ACLS, MIN_VERSION, MAX_VERSION, handle_create_acls)
    table.register(ApiKey.DESCRIBE_ACLS, MIN_VERSION, MAX_VERSION, handle_describe_acls)
    table.register(ApiKey.DELETE_ACLS, MIN_VERSION, MAX_VERSION, handle_delete_acls)
