"""A log that was cut forgets the epochs of what is gone, in their file, too."""

from __future__ import annotations

import random

import pytest

from data_plane.log.leader_epochs import EpochEntry
from tests.log.one_log import OneLog, batch_of


@pytest.mark.parametrize("end", ["restart", "kill", "power loss"])
def test_an_older_epoch_goes_on_where_a_newer_one_was_cut(end: str) -> None:
    """As of a leader that was deposed with records that nobody has, and gets those of the leader
    before it in their place. With the newer epoch still in the file it would lead later, and have
    others cut what is committed."""
    one = OneLog()
    one.append(batch_of(b"a", b"b"))
    one.epoch = 2
    one.append(batch_of(b"never committed"), commit=False)
    one.checkpoint()
    one.log.truncate_to(2)
    one.epoch = 0
    one.append(batch_of(b"c", b"d"))
    one.checkpoint()
    if end == "power loss":
        one.lose_power(random.Random(1))
    else:
        getattr(one, end)()
    assert one.offsets() == [0, 1, 2, 3]
    assert one.log.epochs.entries == [EpochEntry(0, 0)]
