"""What the checks take for right and wrong, where a history that shows it is long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from data_plane.groups.record_formats import (
    CommittedOffset,
    OffsetKey,
    decode_committed_offset,
    encode_committed_offset,
)
from data_plane.wire.messages.incremental_alter_configs_request import (
    IncrementalAlterConfigsRequest,
)
from data_plane.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from data_plane.wire.registry import ApiKey
from tests.cell.cell_images import ORDERS, cell, partition
from tests.simulation.cell import Cell
from tests.simulation.drainer import Drainer
from tests.simulation.large_states import is_of_gone_topic

IMAGE = cell([1, 2], [partition([1, 2])])
EMPTY = cell([1, 2])
KEY = OffsetKey("group", "orders", 0)


@pytest.mark.parametrize("expire_timestamp_ms", [None, 7000])
def test_an_offset_that_is_loaded_again_is_of_a_gone_topic_when_that_is_gone(
    expire_timestamp_ms: int | None,
) -> None:
    committed = CommittedOffset(5, -1, "", 6000, expire_timestamp_ms, ORDERS)
    loaded = decode_committed_offset(encode_committed_offset(committed))
    for value in (committed, loaded):
        assert not is_of_gone_topic(IMAGE, KEY, value)
        assert is_of_gone_topic(EMPTY, KEY, value)


def test_an_offset_of_a_former_topic_of_that_name_is_of_a_gone_topic() -> None:
    assert is_of_gone_topic(IMAGE, KEY, CommittedOffset(5, -1, "", 6000, topic_id=UUID(int=99)))


class _Asked(Drainer):
    """Keeps what it asks, to be answered by hand: (broker, whether it is to drain, the answer)."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell, "asked")
        self.asked: list[tuple[int, bool, Callable[[Any], None]]] = []

    def ask(
        self,
        node_id: int,
        api_key: ApiKey,
        message: Any,
        on_response: Callable[[Any], None],
        purpose: str = "",
        version: int | None = None,
    ) -> None:
        assert isinstance(message, IncrementalAlterConfigsRequest)
        is_draining = message.resources[0].configs[0].value == "true"
        self.asked.append((node_id, is_draining, on_response))


def test_a_drainer_takes_no_answer_to_an_earlier_word_for_one_to_its_last() -> None:
    """All brokers have been asked twice when the answer to the first time comes."""
    whole = Cell(1)
    answer = IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse()])
    try:
        drainer = _Asked(whole)
        drainer.change()
        first, drainer.asked = drainer.asked, []
        drainer.stop()
        assert whole.world.step()
        last = drainer.asked
        for _, _, answered in first:
            answered(answer)
        assert drainer.waits_for == set(whole.node_ids)
        for _, _, answered in last:
            answered(answer)
        assert not drainer.waits_for
    finally:
        whole.close()
