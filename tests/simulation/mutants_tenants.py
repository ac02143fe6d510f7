"""Planted bugs of tenants, their credentials and grants, and of what a control plane declares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from data_plane.broker.admin import declarations
from data_plane.broker.authentication.authentication import Authentication
from data_plane.broker.cell.tenant_deletions import TenantDeletions
from data_plane.broker.fetch import fetch_authorization, fetch_reads
from data_plane.broker.request.authorizer import Authorizer, Policy
from data_plane.broker.request.namespaces import Topics
from data_plane.cell.acls import acls_added
from data_plane.cell.credentials import Credential
from data_plane.cell.metadata import TopicImage
from data_plane.cell.tenant_deletion import deleting_tenants
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

# Where access changes while brokers come and go.
ACCESS = Options(
    brokers=3,
    faults=frozenset({"kill", "stop", "cut", "broken connection"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 1, 3),),
    extras=frozenset({"tenants"}),
)


def _grants_of_all(patch: Patch) -> None:
    """What one tenant has granted holds in every tenant."""
    original: Any = Policy.__init__

    def init(self: Any, name: str, acls: Any, tenant: Any, of_broker: Any) -> None:
        entries = _everybody.get("acls", {})
        for of_tenant in entries.values():
            more = [acl for acl in of_tenant if acl not in acls]
            acls = acls_added(acls, more)
        original(self, name, acls, tenant, of_broker)

    _everybody: dict[str, Any] = {}
    changed: Any = Authorizer.image_changed

    def image_changed(self: Any, old: Any, image: Any, now_ms: int) -> None:
        _everybody["acls"] = {
            tenant: {
                acl._replace(entry=acl.entry._replace(principal=f"User:user-{other}"))
                for other in ("acme", "beta")
                for acl in acls
            }
            for tenant, acls in image.acls.items()
        }
        changed(self, old, image, now_ms)

    patch.set(Policy, "__init__", init)
    patch.set(Authorizer, "image_changed", image_changed)


def _changes_of_acls_unheard(patch: Patch) -> None:
    """A broker has the ACLs of its start, and what comes later is not followed."""
    patch.set(Authorizer, "image_changed", lambda *_: None)


def _revoked_stay(patch: Patch) -> None:
    """Who is logged in stays so, whatever becomes of his credential."""
    patch.set(Authentication, "_follow", lambda *_: None)


def _disabled_log_in(patch: Patch) -> None:
    """A credential that is disabled is as good as any."""
    patch.set(Credential, "why_not_valid", lambda *_: "")


def _parked_fetch_keeps_its_rights(patch: Patch) -> None:
    """What a fetch might read when it came is given to it when it is answered."""
    original: Any = fetch_authorization.readable_of
    first: dict[int, tuple[Any, Any]] = {}

    def readable_of(context: Any, fetch_set: Any, targets: Any) -> Any:
        known = first.get(id(fetch_set))
        if known is None:
            found = original(context, fetch_set, targets)
            first[id(fetch_set)] = fetch_set, found
            return found
        refused = set(known[1][1])
        return (
            [target for target in targets if target not in refused],
            [target for target in targets if target in refused],
        )

    patch.set(fetch_reads, "readable_of", readable_of)


def _ids_open_everything(patch: Patch) -> None:
    """A topic's id is enough, whoever's the topic is."""

    def by_id(self: Any, topic_id: UUID) -> TopicImage | None:
        found: TopicImage | None = self._holder.image.topics_by_id.get(topic_id)
        return found

    patch.set(Topics, "by_id", by_id)


def _names_are_anybodys(patch: Patch) -> None:
    """A name is looked up among all tenants, the first that has it wins."""

    def by_name(self: Any, name: str) -> TopicImage | None:
        for topics in self._holder.image.topics_by_tenant.values():
            if name in topics:
                found: TopicImage = topics[name]
                return found
        return None

    patch.set(Topics, "by_name", by_name)


def _all_topics_are_shown(patch: Patch) -> None:
    """Metadata lists the topics of every tenant."""

    def by_names(self: Any) -> Any:
        return {topic.name: topic for topic in self._holder.image.topics_in_order()}

    patch.set(Topics, "by_names", by_names)


def _stale_applies_count(patch: Patch) -> None:
    """An earlier generation that comes late is taken for news."""
    original: Any = declarations._is_settled

    def is_settled(known: Any, next_one: Any) -> bool:
        if next_one.generation < known.generation and not known.is_deleted:
            return True
        return bool(original(known, next_one))

    patch.set(declarations, "_is_settled", is_settled)


def _deletions_end_with_their_broker(patch: Patch) -> None:
    """The deletion of a tenant is gone on with only by who was told of it, never again."""

    def image_changed(self: Any, old: Any, new: Any, now_ms: int) -> None:
        if deleting_tenants(new) and not deleting_tenants(old):
            self._look(now_ms)

    patch.set(TenantDeletions, "_image_changed", image_changed)
    patch.set(TenantDeletions, "_look_due", lambda *_: None)


TENANT_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "grants of another tenant",
        "what one tenant has granted holds in others",
        _grants_of_all,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "changes of ACLs are not followed",
        "an ACL change is lost on a broker that runs",
        _changes_of_acls_unheard,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "revoked credential keeps its connections",
        "who is logged in is served on after a revocation",
        _revoked_stay,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "disabled credential logs in",
        "a disabled credential lets its user in",
        _disabled_log_in,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "parked fetch keeps its rights",
        "a fetch that waits is answered by the ACLs of when it came",
        _parked_fetch_keeps_its_rights,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "topic ids open everything",
        "a topic is found by its id in every tenant",
        _ids_open_everything,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "names of any tenant",
        "a name is looked up without its tenant",
        _names_are_anybodys,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "topics of all tenants are shown",
        "metadata lists what is another tenant's",
        _all_topics_are_shown,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "late declarations are told to be done",
        "an earlier generation than the cell has is answered as unchanged",
        _stale_applies_count,
        options=ACCESS,
        is_quick=True,
    ),
    Mutant(
        "deletions of tenants stop half-way",
        "what a failed commit left of a tenant stays",
        _deletions_end_with_their_broker,
        options=ACCESS,
        is_quick=True,
    ),
)
