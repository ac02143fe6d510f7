"""A load by a client that is not Python, while a cell is being maltreated; and its judgement.

    with ForeignLoad("java", command, cell.bootstrap, "orders") as load:
        …the fault…
        load.wait_until_written(range(4))
    load.check()

The program has one idempotent producer (writer 0), which spreads messages over as many partitions
as it knows of, and two members of the group `TOPIC-readers`. It prints a line an event:

    sent PARTITION NUMBER                       written
    acknowledged PARTITION NUMBER OFFSET        failed PARTITION NUMBER WHY
    assigned READER PARTITION                   read READER PARTITION OFFSET WRITER NUMBER
    committed READER PARTITION OFFSET           retried READER WHY
                                                error WHO WHY

`failed` and `error` are what its user would have to deal with; there may be none. `retried` is a
commit that was not acknowledged and is repeated. The first line on its standard input ends the
writing, the second one the reading.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from types import TracebackType

from tests.faults.checker import (
    UNKNOWN_OFFSET,
    Assigned,
    Committed,
    Delivered,
    Message,
    ReaderEvent,
    WriterHistory,
    judge,
    judge_readers,
)
from tests.faults.load import read_partition

MESSAGES_PER_S = 100
WRITTEN_SECONDS_MAX = 60.0
ENDED_SECONDS_MAX = 90.0
LOOK_UP_S = 0.02


class ForeignLoad:
    """See the module's text."""

    def __init__(self, name: str, command: list[str], bootstrap: str, topic: str) -> None:
        self.name = name
        self.topic = topic
        self.history = WriterHistory(0)
        self.acknowledged_at: dict[int, list[float]] = defaultdict(list)
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._command = [*command, bootstrap, topic, str(MESSAGES_PER_S)]
        self._events: list[ReaderEvent] = []
        self._read_up_to: dict[int, int] = defaultdict(int)
        self._process: subprocess.Popen[str] | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> ForeignLoad:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._listener.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        try:
            if kind is None:
                self._finish(process)
        finally:
            process.kill()
            process.wait()
            self._listener.join()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()

    def _finish(self, process: subprocess.Popen[str]) -> None:
        self._tell(process)
        self._wait(lambda: self.counts["written"] == 1, "its writer to end", ENDED_SECONDS_MAX)
        ends = {p: 1 + max(o.values()) for p, o in list(self.history.acknowledged.items()) if o}
        self._wait(
            lambda: all(self._read_up_to[p] >= end for p, end in ends.items()),
            "its readers to read to the end",
            ENDED_SECONDS_MAX,
        )
        self._tell(process)
        assert process.wait(ENDED_SECONDS_MAX) == 0
        self._listener.join()

    def _tell(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._hear(line.split())

    def _hear(self, words: list[str]) -> None:
        self.counts[words[0]] += 1
        match words:
            case ["sent", partition, number]:
                self.history.sent[int(partition)] = int(number) + 1
            case ["acknowledged", partition, number, offset]:
                known = int(offset) if int(offset) >= 0 else UNKNOWN_OFFSET
                self.history.acknowledged[int(partition)][int(number)] = known
                self.acknowledged_at[int(partition)].append(time.monotonic())
            case ["assigned", reader, partition]:
                self._events.append(Assigned(reader, (int(partition),)))
            case ["read", reader, partition, offset, writer, number]:
                index, message = int(partition), Message(int(writer), int(number))
                self._events.append(Delivered(reader, index, int(offset), message))
                self._read_up_to[index] = max(self._read_up_to[index], int(offset) + 1)
            case ["committed", reader, partition, offset]:
                self._events.append(Committed(reader, int(partition), int(offset)))
            case ["retried" | "written", *_]:
                pass
            case _:
                self.problems.append(" ".join(words))

    def wait_until_written(self, partitions: Iterable[int]) -> dict[int, float]:
        """Wait until each of the partitions has acknowledged something from now on; and how many
        seconds that took."""
        began, wanted = time.monotonic(), list(partitions)
        waited: dict[int, float] = {}

        def all_written() -> bool:
            for partition in wanted:
                times = self.acknowledged_at[partition]
                if partition not in waited and times and times[-1] > began:
                    waited[partition] = times[-1] - began
            return len(waited) == len(wanted)

        self._wait(all_written, f"acknowledgements in partitions {wanted}", WRITTEN_SECONDS_MAX)
        return waited

    def wait_until_read(self) -> None:
        """Wait until its readers have all that is acknowledged now."""
        ends = {p: 1 + max(o.values()) for p, o in list(self.history.acknowledged.items()) if o}
        self._wait(
            lambda: all(self._read_up_to[p] >= end for p, end in ends.items()),
            "its readers to follow",
            WRITTEN_SECONDS_MAX,
        )

    def _wait(self, condition: Callable[[], bool], what: str, seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while not condition():
            assert time.monotonic() < deadline, (
                f"{self.name}: waited {seconds_max:.0f} s for {what}; {dict(self.counts)}; "
                f"problems: {self.problems[:5]}"
            )
            assert self._process is not None
            assert self._process.poll() is None, f"{self.name} ended: {self.problems[:5]}"
            time.sleep(LOOK_UP_S)

    def check(self) -> None:
        """Hold what the program was told against the log."""
        assert not self.problems, f"{self.name}: {self.problems[:5]}"
        log = {p: read_partition(self._bootstrap, self.topic, p) for p in self.history.sent}
        found = judge([self.history], log) + judge_readers(self._events, log)
        assert not found, f"{self.name}:\n" + "\n".join(found)
        assert self.counts["acknowledged"] == self.counts["sent"] > 0
        assert self.counts["committed"] > 0
