"""Directed histories of retention: what is deleted by settings and clocks that are wrong.

See scenes.py."""

from __future__ import annotations

from tests.simulation.node import Node
from tests.simulation.stage import Stage, Steps

SESSION_MS = 600
MONTH_MS = 30 * 24 * 3600 * 1000
# Retention under which records go while a play watches.
SHORT_MS = "300"


def _starts(stage: Stage) -> dict[int, int]:
    """Where each broker's log of the partition begins. Of one that is stopped its disk says so: it
    may have deleted more than the others, and rightly, before."""
    assert stage.key is not None
    starts = {}
    for node_id, node in stage.cell.nodes.items():
        view = stage.cell.history.disks.get(node.name, {}).get(stage.key)
        if node.services is not None:
            starts[node_id] = node.services.logs.get(*stage.key).log_start_offset
        elif view is not None:
            starts[node_id] = view.start_offset
    return starts


def _delete_nothing(stage: Stage, before: dict[int, int], why: str) -> None:
    for node_id, start in _starts(stage).items():
        if start > max(before.values()):
            stage.world.violate(f"b{node_id} has deleted up to {start}, {why}: {before}")


def old_retention(stage: Stage) -> Steps:
    """Nothing is deleted by an image that nobody has vouched for.

    A follower is stopped, and the topic is told to keep everything from now on. The store goes away
    and the follower begins with the image of its disk, in which records are old at once. Its
    log start would spread once it leads."""
    follower = stage.random.choice(stage.followers)
    stage.node(follower).request_stop()
    yield from stage.until(lambda: not stage.node(follower).is_on, 3000)
    store = stage.cell.store
    stage.set_topic_configs({"retention.ms": "-1"})
    yield 200
    before = _starts(stage)
    yield 300
    _delete_nothing(stage, before, "which is to be kept")
    store.is_down = True
    stage.node(follower).start()
    yield 1400
    if stage.node(follower).services is not None:
        stage.reached("a broker serves with the retention of long ago")
    _delete_nothing(stage, before, "by an old image")
    store.is_down = False
    yield from stage.until(lambda: follower in stage.state.isr, 3000)
    _delete_nothing(stage, before, "by an old image")
    stage.set_topic_configs({"retention.ms": SHORT_MS})
    yield 500


def unheard_retention(stage: Stage) -> Steps:
    """Nothing is deleted by an image that was vouched for long ago.

    A follower is cut off from the store, and the topic is told to keep everything a session later.
    The leader's records still come, and are old at once by the image that the follower has."""
    follower = stage.random.choice(stage.followers)
    stage.part_store(follower)
    yield SESSION_MS + 100
    stage.set_topic_configs({"retention.ms": "-1"})
    yield 200
    before = _starts(stage)
    yield 1500
    if stage.node(follower).services is not None:
        stage.reached("a broker that is cut off has the retention of long ago")
    _delete_nothing(stage, before, "by an old image")
    stage.join_store(follower)
    yield 500
    _delete_nothing(stage, before, "by an old image")
    stage.set_topic_configs({"retention.ms": SHORT_MS})
    yield 500


def wrong_clock(stage: Stage) -> Steps:
    """A clock that is wrong for a moment costs no record.

    Records are kept for an hour, and a broker's clock, or the store's, or both, which are often one
    machine's, are a month ahead for two seconds; retention looks each second."""
    node = stage.node(stage.random.choice((stage.leader, *stage.followers)))
    store = stage.cell.store
    before = _starts(stage)
    who = stage.random.choice(("broker", "store", "both"))
    if who != "store":
        _add(node, MONTH_MS)
    if who != "broker":
        store.clock_offset_ms += MONTH_MS
    yield 2500
    _delete_nothing(stage, before, f"because the clock of {who} was wrong for a moment")
    stage.reached(f"clocks are wrong for a moment: {who}")
    if who != "store":
        _add(node, -MONTH_MS)
    if who != "broker":
        store.clock_offset_ms -= MONTH_MS
    yield 1500
    _delete_nothing(stage, before, f"after the clock of {who} was wrong for a moment")


def wrong_start(stage: Stage) -> Steps:
    """Who starts while all clocks are wrong does not believe them.

    Records are kept for an hour. A follower is killed, and in half of the histories its disk is
    lost, so that nothing tells it what date it was. When it starts, its clock and the store's are a
    month ahead, for three seconds; retention looks each second at what it has, and gets."""
    node_id = stage.random.choice(stage.followers)
    node, store = stage.node(node_id), stage.cell.store
    before = _starts(stage)
    takes_disk = stage.random.random() < 0.5
    stage.kill(node_id, takes_disk=takes_disk)
    yield 100
    _add(node, MONTH_MS)
    store.clock_offset_ms += MONTH_MS
    node.start()
    yield from stage.until(lambda: node.is_up, 1000)
    yield 3000
    _delete_nothing(stage, before, "because it began with a clock that was wrong")
    if node.is_up:
        disk = "an empty disk" if takes_disk else "its old disk"
        stage.reached(f"a broker starts on {disk} while all clocks are wrong")
    _add(node, -MONTH_MS)
    store.clock_offset_ms -= MONTH_MS
    yield 1500
    _delete_nothing(stage, before, "after a start with a clock that was wrong")


def _add(node: Node, error_ms: int) -> None:
    node.set_clock(node.skew_ms + error_ms, node.clock_rate)
