"""Raw requests are answered as Apache Kafka 4.3.1 answered them; see scripts and kafka_player."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_plane.broker.request.api import Deferred
from data_plane.wire.registry import ApiKey
from tests.groups import scripts
from tests.groups.local_player import LocalPlayer

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_answers_are_those_of_kafka(name: str) -> None:
    player = LocalPlayer()
    warm_up = player.broker.handle(
        ApiKey.FIND_COORDINATOR, 4, scripts.find_coordinator_request("warm-up")
    )
    assert not isinstance(warm_up, Deferred)
    scripts.SCRIPTS[name](player)
    expected = (GOLDEN / f"{name}.txt").read_text().splitlines()
    for ours, kafkas in zip(player.transcript, expected, strict=True):
        assert ours == kafkas


def test_every_recorded_script_is_played() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(scripts.SCRIPTS)
