"""What `/metrics` tells of retries: each series moves when that happens which it is about."""

from __future__ import annotations

from features.retry_dlq.metrics import ATTEMPTS_TOLD_MAX, EXCEPTIONS_TOLD_MAX, OTHER_EXCEPTIONS
from tests.features.retry_player import RetryPlayer


def value(player: RetryPlayer, name: str, **labels: str) -> float:
    return player.services.metrics.get_sample_value(f"tidewheel_{name}", labels) or 0


def test_attempts_and_deliveries_are_counted() -> None:
    player = RetryPlayer(policy={"retry.backoff": "fixed:1s", "retry.attempts.max": "0"})
    player.store(b"a", b"b")
    player.nack("0:0", "0:1")
    assert value(player, "retry_nacks_total", attempt="1") == 2
    assert value(player, "retry_positions_remembered") == 2
    assert value(player, "retry_deliveries_total") == 0
    player.nack("0:0")
    assert value(player, "retry_repeats_total") == 1
    player.pass_ms(1_000)
    assert value(player, "retry_deliveries_total") == 2
    for _ in range(ATTEMPTS_TOLD_MAX + 3):
        player.nack(f"1:{player.retried()[-1].offset}")
        player.pass_ms(1_000)
    assert value(player, "retry_nacks_total", attempt="2") == 1
    assert value(player, "retry_nacks_total", attempt=str(ATTEMPTS_TOLD_MAX)) == 5


def test_dead_letters_are_counted_by_their_cause() -> None:
    player = RetryPlayer(policy={"retry.attempts.max": "1"})
    player.store(*(b"%d" % number for number in range(EXCEPTIONS_TOLD_MAX + 10)))
    player.nack("0:0", headers=((b"tw-exception", b"ValueError"),))
    player.nack("0:1", "0:2", headers=((b"tw-exception", b"ValueError"),))
    player.command(((b"tw-dead-letter", b"0:3"), (b"tw-reason", b"of no use")))
    # The same is not counted twice.
    player.command(((b"tw-dead-letter", b"0:3"),))
    assert value(player, "retry_dead_total", cause="attempts", exception="ValueError") == 3
    assert value(player, "retry_dead_total", cause="asked", exception="") == 1
    for number in range(4, EXCEPTIONS_TOLD_MAX + 10):
        player.nack(f"0:{number}", headers=((b"tw-exception", b"E%d" % number),))
    # Two names are taken, and six of these have no room.
    assert value(player, "retry_dead_total", cause="attempts", exception="E4") == 1
    assert value(player, "retry_dead_total", cause="attempts", exception=OTHER_EXCEPTIONS) == 8
    for _ in range(5):
        player.pass_ms(1_000)
    assert value(player, "dead_letters_waiting") == 0
    assert value(player, "dead_letters_sent_total") == EXCEPTIONS_TOLD_MAX + 10


def test_dead_letters_that_wait_are_counted_with_the_reason() -> None:
    player = RetryPlayer(policy={"retry.attempts.max": "1", "dlq.topic": "nowhere"})
    player.store(b"a")
    player.nack("0:0")
    player.pass_ms(1_000)
    assert value(player, "dead_letters_waiting") == 1
    assert value(player, "dead_letters_held_total", reason="no_such_topic") >= 1
