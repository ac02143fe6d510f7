"""What the tests of faults share: noting how long producing was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests.plugins.interruptions import PROPERTY

NoteInterruption = Callable[[str, Iterable[float]], None]


@pytest.fixture
def note_interruption(record_property: Callable[[str, object], None]) -> NoteInterruption:
    """Notes seconds for a fault; the table at the end of the run has median and maximum."""

    def note(fault: str, seconds: Iterable[float]) -> None:
        for value in seconds:
            record_property(PROPERTY, [fault, round(value, 3)])

    return note
