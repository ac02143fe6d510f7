"""One round of one tenant: what is due in its outbox goes to its cell, the newest of each resource,
and what the cell answers goes into the rows.

    placement's row        locked for the round, SKIP LOCKED: one round of a tenant at a time
      read rows            as they are now, whatever was to be told of them before
      cell                 Delete, Apply
      tenant's row         locked for recording: whoever writes meanwhile comes before or after it
        rows, outbox

Invariants
- An entry is done when the cell has its generation, or a later one, or will never take it.
- A round that dies at any point is repeated as a whole: locks end with its connection, and the cell
  answers what is repeated by UNCHANGED.
- What was written during the round is a later generation, with an entry of its own: of the row
  only `observed_generation` is recorded then.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from control_plane.access.models import ApiKey, Grant
from control_plane.accounts.models import Organization
from control_plane.cells.models import Cell, CellProgress, Placement
from control_plane.messaging.models import Topic
from control_plane.operations.facade import SYSTEM, record_audit
from control_plane.operations.models import OutboxEntry, ResourceKind
from control_plane.operations.settling import do_give_up_purges
from control_plane.quotas.models import TenantQuota
from control_plane.reconciliation.erasure import erase
from control_plane.reconciliation.logic import Answer, Verdict, retry_after
from control_plane.reconciliation.sending import Sender, was_there
from control_plane.reconciliation.taking_over import HAD_BACK, take_over, take_over_end
from control_plane.tenancy.models import (
    STATUS_REASON_CHARACTERS_MAX,
    DeclaredModel,
    ResourceStatus,
)
from data_plane.contract import cell_admin_pb2 as messages

RESOURCES_PER_ROUND_MAX: Final = 2_000
ERROR_CHARACTERS_MAX: Final = 1000
MODELS: Final[Mapping[ResourceKind, Any]] = {
    ResourceKind.TOPIC: Topic,
    ResourceKind.CREDENTIAL: ApiKey,
    ResourceKind.GRANT: Grant,
    ResourceKind.QUOTA: TenantQuota,
}
# What was deleted in the cell ends here, too. Of a topic the row stays, and says so.
_END_WITH_THE_CELL: Final = (ApiKey, Grant, Organization)
_SETTLED: Final = (Verdict.IN_FORCE, Verdict.GONE, Verdict.OVER)


def reconcile_tenant(cell: Cell, organization_id: str) -> bool:
    """Tell the cell what is due; whether there was anything, and nobody else was at it. Raises
    CellError, and has changed nothing then."""
    with transaction.atomic():
        placements = Placement.objects.of(organization_id).filter(cell=cell)
        if placements.select_for_update(skip_locked=True, of=("self",)).first() is None:
            return False
        now = timezone.now()
        due = list(_due(organization_id, now)[:RESOURCES_PER_ROUND_MAX])
        if not due:
            return False
        organization = Organization.objects.select_related("plan").get(id=organization_id)
        rows = _rows(organization, due)
        sender = Sender(cell, organization)
        answers = sender.send(rows)
        answered = [row for row in rows if row.pk in answers]
        later = [row for row in answered if answers[row.pk].verdict is Verdict.LATER]
        items = sender.present(later) if later else {}
        # What there was no time for is due still.
        asked = {pk for _, pk in due} - {row.pk for row in rows if row.pk not in answers}
        _Record(cell, organization_id, answered, answers, items).write(asked)
    return True


def _due(organization_id: str, now: datetime) -> Any:
    entries = OutboxEntry.objects.of(organization_id).filter(done_at=None, not_before__lte=now)
    return entries.order_by("kind", "resource_id").values_list("kind", "resource_id").distinct()


def _rows(organization: Organization, due: Iterable[tuple[str, str]]) -> list[DeclaredModel]:
    """As they are now. Of a tenant that goes for good, nothing but itself."""
    ids_of: dict[str, list[str]] = {}
    for kind, resource_id in due:
        ids_of.setdefault(kind, []).append(resource_id)
    rows: list[DeclaredModel] = []
    if ResourceKind.TENANT in ids_of:
        rows.append(organization)
    if organization.deleted_at is not None:
        return rows
    for kind, model in MODELS.items():
        rows += model.objects.of(organization.id).filter(id__in=ids_of.get(kind, ()))
    return rows


@dataclass(slots=True)
class _Record:
    """What is written about the answers, in the round's transaction."""

    cell: Cell
    organization_id: str
    rows: Sequence[DeclaredModel]
    answers: Mapping[str, Answer]
    items: Mapping[str, messages.Item]

    def write(self, asked: set[str]) -> None:
        organization = (
            Organization.objects.select_for_update(of=("self",))
            .select_related("plan")
            .get(id=self.organization_id)
        )
        now = timezone.now()
        settled: dict[str, int] = {}
        for model in (Organization, *MODELS.values()):
            sent = {row.pk: row for row in self.rows if type(row) is model}
            if not sent:
                continue
            rows = (
                [organization]
                if model is Organization
                else list(model.objects.of(self.organization_id).filter(pk__in=sent))
            )
            kept = []
            for row in rows:
                if self._settle(organization, row, sent[row.pk], settled):
                    kept.append(row)
            _save(model, kept)
        # What has no row any more needs telling to nobody.
        known = {row.pk for row in self.rows}
        self._write_entries(asked, settled, asked - known, now)
        if settled.get(organization.id):
            # What was refused for the tenant's state is not any more.
            waiting = OutboxEntry.objects.of(organization.id).filter(done_at=None, attempts__gt=0)
            waiting.update(not_before=now)
        gone = self.answers.get(organization.id)
        if gone is not None and gone.verdict is Verdict.GONE:
            erase(organization)

    def _settle(
        self,
        organization: Organization,
        row: DeclaredModel,
        sent: DeclaredModel,
        settled: dict[str, int],
    ) -> bool:
        """What the answer makes of the row; whether it is still there."""
        answer = self.answers[row.pk]
        is_newest = row.generation == answer.generation
        if isinstance(row, Topic) and isinstance(sent, Topic):
            # Of what was never there the id is that of somebody else's topic.
            is_unknown = row.observed_generation == 0 and not row.observed
            if row.kafka_topic_id is None or (is_unknown and answer.verdict is Verdict.GONE):
                row.kafka_topic_id = sent.kafka_topic_id
        if answer.verdict in _SETTLED:
            settled[row.pk] = answer.generation
        match answer.verdict:
            case Verdict.IN_FORCE:
                row.observed_generation = max(row.observed_generation, answer.generation)
                if is_newest:
                    row.settle()
                    if isinstance(row, Topic):
                        row.takes_over = False
            case Verdict.GONE if is_newest:
                return self._is_kept(row)
            case Verdict.LATER:
                self._go_by_the_cell(organization, row, answer, settled)
            case Verdict.COUNT_ON:
                row.generation = max(row.generation, answer.cell_generation + 1)
            case Verdict.FAILED | Verdict.OVER if is_newest:
                if answer.verdict is Verdict.OVER and isinstance(row, _END_WITH_THE_CELL):
                    return self._end_with_the_cell(row, answer)
                row.status_reason = answer.reason[:STATUS_REASON_CHARACTERS_MAX]
                if not (isinstance(row, Organization) and row.deleted_at is not None):
                    row.status = ResourceStatus.FAILED
        return True

    def _go_by_the_cell(
        self,
        organization: Organization,
        row: DeclaredModel,
        answer: Answer,
        settled: dict[str, int],
    ) -> None:
        """The cell has heard of a generation that this database has not: it was restored."""
        item = self.items.get(row.pk)
        if item is None or row.generation != answer.generation:
            row.generation = max(row.generation, answer.cell_generation + 1)
            return
        before, generation = row.declared(), row.generation
        is_purged = isinstance(row, Topic) and row.deleted_at is not None
        take_over(organization, row, item)
        if row.generation < generation:
            # It is told once more in ours: generations never go back.
            row.generation, row.status = generation, ResourceStatus.UPDATING
        else:
            settled[row.pk] = row.generation
        if is_purged:
            do_give_up_purges(organization.id, row.pk, HAD_BACK)
        record_audit(
            SYSTEM,
            organization.id,
            "reconcile.take_over",
            row.pk,
            _name_of(row),
            {"from": before, "to": row.declared(), "generation": row.generation},
        )

    def _end_with_the_cell(self, row: DeclaredModel, answer: Answer) -> bool:
        """It was deleted, and this database was restored from before that; whether the row
        stays."""
        row.generation = max(row.generation, answer.cell_generation)
        row.status = ResourceStatus.FAILED
        row.status_reason = answer.reason[:STATUS_REASON_CHARACTERS_MAX]
        take_over_end(row)
        record_audit(
            SYSTEM,
            self.organization_id,
            "reconcile.take_over",
            row.pk,
            _name_of(row),
            {"is_deleted": True, "generation": row.generation},
        )
        if isinstance(row, Grant):
            row.delete()
            return False
        return True

    def _is_kept(self, row: DeclaredModel) -> bool:
        """The cell has it no more; whether the row stays."""
        if isinstance(row, Topic):
            was_kept = was_there(row)
            goes = row.deleted_at is not None or not was_kept
            if not was_kept or (goes and row.has_successor):
                # What was in its way, or came after it, is its clients', and is adopted now.
                progress = CellProgress.objects.filter(cell=self.cell)
                progress.update(lists_due=F("lists_due") + 1)
            if goes:
                row.delete()
                return False
            row.observed_generation = row.generation
            row.status = ResourceStatus.DELETING
            row.status_reason = f"It can be had back until {row.purge_after:%d %B %Y, %H:%M} UTC."
            return True
        if isinstance(row, Grant):
            row.delete()
            return False
        row.settle()
        return True

    def _write_entries(
        self, asked: set[str], settled: Mapping[str, int], without_rows: set[str], now: datetime
    ) -> None:
        entries = list(
            OutboxEntry.objects.of(self.organization_id).filter(done_at=None, resource_id__in=asked)
        )
        for entry in entries:
            pk = entry.resource_id
            if pk in without_rows or entry.generation <= settled.get(pk, 0):
                entry.done_at, entry.last_error = now, ""
                continue
            answer = self.answers[pk]
            if answer.verdict is Verdict.FAILED:
                entry.attempts += 1
                entry.last_error = answer.reason[:ERROR_CHARACTERS_MAX]
                entry.not_before = now + retry_after(entry.attempts, secrets.randbelow(1001) / 1000)
        OutboxEntry.objects.across_tenants().bulk_update(
            entries, ["done_at", "attempts", "last_error", "not_before"], batch_size=500
        )


def _name_of(row: DeclaredModel) -> str:
    return str(getattr(row, "name", ""))


def _save(model: Any, rows: Sequence[DeclaredModel]) -> None:
    """All that a round changes."""
    fields = ["generation", "observed_generation", "status", "status_reason"]
    more: Mapping[Any, list[str]] = {
        Topic: [
            *("kafka_topic_id", "observed", "takes_over", "managed_by", "partitions"),
            *("replication_factor", "configs", "purge_after", "deleted_at", "incarnation"),
        ],
        Organization: ["state", "state_reason", "purge_after"],
        ApiKey: ["networks", "expires_at", "revoked_at", "deleted_at"],
        TenantQuota: [field.name for field in TenantQuota._meta.fields if field.null],
    }
    manager: Any = model.objects if model is Organization else model.objects.across_tenants()
    manager.bulk_update(rows, [*fields, *more.get(model, [])], batch_size=500)
