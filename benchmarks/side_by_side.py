"""What every comparison does: the same loads on ours and theirs in turn, and a table of ratios.

A comparison gives its loads, and how to start and end what is compared. Medians of the rounds and
their ratio make one row; `--write` puts the table between two marks of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from confluent_kafka.admin import AdminClient

from benchmarks.brokers import describe_machine
from benchmarks.resident_memory import SHARE_OF_AVAILABLE, available_bytes, resident_memory
from stack.help import CommandParser, positive_number, write_any_text

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"
HEAD = "| figure | unit | Tidewheel | {other} | ratio | wanted |\n|---|---|---|---|---|---|"

# In a round, of loads that take a few seconds: a machine's own slow moments last as long.
SHORT_TURNS = 3

# For the C library's allocator in clients (glibc's variables): keep what is freed. Left alone, it
# gives the memory of each batch of a megabyte back and takes it anew page by page.
CLIENT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 31)}

LOG_LINES_SHOWN = 50


class Compared(Protocol):
    """A broker or a cell that loads run against."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def login(self) -> Path | None:
        """A file with settings of librdkafka (JSON) for clients that log in elsewhere."""


T = TypeVar("T", bound=Compared)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the table. `wanted` is what issue and design ask of the ratio ours/Kafka."""

    name: str
    unit: str
    wanted: str


@dataclass(frozen=True, slots=True)
class Load(Generic[T]):
    """One load: run against one of both it yields one sample of each of its rows, `turns` times in
    a round."""

    name: str
    rows: tuple[Row, ...]
    run: Callable[[T], list[float]]
    turns: int = 1


class Marks(NamedTuple):
    """Between which lines of the document a comparison's table stands."""

    begin: str
    end: str


def client(kind: str, compared: Compared, topic: str, **options: object) -> dict[str, float]:
    """Run one load in a process of its own and return its figures."""
    command = [sys.executable, "-m", "benchmarks.loads", kind]
    command += ["--bootstrap", compared.bootstrap, "--topic", topic]
    if compared.login is not None:
        command += ["--login", str(compared.login)]
    for option, value in options.items():
        command += [f"--{option.replace('_', '-')}", str(value)]
    environment = {**os.environ, **CLIENT_MEMORY}
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    if done.returncode:
        raise SystemExit(f"The {kind} load failed (status {done.returncode}): {done.stderr}")
    output = done.stdout
    figures: dict[str, float] = json.loads(output)
    return figures


@contextmanager
def benchmark_folder() -> Iterator[Path]:
    """A folder for what is measured, gone afterwards. When that fails, the ends of all processes'
    logs are printed first: they are gone with it."""
    with tempfile.TemporaryDirectory(prefix="tidewheel-benchmark-") as name:
        try:
            yield Path(name)
        except (Exception, SystemExit):
            for path in sorted(Path(name).rglob("*.log")):
                # Digits: a partition's segment.
                if path.is_file() and not path.stem.isdigit():
                    lines = path.read_text(errors="replace").splitlines()
                    print(f"{path}:", *lines[-LOG_LINES_SHOWN:], sep="\n  ", file=sys.stderr)
            raise


def drop_topic(compared: Compared, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": compared.bootstrap})
    admin.delete_topics([name])[name].result(30)


def parse_arguments(description: str | None, program: str) -> argparse.Namespace:
    """The options that all comparisons have."""
    write_any_text()
    parser = CommandParser(prog=program, description=description)
    parser.add_argument(
        "--rounds",
        type=positive_number,
        default=3,
        metavar="N",
        help="How often; the median counts.  [default: %(default)s]",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="X",
        help="Share of the usual messages.  [default: %(default)s]",
    )
    parser.add_argument(
        "--only", nargs="*", metavar="NAME", help="Names of loads, or parts of names."
    )
    parser.add_argument("--ours-only", action="store_true", help="Leave Apache Kafka out.")
    parser.add_argument("--write", action="store_true", help="Put the table into the document.")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="CHECKOUT",
        help="Another checkout of Tidewheel in Apache Kafka's place; it must be set up.",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        default=Path(tempfile.gettempdir()) / "tidewheel-benchmarks",
        help="Where Apache Kafka is kept.  [default: %(default)s]",
    )
    arguments = parser.parse_args()
    if arguments.against is not None:
        arguments.against = arguments.against.resolve()
        if arguments.write or arguments.ours_only:
            parser.error("--against goes with neither --write nor --ours-only")
        if why := why_not_comparable(arguments.against):
            parser.error(f"--against: {arguments.against} {why}")
    return arguments


def why_not_comparable(checkout: Path) -> str:
    """ "" for another checkout of Tidewheel with a compiled kernel. What is missing would be taken
    from this one, or run interpreted, and be measured as if it were the other's."""
    if not (checkout / "data_plane").is_dir():
        return "is no checkout of Tidewheel"
    probe = "from data_plane.wire import kernel; raise SystemExit(not kernel.COMPILED)"
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    compiled = subprocess.run([sys.executable, "-P", "-c", probe], env=environment, check=False)
    return "" if compiled.returncode == 0 else "has no compiled kernel: run its ./tidewheel once"


def run_comparison(
    arguments: argparse.Namespace,
    loads: Sequence[Load[T]],
    compared: Sequence[T],
    marks: Marks,
) -> None:
    """Measure what the arguments ask for on what is started already; print and write the table."""
    chosen = [
        load
        for load in loads
        if not arguments.only or any(part in load.name for part in arguments.only)
    ]
    other = "Apache Kafka" if arguments.against is None else arguments.against.name
    lines = [HEAD.format(other=other)]
    if arguments.against is not None:
        # What is wanted is wanted of the ratio to Apache Kafka.
        chosen = [
            replace(load, rows=tuple(replace(row, wanted="") for row in load.rows))
            for load in chosen
        ]
    size = int(available_bytes() * SHARE_OF_AVAILABLE)
    print(f"Getting {size / 2**30:.1f} GiB of memory from the machine first.", file=sys.stderr)
    with resident_memory(size):
        print(*lines, flush=True)
        for load in chosen:
            for line in measure(load, compared, arguments.rounds):
                print(line, flush=True)
                lines.append(line)
    if arguments.write:
        write_document(lines, marks)


def measure(load: Load[T], compared: Sequence[T], rounds: int) -> list[str]:
    """The rows of one load, rounds taken in turn."""
    samples: list[list[list[float]]] = [[] for _ in compared]
    for _ in range(rounds * load.turns):
        for index, one in enumerate(compared):
            # What earlier loads wrote goes to the disk now: once the kernel begins to write back,
            # it takes processor time from whoever is measured then.
            os.sync()
            samples[index].append(load.run(one))
    return [
        render_row(row, [[sample[position] for sample in of_one] for of_one in samples])
        for position, row in enumerate(load.rows)
    ]


def render_row(row: Row, figures: list[list[float]]) -> str:
    """One line of the Markdown table."""
    medians = [statistics.median(samples) for samples in figures]
    ratio = f"{medians[0] / medians[1]:.2f}" if len(medians) == 2 and medians[1] else "-"
    shown = [f"{value:,.0f}" if value >= 1000 else f"{value:,.3g}" for value in medians]
    kafka = shown[1] if len(shown) == 2 else "-"
    return f"| {row.name} | {row.unit} | {shown[0]} | {kafka} | {ratio} | {row.wanted} |"


def write_document(lines: list[str], marks: Marks) -> None:
    """Replace what stands between the marks in docs/benchmarks.md."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(marks.begin)
    _, _, after = rest.partition(marks.end)
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    made = f"Made on {time.strftime('%Y-%m-%d', time.gmtime())}: {machine}."
    body = "\n".join(["", made, "", *lines, ""])
    DOCUMENT.write_text(f"{before}{marks.begin}\n{body}\n{marks.end}{after}")
