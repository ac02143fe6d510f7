"""What CellAdmin lists, of all kinds: declared and not, page by page."""

from __future__ import annotations

import pytest

from data_plane.broker.admin.declarations import decide_declarations
from data_plane.broker.admin.declared import Result
from data_plane.cell.acls import Acl, AclEntry, AddAcls, ResourcePattern
from data_plane.cell.changes import apply_changes
from data_plane.cell.client_quotas import AlterClientQuotas, QuotaEntity
from data_plane.cell.credentials import PutCredential
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import PutTenantState
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract.digests import digests_of
from data_plane.server import cell_admin_listing
from data_plane.server.cell_admin_listing import write_digest, write_page
from data_plane.server.cell_admin_messages import read_apply
from data_plane.server.cell_calls import BadRequest
from tests.broker.declaring_player import DeclaringPlayer
from tests.broker.sasl_player import credential

VERIFIERS = credential("alice", "secret").verifiers


def resource(kind: str, tenant: str = "acme", name: str = "") -> messages.Resource:
    return messages.Resource(
        resource_id=f"{kind}-{tenant}-{name}".replace("@", "-"),
        generation=1,
        tenant=tenant,
        name=name,
    )


def acl(name: str) -> messages.Acl:
    return messages.Acl(
        resource_type=2,
        pattern_type=3,
        name=name,
        principal="User:alice",
        host="*",
        operation=3,
        permission=3,
    )


def declared() -> list[messages.Resource]:
    tenant = resource("tenant")
    tenant.tenant_spec.cluster_id = "acme-cluster"
    tenant.tenant_spec.state = messages.TENANT_ACTIVE
    tenant.tenant_spec.super_users.append("User:boss")
    tenant.tenant_spec.allow_if_no_acl = False
    tenant.tenant_spec.undelete_ms = 0
    topic = resource("topic", name="orders")
    topic.topic.partitions = 2
    login = resource("credential", name="alice@acme")
    login.credential.principal = "alice"
    login.credential.networks.append("10.0.0.0/8")
    login.credential.expires_at_ms = 1 << 50
    verifier = VERIFIERS["SCRAM-SHA-512"]
    login.credential.verifiers.add(
        mechanism=messages.ScramVerifier.SCRAM_SHA_512,
        salt=verifier.salt,
        stored_key=verifier.stored_key,
        server_key=verifier.server_key,
        iterations=verifier.iterations,
    )
    grants = resource("grants", name="g")
    grants.grants.acls.extend([acl("orders"), acl("pay")])
    quota = resource("quota")
    quota.quota.limits["partitions"] = 10
    of_users = resource("quota-users")
    of_users.quota.entity.user = ""
    of_users.quota.limits["producer_byte_rate"] = 1000
    return [of_users, quota, grants, login, topic, tenant]


def image_of(*more: messages.Resource) -> MetadataImage:
    player = DeclaringPlayer()
    wanted = read_apply(messages.ApplyRequest(resources=[*declared(), *more]))
    results: list[Result] = []
    services = player.services
    image = services.image
    image = apply_changes(image, decide_declarations(services, image, wanted, results))
    assert {result.outcome for result in results} == {1}
    of_client = Acl(ResourcePattern(2, 3, "logs"), AclEntry("User:bob", "*", 3, 3))
    return apply_changes(
        image,
        [
            AddAcls("acme", (of_client,)),
            PutCredential(credential("bob", "secret")),
            AlterClientQuotas(
                "default", QuotaEntity(None, "loader"), (("request_percentage", 50),)
            ),
        ],
    )


def items(image: MetadataImage, size: int = 0, kind: int = 0) -> list[messages.Item]:
    found: list[messages.Item] = []
    token = ""
    while True:
        request = messages.ListRequest(page_size=size, page_token=token)
        request.kind = messages.Kind.ValueType(kind)
        page = write_page(image, request)
        found += page.items
        token = page.next_page_token
        if not token:
            return found


def test_all_kinds_are_listed_in_order_whatever_the_pages() -> None:
    image = image_of()
    found = items(image)
    shown = [(item.kind, item.resource.tenant, item.resource.resource_id) for item in found]
    assert shown == [
        (messages.KIND_TENANT, "acme", "tenant-acme-"),
        (messages.KIND_TENANT, "default", ""),
        (messages.KIND_TOPIC, "acme", "topic-acme-orders"),
        (messages.KIND_CREDENTIAL, "acme", "credential-acme-alice-acme"),
        (messages.KIND_CREDENTIAL, "default", ""),
        (messages.KIND_GRANTS, "acme", "grants-acme-g"),
        (messages.KIND_GRANTS, "acme", ""),
        (messages.KIND_QUOTA, "acme", "quota-acme-"),
        (messages.KIND_QUOTA, "acme", "quota-users-acme-"),
        (messages.KIND_QUOTA, "default", ""),
    ]
    for size in range(1, len(found) + 1):
        assert items(image, size) == found
    for kind in range(1, 6):
        assert items(image, 1, kind) == [item for item in found if item.kind == kind]
    with pytest.raises(BadRequest, match="kind: 9 is none"):
        items(image, kind=9)


def test_what_is_declared_and_what_there_is_are_shown_and_no_key_is() -> None:
    image = image_of()
    image = apply_changes(image, [PutTenantState("acme", "a later state", "why")])
    found = items(image)
    sent = {one.resource_id: one for one in declared()}
    for item in found:
        is_declared = item.resource.resource_id in sent
        assert item.resource.owner == (messages.API if is_declared else messages.CLIENT)
        if is_declared and item.kind != messages.KIND_CREDENTIAL:
            expected = sent[item.resource.resource_id]
            expected.owner = messages.API
            assert item.resource == expected
    tenant, default = found[0].tenant_now, found[1].tenant_now
    assert (tenant.state, tenant.state_reason) == (messages.TENANT_READ_ONLY, "why")
    assert (default.cluster_id, default.HasField("allow_if_no_acl")) == (image.cluster_id, False)
    for shown in (found[3].credential_now, found[3].resource.credential):
        assert (shown.principal, list(shown.networks)) == ("alice", ["10.0.0.0/8"])
        (verifier,) = shown.verifiers
        assert verifier.mechanism == messages.ScramVerifier.SCRAM_SHA_512
        assert verifier.iterations == 4096
    for item in found:
        for known in VERIFIERS.values():
            for secret in known[:3]:
                assert secret not in item.SerializeToString()
    assert [one.name for one in found[5].grants_now.acls] == ["orders", "pay"]
    assert [one.name for one in found[6].grants_now.acls] == ["logs"]
    assert dict(found[7].quota_now.limits) == {"partitions": 10}
    assert found[9].quota_now.entity.client_id == "loader"


def test_a_page_is_no_larger_than_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    image = image_of()
    found = items(image)
    monkeypatch.setattr(cell_admin_listing, "PAGE_BYTES_MAX", 1)
    page = write_page(image, messages.ListRequest())
    assert len(page.items) == 1
    assert items(image) == found


def test_digests_are_by_kind() -> None:
    image = image_of()
    before = write_digest(image)
    assert (before.resources, len(before.digest)) == (6, 32)
    counts = {of_kind.kind: of_kind.resources for of_kind in before.kinds}
    assert counts == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2}
    more = resource("quota", "default")
    more.quota.limits["partitions"] = 10
    after = write_digest(image_of(more))
    differ = [old.kind for old, new in zip(before.kinds, after.kinds, strict=True) if old != new]
    assert differ == [messages.KIND_QUOTA]
    assert after.digest != before.digest


def test_a_control_plane_computes_the_same_digests() -> None:
    image = image_of()
    answer = write_digest(image)
    assert digests_of(declared()) == {one.kind: one.digest for one in answer.kinds}
    changed = declared()
    changed[3].credential.verifiers[0].iterations += 1
    changed[4].generation = 2
    differ = digests_of(changed)
    assert {one.kind for one in answer.kinds if differ[one.kind] != one.digest} == {
        messages.KIND_CREDENTIAL,
        messages.KIND_TOPIC,
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: r[0].quota.entity.Clear(), "quota.entity: has neither user nor client_id"),
        (lambda r: r[0].quota.limits.clear(), "quota.limits: is missing"),
        (lambda r: setattr(r[1], "name", "x"), r"resources\[1\].name: a quota has none"),
        (lambda r: r[2].grants.acls.append(acl("pay")), r"grants.acls\[2\]: has the content of"),
        (lambda r: r[2].grants.Clear(), "grants.acls: 0 of them; give 1 to 1000"),
        (lambda r: setattr(r[2], "name", ""), r"resources\[2\].name: has 0 characters"),
        (lambda r: setattr(r[2], "name", "x" * 1025), "has 1025 characters, not 1 to 1024"),
        (lambda r: setattr(r[3].credential, "principal", ""), "credential.principal: is missing"),
        (
            lambda r: setattr(r[3].credential.verifiers[0], "mechanism", 0),
            r"verifiers\[0\].mechanism: 0 is none",
        ),
        (
            lambda r: r[3].credential.verifiers.append(r[3].credential.verifiers[0]),
            r"verifiers\[1\].mechanism: 2 is there before",
        ),
        (
            lambda r: setattr(r[4], "take_over", True),
            r"\[4\].take_over: a topic is taken over by take_over_topic_id",
        ),
        (lambda r: setattr(r[5].tenant_spec, "state", 4), "state: 4 cannot be declared"),
    ],
)
def test_bad_input_of_all_kinds_is_named(change: object, words: str) -> None:
    resources = declared()
    assert callable(change)
    change(resources)
    with pytest.raises(BadRequest, match=words):
        read_apply(messages.ApplyRequest(resources=resources))
