"""Declarations of all kinds in any order, repeated, late, over restarts: the last word counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from data_plane.broker.admin.declared import Outcome, Removal, Resource, Specification
from data_plane.broker.admin.declared_credentials import CredentialSpecification
from data_plane.broker.admin.declared_grants import GrantsSpecification
from data_plane.broker.admin.declared_quotas import QuotaSpecification, quota_name
from data_plane.broker.admin.declared_tenants import TenantSpecification
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell.acls import Acl, AclEntry, ResourcePattern
from data_plane.cell.client_quotas import QuotaEntity
from data_plane.cell.declarations import TENANT_KIND
from data_plane.cell.metadata import MetadataImage, decode_image, encode_image
from data_plane.cell.metadata_store import InMemoryMetadataStore
from data_plane.cell.tenant_deletion import next_removals
from data_plane.cell.tenants import PutTenant, TenantImage
from tests.broker.declaring_player import DeclaringPlayer
from tests.broker.sasl_player import credential

GENERATIONS_MAX = 4
VERIFIERS = [credential("alice", password).verifiers for password in ("one", "two", "three")]
ALICE = QuotaEntity("alice", None)


def acl(name: str) -> Acl:
    return Acl(ResourcePattern(2, 3, name), AclEntry("User:alice", "*", 3, 3))


def specification_of(kind: str, variant: int) -> Specification:
    """Variants that can follow each other in any order."""
    match kind:
        case "tenant":
            states = ("active", "read-only", "blocked")
            everybody = (None, True, False)
            return TenantSpecification("x-cluster", states[variant], "", everybody[variant])
        case "topic":
            configs: Sequence[Mapping[str, str]] = (
                {},
                {"retention.ms": "5"},
                {"segment.bytes": "2000000"},
            )
            return TopicSpecification(1, 0, configs[variant])
        case "credential":
            networks = ((), ("10.0.0.0/8",), ("::1/128",))
            return CredentialSpecification(
                "alice", VERIFIERS[variant], networks[variant], variant == 1
            )
        case "grants" | "more grants":
            names = (("a", "b"), ("b", "c"), ("a",))
            return GrantsSpecification(frozenset(map(acl, names[variant])))
        case "client quota":
            limits: Sequence[Mapping[str, float]] = (
                {"producer_byte_rate": 5},
                {"consumer_byte_rate": 5},
                {"producer_byte_rate": 6, "request_percentage": 7},
            )
            return QuotaSpecification(ALICE, limits[variant])
    return QuotaSpecification(None, {"partitions": variant + 1, "groups": 5})


NAMES = {
    "tenant": ("x", ""),
    "topic": ("acme", "orders"),
    "credential": ("acme", "alice@acme"),
    "grants": ("acme", "g"),
    "more grants": ("acme", "h"),
    "client quota": ("acme", quota_name(ALICE)),
    "quota": ("acme", ""),
}


class Call(NamedTuple):
    """`variant` None: the deletion."""

    kind: str
    generation: int
    variant: int | None

    def resource(self) -> Resource:
        assert self.variant is not None
        tenant, name = NAMES[self.kind]
        specification = specification_of(self.kind, self.variant)
        return Resource(self.kind.replace(" ", "-"), self.generation, tenant, name, specification)

    def removal(self) -> Removal:
        return Removal(self.kind.replace(" ", "-"), self.generation)


class HistoriesPlayer(DeclaringPlayer):
    """Has a tenant, and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.commit(lambda image: [PutTenant(TenantImage("acme", "acme-cluster"))])

    def restart(self) -> None:
        """The broker starts anew, with what is stored."""
        image = decode_image(encode_image(self.services.image))
        self.services.store = InMemoryMetadataStore(image)
        self.services.apply_image(image, self.now_ms)

    def call(self, calls: Sequence[Call]) -> list[Outcome]:
        """Those of one batch: all of them deletions, or none."""
        if calls[0].variant is None:
            return [one.outcome for one in self.delete_all([call.removal() for call in calls])]
        return [one.outcome for one in self.declare(*(call.resource() for call in calls))]

    def delete_tenants(self) -> None:
        while next_removals(self.services.image):
            self.commit(next_removals)


def observed(image: MetadataImage) -> Mapping[str, Any]:
    """What is there, but for what differs from one making to the next."""
    return {
        "tenants": {name: replace(one, made_at=0) for name, one in image.tenants.items()},
        "topics": {
            (topic.tenant, topic.name): (len(topic.partitions), dict(topic.configs))
            for topic in image.topics_by_id.values()
        },
        "credentials": image.credentials,
        "acls": {tenant: set(acls) for tenant, acls in image.acls.items()},
        "client quotas": image.client_quotas,
        # A deletion that came first does not know what the resource stood for.
        "resources": {
            resource_id: one.generation if one.is_deleted else one
            for resource_id, one in image.declarations.by_id.items()
        },
        "digest": image.declarations.digest(),
    }


@st.composite
def contents(draw: st.DrawFn) -> list[Call]:
    """Of each kind its generations in order, some of which end with a deletion."""
    calls = []
    for kind in sorted(draw(st.sets(st.sampled_from(sorted(NAMES)), min_size=1))):
        count = draw(st.integers(1, GENERATIONS_MAX))
        calls += [Call(kind, number + 1, draw(st.integers(0, 2))) for number in range(count)]
        if draw(st.booleans()):
            calls.append(Call(kind, count + 1, None))
    return calls


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Call], list[Call | None]]:
    """The calls as they were meant, and as they arrive: in another order, some of them again, with
    restarts (None) between them."""
    meant = draw(contents())
    again = draw(st.lists(st.sampled_from(meant), max_size=6))
    restarts: list[Call | None] = [None] * draw(st.integers(0, 3))
    return meant, draw(st.permutations([*meant, *again, *restarts]))


@settings(max_examples=80, deadline=None)
@given(histories())
def test_any_order_and_repetition_ends_as_the_highest_generation(
    history: tuple[list[Call], list[Call | None]],
) -> None:
    meant, arriving = history
    expected, player = HistoriesPlayer(), HistoriesPlayer()
    for one in meant:
        expected.call([one])
    expected.delete_tenants()
    over: set[str] = set()
    highest: dict[str, int] = {}
    for arrived in arriving:
        if arrived is None:
            player.restart()
            continue
        call = arrived
        (outcome,) = player.call([call])
        assert outcome is not Outcome.REFUSED
        assert outcome is not Outcome.CONFLICT
        if call.kind in over:
            assert outcome is (Outcome.UNCHANGED if call.variant is None else Outcome.GONE)
        elif call.generation < highest.get(call.kind, 0):
            assert outcome is Outcome.STALE
        elif call.variant is None:
            over.add(call.kind)
        highest[call.kind] = max(highest.get(call.kind, 0), call.generation)
        known = player.services.image.declarations.by_id[call.kind.replace(" ", "-")]
        assert known.is_deleted == (call.kind in over)
    player.delete_tenants()
    assert observed(player.services.image) == observed(expected.services.image)
    # All of it once more changes nothing.
    before = player.services.image
    for one in meant:
        player.call([one])
    assert player.services.image is before


@settings(max_examples=40, deadline=None)
@given(contents(), st.randoms(use_true_random=False))
def test_a_batch_comes_to_what_its_calls_come_to(meant: list[Call], random: Any) -> None:
    """The last generations of all kinds in one call, in any order, then all deletions in one."""
    one_by_one, at_once = HistoriesPlayer(), HistoriesPlayer()
    last = {call.kind: call for call in meant if call.variant is not None}
    deletions = [call for call in meant if call.variant is None]
    puts = list(last.values())
    random.shuffle(puts)
    for batch in (puts, deletions):
        for call in sorted(batch, key=lambda call: call.kind != TENANT_KIND):
            one_by_one.call([call])
        if batch:
            assert set(at_once.call(batch)) == {Outcome.DONE}
    assert observed(at_once.services.image) == observed(one_by_one.services.image)
