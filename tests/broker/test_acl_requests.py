"""CreateAcls, DescribeAcls and DeleteAcls. What is refused, and why, is as in Apache Kafka 4.3."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.admin import acls as acls_api
from data_plane.broker.admin.acl_filters import AclFilter
from data_plane.broker.request.authorizer import SUPER_USERS
from data_plane.cell.acls import (
    ACLS_MAX,
    NO_ACLS,
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    PatternType,
    Permission,
    ResourcePattern,
    TenantAcls,
    acls_added,
)
from data_plane.cell.changes import Change, UpdateFeature
from data_plane.cell.features import METADATA_VERSION, NEWEST_LEVEL, OPEN_LEVEL
from data_plane.cell.tenants import PutTenant, TenantImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from data_plane.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from data_plane.wire.messages.describe_acls_request import DescribeAclsRequest
from data_plane.wire.registry import ApiKey
from tests.broker.admin_player import AdminPlayer, Outcome
from tests.cell.cases import acls

TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
LITERAL, PREFIXED, MATCH = PatternType.LITERAL, PatternType.PREFIXED, PatternType.MATCH


def acl(
    name: str = "orders",
    kind: int = TOPIC,
    pattern_type: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    operation: int = AclOperation.READ,
    permission: int = Permission.ALLOW,
) -> Acl:
    return Acl(
        ResourcePattern(kind, pattern_type, name), AclEntry(principal, host, operation, permission)
    )


EVERYTHING = AclFilter(1, None, 1, None, None, 1, 1)


class Player(AdminPlayer):
    """Short forms of the three requests."""

    def __init__(self) -> None:
        super().__init__()
        self.commit(UpdateFeature(METADATA_VERSION, NEWEST_LEVEL))

    def commit(self, *changes: Change) -> None:
        services = self.services
        version = services.image.version
        image = services.store.apply(changes, version, f"after {version}")
        services.apply_image(image, self.now_ms)
        self.run_jobs()

    def create_acls(self, *created: Acl, version: int = 3) -> list[Outcome]:
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    resource_pattern_type=pattern.pattern_type,
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
                for pattern, entry in created
            ]
        )
        response = self.ask(ApiKey.CREATE_ACLS, version, request)
        return [(result.error_code, result.error_message) for result in response.results]

    def described(self, wanted: AclFilter = EVERYTHING, version: int = 3) -> list[Acl]:
        response = self.ask(ApiKey.DESCRIBE_ACLS, version, DescribeAclsRequest(**fields(wanted)))
        assert (response.error_code, response.error_message) == (0, None)
        return [
            acl(
                resource.resource_name,
                resource.resource_type,
                resource.pattern_type,
                entry.principal,
                entry.host,
                entry.operation,
                entry.permission_type,
            )
            for resource in response.resources
            for entry in resource.acls
        ]

    def delete_acls(self, *filters: AclFilter, version: int = 3) -> list[Any]:
        """Of each filter its outcome, or the ACLs that were deleted."""
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**fields(each)) for each in filters])
        response = self.ask(ApiKey.DELETE_ACLS, version, request)
        return [
            (result.error_code, result.error_message)
            if result.error_code
            else [
                acl(
                    match.resource_name,
                    match.resource_type,
                    match.pattern_type,
                    match.principal,
                    match.host,
                    match.operation,
                    match.permission_type,
                )
                for match in result.matching_acls
            ]
            for result in response.filter_results
        ]


def fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


OK: Outcome = (0, None)
ORDERS = acl()
PAY = acl("pay-", pattern_type=PREFIXED, principal="User:bob", operation=AclOperation.ALL)
DENIED = acl("*", GROUP, permission=Permission.DENY, host="10.0.0.1")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_made_listed_and_deleted(version: int) -> None:
    player = Player()
    created = player.create_acls(ORDERS, PAY, DENIED, ORDERS, version=version)
    assert created == [OK] * 4
    assert player.create_acls(PAY, version=version) == [OK]
    assert player.described(version=version) == sorted([ORDERS, PAY, DENIED])
    bobs = EVERYTHING._replace(principal="User:bob")
    assert player.described(bobs, version=version) == [PAY]
    # Two filters may mean the same.
    assert player.delete_acls(bobs, EVERYTHING._replace(resource_type=TOPIC), version=version) == [
        [PAY],
        sorted([ORDERS, PAY]),
    ]
    assert player.delete_acls(bobs, version=version) == [[]]
    assert player.described(version=version) == [DENIED]
    assert set(player.services.image.acls["default"]) == {DENIED}


def invalid(message: str) -> Outcome:
    return int(ErrorCode.INVALID_REQUEST), message


def test_what_cannot_be_an_acl_leaves_the_others() -> None:
    player = Player()
    outcomes = player.create_acls(
        acl("other", CLUSTER),
        acl(""),
        acl(kind=1),
        acl(kind=77),
        acl(pattern_type=MATCH),
        acl(operation=1),
        acl(permission=1),
        acl(principal="alice"),
        ORDERS,
    )
    assert outcomes == [
        invalid("The only valid name for the CLUSTER resource is kafka-cluster"),
        invalid("Invalid empty resource name"),
        invalid("Invalid resourceType ANY"),
        invalid("Invalid resourceType UNKNOWN"),
        invalid("Invalid patternType MATCH"),
        invalid("Invalid operation ANY"),
        invalid("Invalid permissionType ANY"),
        invalid(
            "Could not parse principal from `alice` (no colon is present separating the principal "
            "type from the principal name)"
        ),
        OK,
    ]
    assert player.described() == [ORDERS]
    assert player.delete_acls(
        EVERYTHING._replace(pattern_type=0), EVERYTHING._replace(operation=99), EVERYTHING
    ) == [invalid("Unknown patternFilter."), invalid("Unknown entryFilter."), [ORDERS]]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (EVERYTHING._replace(resource_type=0), "Unknown patternFilter."),
        (EVERYTHING._replace(permission=99), "Unknown entryFilter."),
    ],
)
def test_an_unknown_filter_is_refused_and_does_not_mean_nothing(
    wanted: AclFilter, words: str
) -> None:
    player = Player()
    player.create_acls(ORDERS)
    response = player.ask(ApiKey.DESCRIBE_ACLS, 3, DescribeAclsRequest(**fields(wanted)))
    assert (response.error_code, response.error_message) == (42, words)
    assert response.resources == []


def test_match_finds_all_that_is_about_a_name() -> None:
    player = Player()
    about = [acl("orders"), acl("*"), acl("or", pattern_type=PREFIXED)]
    player.create_acls(*about, acl("order"), acl("pay", pattern_type=PREFIXED), DENIED)
    match = EVERYTHING._replace(resource_type=TOPIC, name="orders", pattern_type=MATCH)
    assert player.described(match) == sorted(about)
    assert player.described(match._replace(pattern_type=PatternType.ANY)) == [acl("orders")]
    assert player.described(match._replace(pattern_type=PREFIXED)) == []
    assert player.delete_acls(match) == [sorted(about)]


def means(wanted: AclFilter, there: Acl) -> bool:
    """As ResourcePatternFilter.matches and AccessControlEntryFilter.matches."""
    (kind, pattern_type, of), (principal, host, operation, permission) = there
    if wanted.resource_type not in (1, kind) or wanted.pattern_type not in (1, 2, pattern_type):
        return False
    if wanted.name is not None:
        if wanted.pattern_type in (PatternType.ANY, pattern_type):
            if wanted.name != of:
                return False
        elif pattern_type == LITERAL:
            if of not in (wanted.name, "*"):
                return False
        elif not wanted.name.startswith(of):
            return False
    return (
        wanted.principal in (None, principal)
        and wanted.host in (None, host)
        and wanted.operation in (1, operation)
        and wanted.permission in (1, permission)
    )


FILTERS = st.builds(
    AclFilter,
    st.sampled_from([1, 1, *map(int, AclResourceType)]),
    st.sampled_from([None, "*", "o", "or", "orders", "ü", "kafka-cluster"]),
    st.sampled_from([*map(int, PatternType)]),
    st.sampled_from([None, None, "User:alice"]),
    st.sampled_from([None, None, "*"]),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([1, 1, 2]),
)


@settings(max_examples=300)
@given(st.lists(acls(), max_size=12, unique=True), FILTERS)
def test_a_filter_means_what_kafkas_means(there: list[Acl], wanted: AclFilter) -> None:
    tenant_acls = acls_added(NO_ACLS, there)
    assert isinstance(tenant_acls, TenantAcls)
    meant = sorted(each for each in there if means(wanted, each))
    assert sorted(wanted.matching(tenant_acls)) == meant
    assert wanted.cost(tenant_acls) >= len(meant)


def test_who_may_not_alter_the_cluster_changes_nothing() -> None:
    player = Player()
    others = acl("kafka-cluster", CLUSTER, operation=AclOperation.ALTER)
    player.commit(AddAcls("default", (others,)))
    failed = (31, "Cluster authorization failed.")
    assert player.create_acls(ORDERS, PAY) == [failed] * 2
    assert player.delete_acls(EVERYTHING) == [failed]
    response = player.ask(ApiKey.DESCRIBE_ACLS, 3, DescribeAclsRequest(**fields(EVERYTHING)))
    assert (response.error_code, response.resources) == (31, [])
    # Who may alter may describe; who may describe may not alter.
    everyone = others.entry._replace(principal="User:*", operation=AclOperation.DESCRIBE)
    player.commit(AddAcls("default", (Acl(others.pattern, everyone),)))
    assert len(player.described()) == 2
    assert player.create_acls(ORDERS) == [failed]


def test_a_tenant_sees_and_changes_its_own() -> None:
    player = Player()
    boss = {SUPER_USERS: "User:ANONYMOUS"}
    player.commit(
        PutTenant(TenantImage("acme", "acme", settings=boss)), AddAcls("default", (ORDERS,))
    )
    player.connection.namespace = "acme"
    assert player.described() == []
    assert player.create_acls(ORDERS, PAY) == [OK] * 2
    assert player.delete_acls(EVERYTHING._replace(name="orders")) == [[ORDERS]]
    action = acl("kafka-cluster", CLUSTER, operation=AclOperation.CLUSTER_ACTION)
    assert player.create_acls(action) == [(44, "CLUSTER_ACTION is for brokers only.")]
    assert player.described() == [PAY]
    player.connection.namespace = "default"
    assert player.described() == [ORDERS]


def test_a_cell_that_is_not_at_the_level_has_none() -> None:
    player = Player()
    player.commit(UpdateFeature(METADATA_VERSION, OPEN_LEVEL))
    words = "metadata.version 2 has no ACLs: finalize 3."
    assert player.create_acls(ORDERS) == [(54, words)]
    assert player.delete_acls(EVERYTHING) == [(54, words)]
    assert player.described() == []


def test_a_tenant_has_so_many_and_a_request_deletes_so_many() -> None:
    player = Player()
    many = [acl(f"t{n}") for n in range(ACLS_MAX - 1)]
    assert player.create_acls(*many) == [OK] * len(many)
    limit = (44, "The tenant has 10000 ACLs, and may have 10000.")
    assert player.create_acls(ORDERS, ORDERS, PAY, many[0]) == [OK, OK, limit, OK]
    assert len(player.described()) == ACLS_MAX
    too_much = (44, "The filters of this request mean too many ACLs: ask for fewer.")
    one = EVERYTHING._replace(resource_type=TOPIC, name="t1", pattern_type=LITERAL)
    nothing = EVERYTHING._replace(principal="User:nobody")
    wide = acls_api.LOOKED_AT_MAX // (2 * ACLS_MAX)
    answers = player.delete_acls(*[nothing] * wide, one, one)
    assert answers == [[]] * wide + [too_much] * 2
    assert player.delete_acls(one, EVERYTHING) == [[acl("t1")], too_much]
    assert len(player.described()) == ACLS_MAX - 1
    assert sum(map(len, player.delete_acls(EVERYTHING))) == ACLS_MAX - 1
