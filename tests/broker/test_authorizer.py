"""Who may do what: against a reference that looks at every ACL; what is remembered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.request import authorizer
from data_plane.broker.request.authorizer import (
    ALLOW_EVERYONE,
    DECISIONS_MAX,
    REMEMBERED_CHARACTERS_MAX,
    SUPER_USERS,
    Authorizer,
    BrokerSettings,
)
from data_plane.broker.request.principal import Principal
from data_plane.cell.acls import (
    Acl,
    AclEntry,
    AclOperation,
    AclResourceType,
    AddAcls,
    PatternType,
    Permission,
    RemoveAcls,
    ResourcePattern,
)
from data_plane.cell.changes import Change, apply_changes
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import PutTenant, TenantImage
from tests.cell.cases import NEW_CELL, acls

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.1"
TOPIC, CLUSTER = AclResourceType.TOPIC, AclResourceType.CLUSTER
OPERATIONS = [each for each in AclOperation if each > AclOperation.ALL]
IMPLY_DESCRIBE = {
    AclOperation.DESCRIBE,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DELETE,
    AclOperation.ALTER,
}


@dataclass
class Holder:
    image: MetadataImage


def acl(
    name: str,
    operation: int = AclOperation.READ,
    *,
    permission: int = Permission.ALLOW,
    prefixed: bool = False,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: int = TOPIC,
) -> Acl:
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    pattern = ResourcePattern(resource_type, pattern_type, name)
    return Acl(pattern, AclEntry(principal, host, operation, permission))


# Of few things, so that several are about what is asked.
NEAR = st.builds(
    acl,
    st.sampled_from(["*", "o", "or", "orders"]),
    st.sampled_from(
        [
            AclOperation.ALL,
            AclOperation.READ,
            AclOperation.DESCRIBE,
            AclOperation.ALTER_CONFIGS,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.CLUSTER_ACTION,
        ]
    ),
    permission=st.sampled_from([Permission.DENY, Permission.ALLOW, Permission.ALLOW]),
    prefixed=st.booleans(),
    principal=st.sampled_from(["User:*", "User:alice", "User:bob"]),
    host=st.sampled_from(["*", HOST]),
)


class World:
    """An authorizer that follows images, as a broker has one."""

    def __init__(self, *changes: Change) -> None:
        self.holder = Holder(NEW_CELL)
        self.authorizer = Authorizer(self.holder)
        self.default = self.authorizer.of("default")
        self.acme = self.authorizer.of("acme")
        self.go(PutTenant(TenantImage("acme", "acme")), *changes)

    def go(self, *changes: Change) -> None:
        old = self.holder.image
        self.holder.image = apply_changes(old, changes)
        self.authorizer.image_changed(old, self.holder.image, 0)


def about(acl: Acl, resource_type: int, name: str) -> bool:
    kind, pattern_type, of = acl.pattern
    if kind != resource_type:
        return False
    return name.startswith(of) if pattern_type == PatternType.PREFIXED else of in (name, "*")


def says(acl: Acl, principal: str, host: str, operation: int) -> bool | None:
    """As StandardAuthorizerData.findResult: True to allow, False to deny, None to say nothing."""
    who, where, of, permission = acl.entry
    if who not in (principal, "User:*") or where not in ("*", host):
        return None
    allows = permission == Permission.ALLOW
    if of != AclOperation.ALL:
        if allows and operation == AclOperation.DESCRIBE:
            if of not in IMPLY_DESCRIBE:
                return None
        elif allows and operation == AclOperation.DESCRIBE_CONFIGS:
            if of not in (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS):
                return None
        elif of != operation:
            return None
    return allows


def expected(
    there: Iterable[Acl], principal: str, host: str, operation: int, kind: int, name: str
) -> bool | None:
    """None where the tenant's setting decides."""
    about_it = [each for each in there if about(each, kind, name)]
    if not about_it:
        return None
    said = {says(each, principal, host, operation) for each in about_it}
    return False not in said and True in said


@settings(max_examples=300)
@given(
    drawn=st.lists(st.one_of(acls(), NEAR, NEAR, NEAR), max_size=8, unique=True),
    principal=st.sampled_from([ALICE, BOB, Principal("User", "carol")]),
    host=st.sampled_from([HOST, "10.0.0.2"]),
    kind=st.sampled_from([TOPIC, TOPIC, *sorted(set(AclResourceType) - {AclResourceType.ANY})]),
    name=st.sampled_from(["orders", "orders", "or", "o", "x", "ü", "üb", "*", "kafka-cluster"]),
    everyone=st.sampled_from(["", "true", "false"]),
)
def test_as_a_look_at_every_acl_says(
    drawn: list[Acl], principal: Principal, host: str, kind: int, name: str, everyone: str
) -> None:
    tenant_settings = {ALLOW_EVERYONE: everyone} if everyone else {}
    tenants = [
        PutTenant(TenantImage("acme", "acme", settings=tenant_settings)),
        PutTenant(TenantImage("default", "cluster", settings=tenant_settings)),
    ]
    for tenant in ("default", "acme"):
        world = World(*tenants, AddAcls(tenant, tuple(drawn)))
        rights = world.authorizer.of(tenant)
        if_none = everyone == "true" if everyone else tenant == "default"
        for operation in OPERATIONS:
            answer = expected(drawn, str(principal), host, operation, kind, name)
            answer = if_none if answer is None else answer
            if tenant != "default" and operation == AclOperation.CLUSTER_ACTION:
                answer = False
            for _ in range(2):
                assert rights.may(principal, host, operation, kind, name) == answer
            if rights.is_open:
                assert answer


@settings(max_examples=200)
@given(drawn=st.lists(NEAR, max_size=6, unique=True), host=st.sampled_from([HOST, "10.0.0.2"]))
def test_somewhere_as_kafka_finds_it(drawn: list[Acl], host: str) -> None:
    world = World(AddAcls("acme", tuple(drawn)))
    for operation in (AclOperation.DESCRIBE, AclOperation.READ):
        theirs = [
            each
            for each in drawn
            if each.pattern.resource_type == TOPIC
            and each.entry.principal in (str(ALICE), "User:*")
            and each.entry.host in ("*", host)
            and each.entry.operation in (operation, AclOperation.ALL)
        ]
        allowed = {e.pattern for e in theirs if e.entry.permission == Permission.ALLOW}
        denied = {e.pattern for e in theirs if e.entry.permission == Permission.DENY}
        star = ResourcePattern(TOPIC, PatternType.LITERAL, "*")
        left = {
            pattern
            for pattern in allowed
            if not (pattern.pattern_type == PatternType.LITERAL and pattern in denied)
            and not any(
                each.pattern_type == PatternType.PREFIXED and pattern.name.startswith(each.name)
                for each in denied
            )
        }
        answer = star not in denied and (star in allowed or bool(left))
        hardcode = expected(drawn, str(ALICE), host, operation, TOPIC, "hardcode")
        assert world.acme.may_somewhere(ALICE, host, operation, TOPIC) == (answer or bool(hardcode))


def test_a_decision_lasts_as_long_as_what_it_was_made_from() -> None:
    world = World()
    assert world.default.is_open
    orders = acl("orders")
    for _ in range(2):
        assert not world.acme.may(ALICE, HOST, AclOperation.READ, TOPIC, "orders")
        world.go(AddAcls("acme", (orders,)))
        assert world.acme.may(ALICE, HOST, AclOperation.READ, TOPIC, "orders")
        assert not world.acme.may(BOB, HOST, AclOperation.READ, TOPIC, "orders")
        world.go(RemoveAcls("acme", (orders,)))
    world.go(PutTenant(TenantImage("acme", "acme", settings={SUPER_USERS: "User:x; User:bob"})))
    assert world.acme.may(BOB, HOST, AclOperation.READ, TOPIC, "orders")
    world.go(PutTenant(TenantImage("acme", "acme")))
    assert not world.acme.may(BOB, HOST, AclOperation.READ, TOPIC, "orders")


def test_a_grant_of_another_tenant_is_nobodys() -> None:
    world = World(AddAcls("default", (acl("*", AclOperation.ALL, principal="User:*"),)))
    assert not world.default.is_open
    assert world.default.may(ALICE, HOST, AclOperation.WRITE, TOPIC, "orders")
    assert not world.acme.may(ALICE, HOST, AclOperation.WRITE, TOPIC, "orders")
    assert world.authorizer.of("other").operations(ALICE, HOST, TOPIC, "orders") == 0
    # One tenant's denial closes nothing to another.
    world.go(
        AddAcls("acme", (acl("orders", permission=Permission.DENY, principal="User:*"),)),
        RemoveAcls("default", tuple(world.holder.image.acls["default"])),
    )
    assert world.default.is_open


def test_only_default_does_what_brokers_do_to_each_other() -> None:
    everything = acl("kafka-cluster", AclOperation.ALL, resource_type=CLUSTER)
    boss = {SUPER_USERS: "User:bob", ALLOW_EVERYONE: "true"}
    world = World(
        AddAcls("acme", (everything,)),
        AddAcls("default", (everything,)),
        PutTenant(TenantImage("acme", "acme", settings=boss)),
    )
    asked = (HOST, AclOperation.CLUSTER_ACTION, CLUSTER, "kafka-cluster")
    assert world.default.may(ALICE, *asked)
    assert not world.acme.may(ALICE, *asked)
    assert not world.acme.may(BOB, *asked)
    assert world.acme.may(BOB, HOST, AclOperation.ALTER, CLUSTER, "kafka-cluster")
    assert not world.acme.is_open


def test_so_many_decisions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DECISIONS_MAX == 65_536
    monkeypatch.setattr(authorizer, "DECISIONS_MAX", 10)
    world = World(AddAcls("acme", (acl("t", prefixed=True),)))
    rights = [world.default, world.acme]
    for n in range(50):
        assert world.acme.may(ALICE, HOST, AclOperation.READ, TOPIC, f"t{n}")
        assert world.default.may(ALICE, HOST, AclOperation.READ, TOPIC, f"t{n}")
        assert world.default.may_somewhere(ALICE, HOST, AclOperation.READ, TOPIC)
        remembered = sum(len(each._decisions) for each in rights)
        assert remembered == world.authorizer.decisions_count <= 10
    long = "t" * (REMEMBERED_CHARACTERS_MAX + 1)
    before = world.authorizer.decisions_count
    assert world.acme.may(ALICE, HOST, AclOperation.READ, TOPIC, long)
    assert world.authorizer.decisions_count == before
    world.go(PutTenant(replace(world.holder.image.tenants["acme"], state="blocked")))
    assert world.authorizer.decisions_count == len(world.default._decisions)


def test_a_look_up_does_not_look_at_all_acls() -> None:
    many = tuple(acl(f"topic-{n}-", prefixed=n % 2 == 0) for n in range(5000))
    world = World(AddAcls("acme", many))
    there = world.holder.image.acls["acme"]
    assert len(list(there.about(TOPIC, "topic-4242-x"))) == 1
    assert sum(map(len, there.prefix_lengths.values())) == 4
    assert world.acme.may(ALICE, HOST, AclOperation.READ, TOPIC, "topic-4242-x")
    assert not world.acme.may(ALICE, HOST, AclOperation.READ, TOPIC, "topic-4243-x")


def test_the_brokers_super_users_are_those_of_default() -> None:
    world = World()
    of_broker = BrokerSettings("User:alice; User:root", allows_everyone=False)
    held = Authorizer(world.holder, of_broker)
    default, acme = held.of("default"), held.of("acme")
    asked = (HOST, AclOperation.ALTER, CLUSTER, "kafka-cluster")
    assert not default.is_open
    assert default.may(ALICE, *asked)
    assert not default.may(BOB, *asked)
    assert not acme.may(ALICE, *asked)
    old = world.holder.image
    tenant = TenantImage("default", "cluster", settings={SUPER_USERS: "User:bob"})
    world.go(PutTenant(tenant))
    held.image_changed(old, world.holder.image, 0)
    assert default.may(ALICE, *asked)
    assert default.may(BOB, *asked)
    assert not default.may(Principal("User", "carol"), *asked)
