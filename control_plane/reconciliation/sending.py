"""A tenant's resources, sent to its cell: what is deleted first, then what is there, the tenant in
the end where it goes itself. Everything may be sent again.

A topic that is had back takes three steps, each of which changes nothing where it was done before:

    Delete … keep     of the ids that it had, so that no resource has it
    UndeleteTopic     with the topic id, so that nothing else of its name is meant
    Apply             of its new id, which takes over the topic of that topic id

What goes for good is looked for under ids that this database does not know: where it was restored,
the topic may have been had back since, and is taken over instead of being forgotten.

Bounds: ROUND_S for all of it and one call more, after which what is left has no answer, and is sent
in the next round; at least one call of each kind is made, so that each round gets on. RESOURCES_MAX
resources and PARTITIONS_MAX partitions in a call. A call that is refused as a
whole is sent again in halves, down to the resource that it is refused for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from uuid import UUID

import grpc

from control_plane.accounts.models import Organization
from control_plane.cells.connections import CellRefused, cell_admin, cell_operations
from control_plane.cells.models import Cell
from control_plane.messaging.facade import is_subscription
from control_plane.messaging.models import Topic
from control_plane.reconciliation.listing import (
    deleted_topics_of,
    items_of,
    says_no_such_tenant,
    topic_id_of,
)
from control_plane.reconciliation.logic import (
    Answer,
    Verdict,
    answer_to_apply,
    answer_to_delete,
)
from control_plane.reconciliation.specifications import resource_of
from control_plane.tenancy.models import DeclaredModel
from data_plane.contract import cell_admin_pb2 as messages
from data_plane.contract import cell_operations_pb2 as operations_messages
from data_plane.contract.cell_admin_pb2_grpc import CellAdminStub
from data_plane.contract.cell_operations_pb2_grpc import CellOperationsStub

ROUND_S: Final = 25.0
RESOURCES_MAX: Final = 500
PARTITIONS_MAX: Final = 5_000
_REFUSED_AS_A_WHOLE: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
STILL_THERE: Final = "Its cell is removing what it had."
MESSAGES_GONE: Final = "Its cell has not kept it, and its messages are gone. Make another topic."


class Sender:
    """To the cell of one tenant. All methods raise CellError."""

    def __init__(self, cell: Cell, organization: Organization) -> None:
        self._cell = cell
        self._organization = organization
        # What the cell has said so far is in force in this version: older ones are not believed.
        self._version = 0
        self._end_s = time.monotonic() + ROUND_S

    def send(self, rows: Sequence[DeclaredModel]) -> dict[str, Answer]:
        """What became of each, by its id, but of those for which there was no time. Sets topics'
        `kafka_topic_id` where it was asked for."""
        with cell_admin(self._cell) as admin, cell_operations(self._cell) as operations:
            self._identify(admin, rows)
            answers = self._had_back(admin, rows)
            gone = [row for row in rows if is_deleted(row) and row.pk not in answers]
            answers |= self._delete(admin, gone)
            self._purge(operations, rows, answers)
            ready = []
            prepared = 0
            for row in sorted(rows, key=_reads_another):
                if is_deleted(row):
                    continue
                why_not = None
                if isinstance(row, Topic) and row.takes_over:
                    if prepared and self._is_over:
                        continue
                    why_not = self._prepare(admin, operations, row)
                    prepared += 1
                if why_not is None:
                    ready.append(row)
                else:
                    answers[row.pk] = why_not
            return answers | self._apply(admin, ready)

    def present(self, rows: Iterable[DeclaredModel]) -> dict[str, messages.Item]:
        """What the cell has of them, by the rows' ids: of a topic its last incarnation."""
        with cell_admin(self._cell) as admin:
            items = list(items_of(admin, self._organization.slug, at_least=self._version))
        present = {item.resource.resource_id: item for item in items if item.resource.resource_id}
        wanted = {row.pk: ids_of(row)[-1] for row in rows}
        found = {pk: present[name] for pk, name in wanted.items() if name in present}
        return found | _later_incarnations(rows, items)

    def _had_back(self, admin: CellAdminStub, rows: Iterable[DeclaredModel]) -> dict[str, Answer]:
        """Of what is to go for good: what the cell has in a later incarnation than is known."""
        going = [row for row in rows if isinstance(row, Topic) and row.deleted_at is not None]
        if not going:
            return {}
        items = items_of(admin, self._organization.slug, messages.KIND_TOPIC)
        later = _later_incarnations(going, items)
        return {
            topic.pk: Answer(
                Verdict.LATER,
                topic.generation,
                cell_generation=later[topic.pk].resource.generation,
            )
            for topic in going
            if topic.pk in later
        }

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._end_s

    def _identify(self, admin: CellAdminStub, rows: Iterable[DeclaredModel]) -> None:
        """Which topics are those that go or come back, where neither a round nor the feed has
        written it down: a round may have made one, and have died, and the feed may be heard when
        clients have another topic of the name. One that is somebody else's is none of them."""
        unknown = [
            row
            for row in rows
            if isinstance(row, Topic)
            and (is_deleted(row) or row.incarnation > 1)
            and (row.kafka_topic_id is None or _is_never_seen(row))
        ]
        if not unknown:
            return
        items = items_of(admin, self._organization.slug, messages.KIND_TOPIC)
        ids = {item.resource.resource_id: item.topic_id for item in items}
        for topic in unknown:
            found = [ids[name] for name in topic.resource_ids if name in ids]
            topic.kafka_topic_id = UUID(bytes=found[0]) if found else None

    def _delete(self, admin: CellAdminStub, rows: Sequence[DeclaredModel]) -> dict[str, Answer]:
        deletions = [
            messages.Deletion(resource_id=resource_id, generation=row.generation)
            for row in rows
            for resource_id in ids_of(row)
        ]
        results = self._deleted(admin, deletions)
        told = [row for row in rows if all(name in results for name in ids_of(row))]
        answers = {
            row.pk: answer_to_delete([results[name] for name in ids_of(row)], row.generation)
            for row in told
        }
        for row in told:
            is_whole = isinstance(row, Organization) and answers[row.pk].verdict is Verdict.GONE
            if is_whole and self._is_there(admin):
                answers[row.pk] = Answer(Verdict.FAILED, row.generation, STILL_THERE)
        return answers

    def _purge(
        self,
        operations: CellOperationsStub,
        rows: Iterable[DeclaredModel],
        answers: dict[str, Answer],
    ) -> None:
        """What is not to be had back goes now, and not when its time is over. What there is no time
        for has no answer any more."""
        purged = 0
        for row in rows:
            if not isinstance(row, Topic) or row.deleted_at is None or not was_there(row):
                continue
            answer = answers.get(row.pk)
            if answer is not None and answer.verdict is Verdict.GONE:
                if purged and self._is_over:
                    del answers[row.pk]
                    continue
                purged += 1
                try:
                    operations.PurgeTopic(self._deleted_topic(row))
                except CellRefused as refusal:
                    if refusal.code is not grpc.StatusCode.NOT_FOUND:
                        raise

    def _prepare(
        self, admin: CellAdminStub, operations: CellOperationsStub, topic: Topic
    ) -> Answer | None:
        """Have a topic be there that nobody declares; why it cannot be taken over."""
        earlier = topic.resource_ids[:-1]
        if earlier:
            deletions = [
                messages.Deletion(resource_id=name, generation=topic.generation, keep=True)
                for name in earlier
            ]
            results = self._deleted(admin, deletions)
            answer = answer_to_delete([results[name] for name in earlier], topic.generation)
            if answer.verdict is not Verdict.GONE:
                return answer
        if not earlier or not was_there(topic):
            # In the second case it was had back before it ever was.
            return None
        if topic.kafka_topic_id is None:
            found = topic_id_of(admin, operations, self._organization.slug, topic.name)
            topic.kafka_topic_id = None if found is None else UUID(bytes=found)
        if topic.kafka_topic_id is not None:
            try:
                operations.UndeleteTopic(self._deleted_topic(topic))
                return None
            except CellRefused as refusal:
                if refusal.code is not grpc.StatusCode.NOT_FOUND:
                    raise
                kept = deleted_topics_of(operations, self._organization.slug)
                if topic.kafka_topic_id.bytes in {one.topic_id for one in kept}:
                    # Another topic has its name, or its source is not back yet.
                    return Answer(Verdict.FAILED, topic.generation, refusal.detail)
        return Answer(Verdict.OVER, topic.generation, MESSAGES_GONE)

    def _deleted_topic(self, topic: Topic) -> operations_messages.DeletedTopicRequest:
        return operations_messages.DeletedTopicRequest(
            tenant=self._organization.slug,
            name=topic.name,
            topic_id=b"" if topic.kafka_topic_id is None else topic.kafka_topic_id.bytes,
        )

    def _apply(self, admin: CellAdminStub, rows: Sequence[DeclaredModel]) -> dict[str, Answer]:
        sent = {row.pk: resource_of(self._organization, row) for row in rows}
        results: dict[str, messages.Result] = {}
        for batch in batches(list(sent.values())):
            if results and self._is_over:
                break
            results |= self._applied(admin, batch)
        return {
            pk: answer_to_apply(results[resource.resource_id], resource)
            for pk, resource in sent.items()
            if resource.resource_id in results
        }

    def _applied(
        self, admin: CellAdminStub, batch: Sequence[messages.Resource]
    ) -> dict[str, messages.Result]:
        try:
            answer = admin.Apply(messages.ApplyRequest(resources=batch))
        except CellRefused as refusal:
            if refusal.code not in _REFUSED_AS_A_WHOLE:
                raise
            if len(batch) == 1:
                return {batch[0].resource_id: _refused(batch[0].resource_id, refusal)}
            half = len(batch) // 2
            return self._applied(admin, batch[:half]) | self._applied(admin, batch[half:])
        self._version = max(self._version, answer.version)
        return {result.resource_id: result for result in answer.results}

    def _deleted(
        self, admin: CellAdminStub, deletions: Sequence[messages.Deletion]
    ) -> dict[str, messages.Result]:
        results: dict[str, messages.Result] = {}
        for start in range(0, len(deletions), RESOURCES_MAX):
            if results and self._is_over:
                break
            batch = deletions[start : start + RESOURCES_MAX]
            answer = admin.Delete(messages.DeleteRequest(deletions=batch))
            self._version = max(self._version, answer.version)
            results |= {result.resource_id: result for result in answer.results}
        return results

    def _is_there(self, admin: CellAdminStub) -> bool:
        """Whether anything of the tenant is left in the cell."""
        request = messages.ListRequest(tenant=self._organization.slug, page_size=1)
        try:
            admin.List(request)
        except CellRefused as refusal:
            if not says_no_such_tenant(refusal):
                raise
            return False
        return True


def is_deleted(row: DeclaredModel) -> bool:
    """Whether the cell is to have it no more."""
    if isinstance(row, Topic):
        return row.purge_after is not None
    return row.deleted_at is not None


def _reads_another(row: DeclaredModel) -> bool:
    """Whether it is a topic that is had back after another one, its source."""
    return isinstance(row, Topic) and is_subscription(row)


def _is_never_seen(topic: Topic) -> bool:
    """Neither a round nor the feed: what its row names is a topic that was in its way."""
    return topic.observed_generation == 0 and not topic.observed


def was_there(topic: Topic) -> bool:
    """Whether the cell has ever had it, as far as is known."""
    return topic.observed_generation > 0 or topic.kafka_topic_id is not None


def ids_of(row: DeclaredModel) -> list[str]:
    """The resource ids that the cell may know it by, the present one last."""
    return row.resource_ids if isinstance(row, Topic) else [row.pk]


def _later_incarnations(
    rows: Iterable[DeclaredModel], items: Iterable[messages.Item]
) -> dict[str, messages.Item]:
    """Of topics that the cell has under the id of a later incarnation, by the rows' ids."""
    topics = {row.pk: row for row in rows if isinstance(row, Topic)}
    newest = {pk: topic.incarnation for pk, topic in topics.items()}
    found: dict[str, messages.Item] = {}
    for item in items:
        resource_id = item.resource.resource_id
        topic = topics.get(resource_id.partition("-")[0])
        if topic is not None and topic.incarnation_of(resource_id) > newest[topic.pk]:
            newest[topic.pk] = topic.incarnation_of(resource_id)
            found[topic.pk] = item
    return found


def batches(resources: Sequence[messages.Resource]) -> Iterator[list[messages.Resource]]:
    """As many as it takes for no call to be beyond the cell's bounds, tenants first."""
    batch: list[messages.Resource] = []
    partitions = 0
    for resource in sorted(resources, key=lambda one: one.WhichOneof("spec") != "tenant_spec"):
        more = resource.topic.partitions if resource.HasField("topic") else 0
        if batch and (len(batch) >= RESOURCES_MAX or partitions + more > PARTITIONS_MAX):
            yield batch
            batch, partitions = [], 0
        batch.append(resource)
        partitions += more
    if batch:
        yield batch


def _refused(resource_id: str, refusal: CellRefused) -> messages.Result:
    return messages.Result(
        resource_id=resource_id, outcome=messages.Result.REFUSED, message=refusal.detail
    )
