"""What the demo prints: progress while it runs, and the table at the end."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from stack.demo.departures import DeparturesOutcome
from stack.demo.departures import faults_of as departures_faults
from stack.demo.departures import row_of as departures_row
from stack.demo.group import GroupEvent
from stack.demo.ledger import Verdict
from stack.demo.neighbour import Beside
from stack.demo.outage import CellEvent
from stack.demo.payments import PaymentsOutcome, faults_of, row_of

PLAIN_WIDTH: Final = 100
"""Columns where there is no terminal to ask."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything the summary shows. Durations in seconds, latencies in milliseconds."""

    verdict: Verdict
    bootstrap: str
    topic: str
    partition_messages: tuple[int, ...]
    keys: int
    value_bytes: int
    sending_s: float
    receiving_s: float
    bulk_count: int
    paced_count: int
    paced_per_s: int
    latency_ms: dict[str, float]
    received_by: dict[str, int]
    history: tuple[GroupEvent, ...]
    lag: int
    cell_history: tuple[CellEvent, ...]
    is_healed: bool
    interrupted_s: float
    elapsed_s: float
    payments: PaymentsOutcome | None
    departures: DeparturesOutcome | None
    # Without tenants of its own: "", (), None.
    tenant: str
    topics: tuple[str, ...]
    beside: Beside | None

    @property
    def is_good(self) -> bool:
        are_paid = self.payments is None or self.payments.is_good
        are_on_time = self.departures is None or self.departures.is_good
        is_whole = self.verdict.is_good and self.lag == 0 and are_paid and are_on_time
        return is_whole and self.is_healed and self.is_apart

    @property
    def is_apart(self) -> bool:
        """Whether neither tenant saw anything of the other: no topic but its own, which all begin
        alike, and no message."""
        if self.beside is None:
            return True
        are_own = all(name.startswith(self.topic) for name in self.topics)
        return are_own and self.beside.is_good(self.topic)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The outcome for scripts."""
    return {"ok": outcome.is_good, **asdict(outcome)}


def describe_event(event: GroupEvent) -> str:
    """One line of the group's history."""
    if not event.partitions:
        detail = "for partitions" if event.what == "waits" else "the group"
    else:
        detail = f"partitions {', '.join(map(str, event.partitions))}"
    return f"{event.at_s:6.1f} s  {event.member} {event.what} {detail}"


class Reporter:
    """Prints to the terminal. At a terminal the last line moves; elsewhere it does not appear."""

    def __init__(self, *, quiet: bool) -> None:
        width = None if sys.stdout.isatty() else PLAIN_WIDTH
        self._console = Console(highlight=False, quiet=quiet, width=width)
        self._moving = sys.stdout.isatty() and not quiet

    def say(self, text: str) -> None:
        """One line."""
        self._clear()
        self._console.print(text)

    def progress(self, sent: int, received: int, total: int) -> None:
        """Show how far it is."""
        if not self._moving:
            return
        width = 30
        done, under_way = width * received // total, width * sent // total
        bar = "█" * done + "▒" * (under_way - done) + "·" * (width - under_way)
        sys.stdout.write(f"\r\x1b[K  {bar}  sent {sent:,}  received {received:,}")
        sys.stdout.flush()

    def _clear(self) -> None:
        if self._moving:
            sys.stdout.write("\r\x1b[K")

    def summary(self, outcome: Outcome) -> None:
        """The table at the end, and the verdict."""
        self._clear()
        table = Table(show_header=False, box=None, padding=(0, 2), title_justify="left")
        table.add_column(style="bold", no_wrap=True)
        table.add_column()
        for name, text in _rows(outcome):
            table.add_row(name, text)
        self._console.print()
        self._console.print(table)
        self._console.print()
        if outcome.is_good:
            apart = "" if outcome.beside is None else " Neither tenant saw any of the other's."
            self._console.print(
                f"[green]Every one of {outcome.verdict.sent:,} flights arrived exactly as sent, "
                f"in order for each key; none is missing.{apart}[/green]"
            )
            return
        self._console.print(f"[red]{_faults(outcome)}[/red]")
        for example in outcome.verdict.examples:
            self._console.print(f"  {example}", markup=False)


def _rows(outcome: Outcome) -> list[tuple[str, str]]:
    verdict, latency = outcome.verdict, outcome.latency_ms
    megabytes = outcome.value_bytes / 1e6
    partitions = "  ".join(f"{i}: {n:,}" for i, n in enumerate(outcome.partition_messages))
    members = "  ".join(f"{name}: {count:,}" for name, count in outcome.received_by.items())
    return [
        ("flights", f"{verdict.sent:,} sent, {verdict.received:,} received, {outcome.keys:,} keys"),
        (
            "rate",
            f"{outcome.bulk_count / outcome.sending_s:,.0f} sent/s, "
            f"{outcome.bulk_count / outcome.receiving_s:,.0f} received/s "
            f"({megabytes / outcome.sending_s:.1f} MB/s; JSON made and checked in one process)",
        ),
        (
            "latency",
            "  ".join(f"{name} {value:.1f} ms" for name, value in latency.items())
            + f"  (send to receive, at {outcome.paced_per_s:,} flights/s)",
        ),
        ("partitions", partitions),
        ("consumers", members),
        ("redelivered", f"{verdict.redelivered:,} (at-least-once: when a partition moves)"),
        ("lag", f"{outcome.lag:,} messages not committed"),
        *row_of(outcome.payments),
        *departures_row(outcome.departures),
        ("group history", "\n".join(describe_event(event) for event in outcome.history)),
        *_tenant_rows(outcome),
        *_cell_rows(outcome),
        ("took", f"{outcome.elapsed_s:.1f} s in all"),
    ]


def _tenant_rows(outcome: Outcome) -> list[tuple[str, str]]:
    beside = outcome.beside
    if beside is None:
        return []
    return [
        (
            "tenants",
            f"{outcome.tenant} sees {', '.join(outcome.topics)} with "
            f"{sum(outcome.partition_messages):,} messages, {beside.slug} sees "
            f"{', '.join(beside.topics)} with {beside.messages:,}",
        )
    ]


def _cell_rows(outcome: Outcome) -> list[tuple[str, str]]:
    if not outcome.cell_history:
        return []
    events = (f"{event.at_s:6.1f} s  {event.what}" for event in outcome.cell_history)
    return [
        ("cell history", "\n".join(events)),
        (
            "interrupted",
            f"producing for {outcome.interrupted_s:.1f} s at the longest, on any partition, "
            "by the broker's death",
        ),
    ]


def _faults(outcome: Outcome) -> str:
    verdict = outcome.verdict
    counts = {
        "missing": verdict.missing,
        "altered": verdict.altered,
        "out of order": verdict.out_of_order,
        "stored twice": verdict.duplicates,
        "unknown": verdict.unknown,
        "not committed": outcome.lag,
        **faults_of(outcome.payments),
        **departures_faults(outcome.departures),
    }
    found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    if not outcome.is_apart and outcome.beside is not None:
        found = f"{found}, {outcome.beside.slug} does not have its own alone".removeprefix(", ")
    if not outcome.is_healed:
        found = f"{found}, the killed broker is not in sync again".removeprefix(", ")
    return f"Not good: {found or 'not all flights were sent'}."
