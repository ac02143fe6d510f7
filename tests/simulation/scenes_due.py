"""A directed history of what is to be done later, and nobody asks for. See scenes.py."""

from __future__ import annotations

from tests.simulation.stage import Stage, Steps

STOP_MS_MAX = 6000
START_MS_MAX = 6000
# Loading takes threads, which are slow at times.
OPEN_MS_MAX = 3000


def _stop(stage: Stage, node_id: int) -> Steps:
    stage.node(node_id).request_stop()
    yield from stage.until(lambda: not stage.node(node_id).is_on, STOP_MS_MAX)


def quiet_start(stage: Stage) -> Steps:
    """A partition with something due is opened though nobody asks for it.

    All its brokers are stopped, the leader last, and only that one starts again, where no client
    reaches it and nobody follows it."""
    assert stage.key is not None
    leader, key = stage.node(stage.leader), stage.key
    stage.part_clients(stage.leader)
    for node_id in (*stage.followers, stage.leader):
        yield from _stop(stage, node_id)
    leader.start()
    yield from stage.until(
        lambda: leader.is_up and stage.state.leader == stage.leader, START_MS_MAX
    )
    services = leader.services
    if not leader.is_up or services is None or stage.state.leader != stage.leader:
        return
    log = services.logs.get(*key)
    if log.due_ms is None:
        return
    if not services.partitions.is_open((key[0].bytes, key[1])):
        stage.reached("a partition with something due is led and not open")
    yield from stage.until(lambda: services.partitions.is_open((key[0].bytes, key[1])), OPEN_MS_MAX)
    is_open = services.partitions.is_open((key[0].bytes, key[1]))
    if leader.services is services and stage.state.leader == stage.leader and not is_open:
        stage.world.violate(f"{leader.name} leads {stage}, has something due there and sleeps")
