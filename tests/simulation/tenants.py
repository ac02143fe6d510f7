"""Tenants of one cell with the same names, whose credentials and grants a control plane changes.

    control plane   declares through any broker: later generations, old ones again, over and over
    user-acme       logs in, writes to and reads from `shared`, and tries the other tenant's topic
    user-beta       the same with a topic of that name that is another one
    guests          a tenant that is deleted with all it has, and made anew under its name

Every answer is judged by the image that its broker went by when it left, so what a broker has not
heard of yet excuses it, and nothing else does:

- who has no valid credential any more is answered nothing, not even what he has asked for before;
- records are given to whom the ACLs let read, and nobody else is told that he may not;
- what a user is shown and given is his tenant's; another one's topic is the same as none.

What the control plane was told is done stays done: generations never go back, and what was deleted
stays so, over failovers, recoveries and repeated calls. In the end every user writes and reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from data_plane.broker.admin.declarations import decide_declarations, decide_deletions
from data_plane.broker.admin.declared import Outcome, Removal, Resource, Result, Specification
from data_plane.broker.admin.declared_credentials import CredentialSpecification
from data_plane.broker.admin.declared_grants import GrantsSpecification
from data_plane.broker.admin.declared_tenants import TenantSpecification
from data_plane.broker.authentication.scram import salted_password, verifier_of
from data_plane.broker.topics.ownership import TopicSpecification
from data_plane.cell.acls import NO_ACLS, Acl, AclEntry, AclOperation, ResourcePattern
from data_plane.cell.changes import Change
from data_plane.cell.credentials import ScramVerifier
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.messages.metadata_request import MetadataRequest
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from data_plane.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from data_plane.wire.records import NewRecord, build_batch, decode_batch, iter_batch_headers
from data_plane.wire.registry import ApiKey
from tests.simulation.administrator import Administrator
from tests.simulation.client import SASL_PORT, Link
from tests.simulation.judged_client import JudgedClient

if TYPE_CHECKING:
    from tests.simulation.cell import Cell

TENANTS = ("acme", "beta")
GUESTS = "guests"
TOPIC = "shared"
MAX_WAIT_MS = 400
FOREIGN_CHANCE = 0.15
AGAIN_CHANCE = 0.3
GUESTS_CHANCE = 0.2
_SALT = b"salt"
E = ErrorCode


def login_of(tenant: str) -> str:
    return f"key-{tenant}"


def _verifiers(tenant: str) -> dict[str, ScramVerifier]:
    mechanism, password = "SCRAM-SHA-256", login_of(tenant).encode()
    salted = salted_password(mechanism, password, _SALT, 4096)
    return {mechanism: verifier_of(mechanism, salted, _SALT, 4096)}


def _acl(tenant: str, operation: int) -> Acl:
    entry = AclEntry(f"User:user-{tenant}", "*", operation, 3)
    return Acl(ResourcePattern(2, 3, TOPIC), entry)


READ, WRITE = int(AclOperation.READ), int(AclOperation.WRITE)


class ControlPlane(Administrator):
    """See the module."""

    interval_ms = 60

    def __init__(self, cell: Cell, name: str) -> None:
        super().__init__(cell, name)
        self._verifiers = {tenant: _verifiers(tenant) for tenant in TENANTS}
        # By resource id: all that was declared of it, in order; the last one is meant.
        self._declared: dict[str, list[Resource]] = {}
        self._done: dict[str, int] = {}
        self._deleted: dict[str, int] = {}
        self._wants_deleted: set[str] = set()
        self._guests_count = 0
        for tenant in TENANTS:
            self._declare(tenant, "tenant", "", TenantSpecification(f"{tenant}-cluster"))
            self._declare(tenant, "topic", TOPIC, TopicSpecification(1, 3))
            self._declare_access(tenant, is_disabled=False, operations=(READ, WRITE))

    @property
    def is_settled(self) -> bool:
        image = self.cell.store.image
        guests = image.tenants.get(GUESTS)
        is_clean = guests.is_active if guests is not None else not image.topics_of(GUESTS)
        return is_clean and all(
            self._deleted.get(resource_id)
            if resource_id in self._wants_deleted
            else self._done.get(resource_id) == len(generations)
            for resource_id, generations in self._declared.items()
        )

    def _declare(self, tenant: str, kind: str, name: str, specification: Specification) -> None:
        resource_id = f"{kind}-{tenant}"
        generations = self._declared.setdefault(resource_id, [])
        generations.append(Resource(resource_id, len(generations) + 1, tenant, name, specification))

    def _declare_access(self, tenant: str, *, is_disabled: bool, operations: Sequence[int]) -> None:
        credential = CredentialSpecification(
            f"user-{tenant}", self._verifiers[tenant], is_disabled=is_disabled
        )
        self._declare(tenant, "credential", login_of(tenant), credential)
        acls = frozenset(_acl(tenant, operation) for operation in operations)
        self._declare(tenant, "grants", "g", GrantsSpecification(acls))

    def start(self) -> None:
        super().start()
        self._repeat()

    def stop(self) -> None:
        """The last word: everybody may do everything."""
        super().stop()
        for tenant in TENANTS:
            self._declare_access(tenant, is_disabled=False, operations=(READ, WRITE))

    def _repeat(self) -> None:
        """Say what is not known to be done, again and again: that is what ends a history."""
        self.world.at(100_000, self._repeat)
        for resource_id, generations in self._declared.items():
            if resource_id in self._wants_deleted:
                if resource_id not in self._deleted:
                    self._delete(resource_id, len(generations) + 1)
            elif self._done.get(resource_id) != len(generations):
                self._apply(generations[-1])

    def change(self) -> None:
        rng = self.random
        if rng.random() < AGAIN_CHANCE:
            # A call that was under way for long.
            self._apply(rng.choice(rng.choice(list(self._declared.values()))))
            return
        if rng.random() < GUESTS_CHANCE:
            self._change_guests()
            return
        operations = rng.choice(((READ, WRITE), (READ, WRITE), (READ,), (WRITE,)))
        self._declare_access(
            rng.choice(TENANTS), is_disabled=rng.random() < 0.25, operations=operations
        )

    def _change_guests(self) -> None:
        """The tenant that comes and goes: each time with new ids, under the same name."""
        number = self._guests_count
        ids = {f"{kind}-{GUESTS}{number}" for kind in ("tenant", "topic")}
        if number and not ids & self._wants_deleted:
            self._wants_deleted |= ids
            return
        if not all(one in self._deleted for one in self._wants_deleted):
            return
        if GUESTS in self.cell.store.image.tenants:
            return
        self._guests_count = number = number + 1
        self.world.count("tenants made anew" if number > 1 else "tenants made")
        for kind, name, specification in (
            ("tenant", "", TenantSpecification(f"{GUESTS}-{number}")),
            ("topic", TOPIC, TopicSpecification(1, 3)),
        ):
            resource_id = f"{kind}-{GUESTS}{number}"
            self._declared[resource_id] = [Resource(resource_id, 1, GUESTS, name, specification)]

    # Calls

    def _apply(self, resource: Resource) -> None:
        def decide(services: Any, image: MetadataImage, results: list[Result]) -> Sequence[Change]:
            return decide_declarations(services, image, [resource], results)

        done_before = self._done.get(resource.resource_id, 0)
        self._call(decide, partial(self._applied, resource, done_before))

    def _delete(self, resource_id: str, generation: int) -> None:
        def decide(services: Any, image: MetadataImage, results: list[Result]) -> Sequence[Change]:
            return decide_deletions(services, image, [Removal(resource_id, generation)], results)

        self._call(decide, partial(self._was_deleted, resource_id, generation))

    def _call(self, decide: Any, on_result: Any) -> None:
        node = self.cell.nodes[self.any_node()]

        def begin() -> None:
            services = node.services
            assert services is not None
            results: list[Result] = []

            def decided(image: MetadataImage) -> Sequence[Change]:
                results.clear()
                changes: Sequence[Change] = decide(services, image, results)
                return changes

            def done(error: BaseException | None) -> None:
                if error is None:
                    on_result(results[0])

            services.metadata.write(decided, done)

        if node.is_up and not node.is_stopping:
            node.at(0, begin)

    def _applied(self, resource: Resource, done_before: int, result: Result) -> None:
        """`done_before`: the generation that was told to be done before the call was made."""
        resource_id, outcome = resource.resource_id, result.outcome
        self.world.count(f"resources {outcome.name}")
        if outcome is Outcome.GONE:
            if resource_id not in self._wants_deleted:
                self.world.violate(f"{resource_id} is gone, which nobody has deleted")
        elif outcome is Outcome.STALE:
            if result.generation <= resource.generation:
                self.world.violate(f"{resource} is stale: {result}")
        elif outcome in (Outcome.DONE, Outcome.UNCHANGED):
            if resource_id in self._deleted:
                self.world.violate(f"{resource_id} was deleted, and is declared again: {result}")
            if resource.generation < done_before:
                self.world.violate(f"{result}, and generation {done_before} was done before")
            self._keep(resource_id, resource.generation)
        elif outcome is Outcome.CONFLICT:
            self.world.violate(f"{resource}: {result}")

    def _was_deleted(self, resource_id: str, generation: int, result: Result) -> None:
        if result.outcome in (Outcome.DONE, Outcome.UNCHANGED):
            self._deleted[resource_id] = generation
            self._check(resource_id)

    def _keep(self, resource_id: str, generation: int) -> None:
        self._done[resource_id] = max(self._done.get(resource_id, 0), generation)
        self._check(resource_id)

    def _check(self, resource_id: str) -> None:
        """That the store has what was told to be done."""
        known = self.cell.store.image.declarations.by_id.get(resource_id)
        done, deleted = self._done.get(resource_id, 0), self._deleted.get(resource_id)
        if known is None or known.generation < done or (deleted and not known.is_deleted):
            self.world.violate(f"{resource_id} is {known}, done was {done}, deleted {deleted}")


class TenantUser(JudgedClient, Administrator):
    """See the module."""

    interval_ms = 40
    port = SASL_PORT

    def __init__(self, cell: Cell, tenant: str) -> None:
        super().__init__(cell, f"user-{tenant}")
        self._tenant = tenant
        self._number = 0
        self._offset = 0
        self._is_fetching: set[str] = set()
        # Since the control plane has had its last word.
        self._wants = {"written", "read"}

    @property
    def is_settled(self) -> bool:
        return not self._wants

    def stop(self) -> None:
        """It goes on until it has written and read."""
        self._wants = {"written", "read"}
        self.interval_ms = 100

    def change(self) -> None:
        self.refresh_metadata()
        topic = self.topics.get(TOPIC)
        if topic is None:
            return
        leader = topic.partitions[0].leader
        if leader in self.cell.nodes:
            self._produce(leader)
            self._fetch(leader, topic.topic_id, "own")
            if self.random.random() < FOREIGN_CHANCE:
                self._try_foreign(leader)

    def link(self, node_id: int, purpose: str = "") -> Link:
        """One that begins with a login."""
        before = self._links.get((node_id, purpose))
        link = super().link(node_id, purpose)
        if link is not before:
            handshake = SaslHandshakeRequest(mechanism="PLAIN")
            login = login_of(self._tenant)
            token = f"\0{login}\0{login}".encode()
            link.send(ApiKey.SASL_HANDSHAKE, handshake, partial(self._logged_in, link), 1)
            link.send(
                ApiKey.SASL_AUTHENTICATE,
                SaslAuthenticateRequest(auth_bytes=token),
                partial(self._logged_in, link),
                2,
            )
        return link

    def _logged_in(self, link: Link, response: Any) -> None:
        if self.image_of(link, response) is not None and response.error_code:
            self.world.count("logins refused")

    # What is asked

    def _produce(self, leader: int) -> None:
        self._number += 1
        value = f"{self.name}/{self._number}/".encode()
        record = NewRecord(timestamp=self.world.now_ms, key=None, value=value)
        piece = PartitionProduceData(index=0, records=bytes(build_batch([record])))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=500,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[piece])],
        )
        self.ask(leader, ApiKey.PRODUCE, request, self._written, "produce")

    def _written(self, response: Any) -> None:
        if response is None:
            return
        (topic,) = response.responses
        if topic.partition_responses[0].error_code == 0:
            self._wants.discard("written")
            self.world.count("records of tenants written")

    def _fetch(self, leader: int, topic_id: UUID, purpose: str) -> None:
        if purpose in self._is_fetching:
            return
        self._is_fetching.add(purpose)
        is_own = purpose == "own"
        piece = FetchPartition(
            partition=0,
            fetch_offset=self._offset if is_own else 0,
            current_leader_epoch=-1,
            partition_max_bytes=500,
        )
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=1000,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=topic_id, partitions=[piece])],
        )
        self.ask(leader, ApiKey.FETCH, request, partial(self._fetched, purpose), purpose)

    def _try_foreign(self, leader: int) -> None:
        """Another tenant's topic, by its id, which somebody may have written down."""
        for tenant in (*TENANTS, GUESTS):
            topic = self.cell.store.image.topic(tenant, TOPIC)
            if topic is not None and tenant != self._tenant:
                self.world.count("foreign topics asked for")
                self._fetch(leader, topic.topic_id, f"foreign {tenant}")

    def _fetched(self, purpose: str, response: Any) -> None:
        self._is_fetching.discard(purpose)
        if response is None or purpose != "own":
            return
        for topic in response.responses:
            (piece,) = topic.partitions
            if piece.error_code == E.OFFSET_OUT_OF_RANGE:
                self._offset = 0
            for _, offset in _records(piece):
                self._offset = offset + 1
                self._wants.discard("read")
                self.world.count("records of tenants read")

    # What is answered

    def judge(self, node_id: int, api_key: ApiKey, response: Any, image: MetadataImage) -> None:
        credential = image.credentials.get(login_of(self._tenant))
        if credential is None or credential.is_disabled:
            self.world.violate(
                f"b{node_id} answers {api_key.name} to {self.name}, who is out since {credential}"
            )
        if api_key is ApiKey.METADATA:
            self._judge_metadata(node_id, response, image)
        elif api_key is ApiKey.FETCH:
            for topic in response.responses:
                self._judge_fetched(node_id, topic, image)

    def _judge_metadata(self, node_id: int, response: Any, image: MetadataImage) -> None:
        for shown in response.topics:
            topic = image.topics_by_id.get(shown.topic_id)
            if topic is not None and topic.tenant != self._tenant:
                self.world.violate(f"b{node_id} shows {self.name} the topic {topic}")

    def _judge_fetched(self, node_id: int, fetched: Any, image: MetadataImage) -> None:
        (piece,) = fetched.partitions
        topic = image.topics_by_id.get(fetched.topic_id)
        records = _records(piece)
        if topic is not None and topic.tenant != self._tenant:
            if piece.error_code != E.UNKNOWN_TOPIC_ID or records:
                code = E(piece.error_code).name
                self.world.violate(f"b{node_id} answers {self.name} {code} for {topic}")
            return
        may_read = _acl(self._tenant, READ) in image.acls.get(self._tenant, NO_ACLS)
        if records and not may_read:
            self.world.violate(f"b{node_id} gives records to {self.name}, who may not read")
        if piece.error_code == E.TOPIC_AUTHORIZATION_FAILED:
            self.world.count("fetches denied")
            if may_read:
                self.world.violate(f"b{node_id} denies {self.name} to read, who may")
        for value, offset in records:
            if not value.startswith(f"{self.name}/".encode()):
                self.world.violate(f"b{node_id} gives {self.name} {value!r} at {offset}")

    def refresh_metadata(self) -> None:
        """Of its own, whoever is asked."""
        self.ask(
            self.any_node(),
            ApiKey.METADATA,
            MetadataRequest(topics=None, allow_auto_topic_creation=False),
            self._took_metadata,
        )

    def _retry_metadata(self) -> None:
        """The next change asks anew."""


def _records(piece: Any) -> list[tuple[bytes, int]]:
    """Values and offsets of a fetched partition."""
    data = piece.records
    if not data:
        return []
    buffer = bytes(data)
    return [
        (bytes(record.value or b""), record.offset)
        for header in iter_batch_headers(buffer, 0, len(buffer))
        for record in decode_batch(buffer, header.position)
    ]
