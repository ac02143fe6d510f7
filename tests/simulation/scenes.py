"""Directed histories (stage.py): each is the shortest way to where one rule decides.

Each play says in its first lines which rule that is, and how a cell without it comes to harm. On
sound code they all end well (test_scenes.py); the planted bugs that they are for are in mutants_*.

A play gives up quietly when the cell does not go along, and counts when it has got to the point.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation import scenes_due, scenes_retention
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.producer import BATCH_RECORDS_MAX, MAX_IN_FLIGHT
from tests.simulation.promises import OffsetCommit
from tests.simulation.stage import Play, Stage, Steps, directed
from tests.simulation.store import HOST

# How long a follower may lag before it leaves the ISR (cell.PROPERTIES), and a little more.
LAG_MS = 500
LEAVES_ISR_MS = 1500
IS_FENCED_MS = 4000
# What a producer has sent to one partition and waits for.
IN_FLIGHT_RECORDS_MAX = MAX_IN_FLIGHT * BATCH_RECORDS_MAX


def quick_return(stage: Stage) -> Steps:
    """Who joins the ISR does so as the life that has caught up (KIP-903).

    A follower has caught up, and its leader asks for it to join. Before the store hears of that,
    the follower's machine loses power, and it is back, registered and unfenced, without what it had
    not synced. In the store's image only its broker epoch differs."""
    leader, follower = stage.leader, stage.random.choice(stage.followers)
    stage.part(leader, follower)
    yield from stage.until(lambda: follower not in stage.state.isr, LEAVES_ISR_MS)
    stage.part_store(leader)
    stage.join(leader, follower)
    yield from stage.until(lambda: follower in stage.proposed(leader), LAG_MS)
    if follower not in stage.proposed(leader) or not stage.node(follower).is_up:
        return
    stage.part(leader, follower)
    before = stage.broker_epoch(follower)
    stage.node(follower).die(keeps_page_cache=False)
    stage.node(follower).start()
    yield from stage.until(lambda: stage.is_back(follower, before), 1200)
    if stage.is_back(follower, before) and stage.state.leader == leader:
        stage.reached("a follower is back while its ISR change is on the way")
    stage.join_store(leader)
    yield 600


def late_isr(stage: Stage) -> Steps:
    """An ISR change is for the leader epoch that it was asked for in.

    A leader has lost one follower and asks for an ISR without it, but cannot reach the store. It is
    deposed, and reaches the store again while its successor leads with another ISR."""
    leader, heir, lost = stage.leader, *stage.followers
    stage.part(leader, lost)
    stage.part_store(leader)
    yield from stage.until(lambda: stage.state.leader not in (leader, -1), IS_FENCED_MS)
    if stage.state.leader == heir and stage.proposed(leader):
        stage.reached("a deposed leader with an ISR change on the way")
    stage.join_store(leader)
    yield 700


def three_leaders(stage: Stage) -> Steps:
    """Logs part where their epochs do, not where their offsets do (KIP-101, KIP-595).

    The first leader's last records are with one follower only. The other one leads next, and
    writes a record or two that nobody gets. Then the one with the first leader's records leads, and
    writes nothing. Its log is the longer one, and of an older epoch: the second leader has to drop
    what it wrote."""
    first = stage.leader
    second, third = stage.random.sample(stage.followers, 2)
    stage.part(first, second)
    yield from stage.until(lambda: stage.end(third) >= stage.end(second) + 6, 300)
    stage.part(second, third)
    begins_at = stage.end(second)
    if stage.end(third) <= begins_at + 1 or not stage.elect(second):
        return
    stage.part_clients(third)
    yield from stage.until(lambda: stage.end(second) > begins_at, 300)
    stage.part_clients(second)
    epoch = stage.state.leader_epoch + 1
    if stage.end(second) == begins_at or not stage.elect(third):
        return
    yield from stage.until(lambda: stage.known_epoch(third) == epoch, 200)
    yield from stage.until(lambda: stage.known_epoch(second) == epoch, 200)
    if stage.end(second) <= stage.end(third):
        stage.reached("the third leader's log is longer and older")
    stage.join(second, third)
    yield 300


def late_answer(stage: Stage) -> Steps:
    """A follower takes what it has asked for as what it is now.

    A leader's answer is held up on its way to a follower, which truncates under the next leader.
    The answer arrives, perhaps when the first one leads again: it goes on where the follower's log
    does not end any more."""
    first = stage.leader
    second, follower = stage.random.sample(stage.followers, 2)
    stage.part(first, second)
    yield from stage.until(lambda: stage.end(follower) >= stage.end(second) + 3, 250)
    stage.part_way(first, follower)
    stage.part_clients(second)
    yield from stage.until(lambda: stage.end(first) >= stage.end(follower) + 2, 200)
    is_ahead = stage.end(second) < stage.end(follower) < stage.end(first)
    if not is_ahead or not stage.elect(second):
        return
    yield from stage.until(lambda: stage.end(follower) <= stage.end(second), 250)
    if stage.end(follower) > stage.end(second):
        return
    if stage.random.random() < 0.5:
        epoch = stage.state.leader_epoch + 1
        if not stage.elect(first):
            return
        yield from stage.until(lambda: stage.known_epoch(follower) == epoch, 200)
    stage.reached("the answer of an earlier epoch arrives")
    stage.join(first, follower)
    yield 300


def deaf_leader(stage: Stage) -> Steps:
    """What followers had in an older epoch says nothing in a new one.

    A leader hears nothing from the store while another one leads, under whom a follower truncates.
    It is elected again, and learns of both at once: it has been a leader all the time."""
    first = stage.leader
    second, follower = stage.random.sample(stage.followers, 2)
    stage.part(first, second)
    yield from stage.until(lambda: stage.end(follower) >= stage.end(second) + 3, 250)
    stage.part_way(HOST, first)
    stage.part_clients(second)
    if stage.end(follower) <= stage.end(second) or not stage.elect(second):
        return
    yield from stage.until(lambda: stage.end(follower) <= stage.end(second), 250)
    epoch = stage.state.leader_epoch + 1
    stage.part(first, follower)
    if stage.end(follower) > stage.end(second) or not stage.elect(first):
        return
    stage.cell.store.short_feeds[f"b{first}"] = None
    stage.join(first, second)
    stage.join_store(first)
    yield from stage.until(lambda: stage.known_epoch(first) == epoch, 1000)
    if stage.known_epoch(first) == epoch:
        stage.reached("a leader skips the epoch of another one")
    yield 200


def former_life(stage: Stage) -> Steps:
    """A fetch of a life that has ended is no sign of the one that followed it (KIP-903)."""
    leader, follower = stage.leader, stage.random.choice(stage.followers)
    ends = stage.cell.network.hang(f"b{follower}", f"b{leader}")
    yield from stage.until(lambda: any(end.pipe.frames for end in ends), 300)
    yield stage.random.randint(5, 60)
    before = stage.broker_epoch(follower)
    stage.kill(follower)
    stage.node(follower).start()

    def is_known() -> bool:
        leadership = stage.leadership(leader)
        known = None if leadership is None else leadership.followers.get(follower)
        return known is not None and known.broker_epoch > before

    yield from stage.until(is_known, 1200)
    if is_known() and any(end.pipe.frames for end in ends):
        stage.reached("a fetch of a former life arrives")
    stage.join(leader, follower)
    yield 200


def stale_high_watermark(stage: Stage) -> Steps:
    """Who joins the ISR of a new leader has all that this one began with (KIP-497).

    A leader begins with a high watermark of long ago, for it has just been started. A follower that
    was away has as much, and not what was committed meanwhile."""
    first = stage.leader
    heir, away = stage.random.sample(stage.followers, 2)
    stage.kill(away)
    yield from stage.until(lambda: away not in stage.state.isr, IS_FENCED_MS)
    yield 200
    stage.kill(heir)
    stage.part(first, heir)
    before = stage.broker_epoch(heir)
    stage.node(heir).start()
    yield from stage.until(lambda: stage.is_back(heir, before), 1200)
    if heir not in stage.state.isr or not stage.is_back(heir, before) or not stage.elect(heir):
        return
    stage.cell.network.delay_factor = 30.0
    before = stage.broker_epoch(away)
    stage.node(away).start()
    yield from stage.until(lambda: stage.is_back(away, before), 2000)
    stage.reached("a follower comes to a leader that has just begun")
    yield 400


def eligible_without_disk(stage: Stage) -> Steps:
    """Who has lost its disk is in no ELR (KIP-966).

    Two of three die, the second of them joins the ELR. It comes back with an empty disk, gets
    nothing from the leader, and the leader dies."""
    leader = stage.leader
    first, second = stage.random.sample(stage.followers, 2)
    stage.kill(first)
    yield from stage.until(lambda: first not in stage.state.isr, IS_FENCED_MS)
    stage.kill(second)
    yield from stage.until(lambda: second not in stage.state.isr, IS_FENCED_MS)
    if second not in stage.state.elr or stage.state.leader != leader:
        return
    stage.kill(second, takes_disk=True)
    stage.part(leader, second)
    before = stage.broker_epoch(second)
    stage.node(second).start()
    yield from stage.until(lambda: stage.is_back(second, before), 3000)
    if stage.is_back(second, before):
        stage.reached("a broker comes out of the ELR with an empty disk")
    stage.kill(leader)
    yield from stage.until(lambda: leader not in stage.state.isr, IS_FENCED_MS)
    yield 300


def lonely_start(stage: Stage) -> Steps:
    """A broker that was killed may have an old image on its disk, and does not begin with it.

    A follower has just joined the ISR when the store goes away and the leader is killed. It starts
    again, and by the image on its disk the follower is not in the ISR."""
    leader, follower = stage.leader, stage.random.choice(stage.followers)
    stage.part(leader, follower)
    yield from stage.until(lambda: follower not in stage.state.isr, LEAVES_ISR_MS)
    # The image file is written once a second.
    yield 1200
    stage.join(leader, follower)
    yield from stage.until(lambda: follower in stage.state.isr, 500)
    if follower not in stage.state.isr or stage.state.leader != leader:
        return
    stage.reached("a leader is killed with an old image on its disk")
    yield from _lead_alone(stage, leader, follower)


def unheard_expansion(stage: Stage) -> Steps:
    """A leader that begins with the image of its disk waits for all replicas.

    It has asked for a follower to join the ISR, and been stopped before it heard that the store has
    taken that; the store goes away. What it wrote down at its end is the smaller ISR."""
    leader, follower = stage.leader, stage.random.choice(stage.followers)
    yield from _join_unheard(stage, leader, follower)
    if follower not in stage.state.isr or stage.state.leader != leader:
        return
    stage.cell.store.is_down = True
    stage.node(leader).request_stop()
    yield from stage.until(lambda: not stage.node(leader).is_on, 3000)
    stage.join_store(leader)
    yield from _lead_alone(stage, leader, follower)


def lost_answer(stage: Stage) -> Steps:
    """An ISR change whose outcome is not known counts.

    A follower joins the ISR, and its leader does not hear that from the store. The follower is cut
    off: it may be elected, and nothing may be committed without it."""
    leader, follower = stage.leader, stage.random.choice(stage.followers)
    yield from _join_unheard(stage, leader, follower)
    if follower not in stage.state.isr or stage.state.leader != leader:
        return
    stage.reached("a leader does not hear that its ISR has grown")
    stage.part(leader, follower)
    yield 2 * LAG_MS


def _join_unheard(stage: Stage, leader: int, follower: int) -> Steps:
    """A follower leaves the ISR and joins it again, and its leader does not hear from the store
    that it has."""
    stage.part(leader, follower)
    yield from stage.until(lambda: follower not in stage.state.isr, LEAVES_ISR_MS)
    stage.part_way(HOST, leader)
    stage.join(leader, follower)
    yield from stage.until(lambda: follower in stage.state.isr, 500)


def _lead_alone(stage: Stage, leader: int, follower: int) -> Steps:
    """The store is away, and that leader begins anew, without that follower."""
    stage.cell.store.is_down = True
    stage.part(leader, follower)
    stage.kill(leader)
    stage.node(leader).start()
    yield from stage.until(lambda: stage.leadership(leader) is not None, 800)
    if stage.leadership(leader) is not None:
        stage.reached("a leader begins without the store")
    yield 600
    stage.cell.store.is_down = False


def power_cut(stage: Stage) -> Steps:
    """When everybody may have lost something, the longest of enough logs leads.

    All machines lose power in one moment. The followers have just synced, the leader loses what it
    had not. It is the first that is back."""
    leader, *followers = stage.leader, *stage.followers
    synced = stage.end(leader)
    yield from stage.until(lambda: stage.end(leader) >= synced + 6, 300)
    # Committed, and on each disk.
    end = stage.end(leader)
    yield from stage.until(lambda: all(stage.end(one) >= end for one in followers), 100)
    for follower in followers:
        stage.sync(follower)
    for node in stage.cell.nodes.values():
        if node.is_on:
            node.die(keeps_page_cache=False)
    epoch = stage.state.leader_epoch
    stage.node(leader).start()
    yield stage.random.choice((50, 300, 3000, 6000))
    for follower in followers:
        stage.node(follower).start()
        yield stage.random.choice((0, 50, 500))
    yield from stage.until(
        lambda: stage.state.leader >= 0 and stage.state.leader_epoch > epoch, 8000
    )
    if stage.state.leader_epoch > epoch and stage.cell.world.counters["log ends reported"]:
        stage.reached("a leader after a power cut")
    yield 500


def old_coordinator(stage: Stage) -> Steps:
    """A coordinator that has a successor tells nobody what was committed before.

    It is cut off from all other brokers and from the store, and not from clients: nobody can tell
    it that another one coordinates the group, and has acknowledged a commit. Then it is asked."""
    commits = stage.cell.promises.offset_commits
    yield from stage.until(lambda: any(map(_is_acknowledged, commits.values())), 2000)
    found = next((key for key, sent in commits.items() if _is_acknowledged(sent)), None)
    if found is None:
        return
    group, topic, index = found
    old = stage.coordinator(group)
    if old < 0:
        return
    for node_id in stage.cell.nodes:
        if node_id != old:
            stage.part(old, node_id)
    stage.part_store(old)
    yield from stage.until(lambda: stage.coordinator(group) not in (old, -1), IS_FENCED_MS)
    if stage.coordinator(group) in (old, -1):
        return
    since_us = stage.world.now_us
    yield from stage.until(lambda: _is_acknowledged(commits[found], since_us), IS_FENCED_MS)
    if not _is_acknowledged(commits[found], since_us):
        return
    # What is asked in the same microsecond may still hear of the commit before.
    yield 1
    answers = stage.ask_offset(old, group, topic, index)
    yield from stage.until(lambda: bool(answers), 1500)
    stage.reached("a coordinator that has a successor is asked")


def unclean_heir(stage: Stage) -> Steps:
    """Where unclean elections are allowed, what a deposed leader adds beside an heir from outside
    its ISR counts for nothing, even if the heir began with all that was committed.

    The followers have all of a leader's records when they end, so the leader stays alone in its
    ISR. It stands still when they are back; one of them is elected, and goes on. Then the first
    leader gets what clients have sent to it before, and commits it on its own."""
    leader, followers = stage.leader, stage.followers
    stage.part_clients(leader)
    yield from stage.until(lambda: {*map(stage.end, followers)} == {stage.end(leader)}, 300)
    end = stage.end(leader)
    for follower in followers:
        stage.part(leader, follower)
        stage.kill(follower)
    yield from stage.until(lambda: stage.confirmed(leader) == (leader,), IS_FENCED_MS)
    if stage.confirmed(leader) != (leader,):
        return
    stage.join_clients(leader)
    stage.node(leader).pause()
    for follower in followers:
        stage.node(follower).start()
    yield from stage.until(lambda: stage.state.leader not in (leader, -1), IS_FENCED_MS)
    heir = stage.state.leader
    yield from stage.until(lambda: stage.end(heir) > end, 300)
    stage.node(leader).resume()
    yield from stage.until(lambda: stage.end(leader) > end, 200)
    if heir in followers and stage.end(heir) > end and stage.end(leader) > end:
        stage.reached("a deposed leader goes on beside its unclean heir")
    yield 300


def overtaken_leader(stage: Stage) -> Steps:
    """The same where the heir has committed other records at those offsets by then, and somebody
    still waits for the first leader.

    The followers are back before that one stands still, but cut off from it. A producer sends
    something to it then, and it stands no longer than such a request waits for its answer."""
    leader, followers = stage.leader, stage.followers
    stage.part_clients(leader)
    yield from stage.until(lambda: {*map(stage.end, followers)} == {stage.end(leader)}, 300)
    end = stage.end(leader)
    before = {follower: stage.broker_epoch(follower) for follower in followers}
    for follower in followers:
        stage.part(leader, follower)
        stage.kill(follower)
    yield from stage.until(lambda: stage.confirmed(leader) == (leader,), IS_FENCED_MS)
    if stage.confirmed(leader) != (leader,):
        return
    for follower in followers:
        stage.node(follower).start()
    yield from stage.until(
        lambda: all(stage.is_back(follower, before[follower]) for follower in followers),
        IS_FENCED_MS,
    )
    stage.node(leader).pause()
    producer = stage.producer()
    yield from stage.until(lambda: stage.state.leader not in (leader, -1), IS_FENCED_MS)
    producer.stop()
    heir = stage.state.leader
    yield from stage.until(lambda: stage.high_watermark(heir) > end + IN_FLIGHT_RECORDS_MAX, 500)
    stage.node(leader).resume()
    yield from stage.until(lambda: stage.high_watermark(leader) > end, 200)
    if heir in followers and end < stage.high_watermark(leader) < stage.high_watermark(heir):
        stage.reached("a deposed leader commits where its unclean heir has")
    yield 300


def unheard_elr(stage: Stage) -> Steps:
    """Where unclean elections are allowed, too, who has everything is waited for until he is known
    to be dead, also when nobody is in the ISR any more.

    A leader dies and is in the ELR; the only other one in the ISR loses power. Both are back, and
    the store hears nothing more of the first. The other one is the controller, and sees itself
    alive."""
    first, lost = stage.leader, stage.random.choice(stage.followers)
    (third,) = (one for one in stage.followers if one != lost)
    stage.kill(third)
    yield from stage.until(lambda: third not in stage.state.isr, IS_FENCED_MS)
    stage.kill(first)
    yield from stage.until(lambda: stage.state.isr == (lost,), IS_FENCED_MS)
    if (stage.state.isr, stage.state.elr) != ((lost,), (first,)):
        return
    stage.node(lost).die(keeps_page_cache=False)
    stage.node(first).start()
    yield from stage.until(lambda: stage.node(first).is_up, 1000)
    stage.part_store(first)
    before = stage.broker_epoch(lost)
    stage.node(lost).start()
    yield from stage.until(lambda: stage.is_back(lost, before), 2000)
    if stage.is_back(lost, before) and (stage.state.isr, stage.state.elr) == ((), (first,)):
        stage.reached("who has lost power is let in before the one with everything")
    stage.join_store(first)
    yield 600


def cut_then_dark(stage: Stage) -> Steps:
    """What was cut off and written anew is not what the checkpoint vouches for.

    A leader that nobody follows has its records synced and stored in a checkpoint. It is deposed,
    cuts them off, and gets the next leader's in their place. These are not synced yet when its
    machine loses power; the checkpoint's recovery point lies behind them."""
    first = stage.leader
    second, third = stage.random.sample(stage.followers, 2)
    begins_at = stage.end(first)
    stage.part(first, second)
    stage.part(first, third)
    yield from stage.until(lambda: stage.end(first) >= begins_at + 6, 400)
    stage.checkpoint(first)
    vouched = stage.end(first)
    stage.part_clients(first)
    if vouched < begins_at + 4 or not stage.elect(second):
        return
    epoch = stage.state.leader_epoch
    yield from stage.until(lambda: stage.known_epoch(first) == epoch, 300)
    stage.join(first, second)
    yield from stage.until(lambda: stage.end(first) < vouched, 300)
    is_cut = stage.end(first) < vouched
    yield from stage.until(lambda: stage.end(first) >= vouched, 300)
    if not is_cut or not stage.node(first).is_up:
        return
    stage.reached("the power goes when what was cut is written anew")
    stage.node(first).die(keeps_page_cache=False)
    yield 100
    stage.join_clients(first)
    stage.node(first).start()
    yield from stage.until(lambda: stage.node(first).is_up, 1000)
    yield 300


def _is_acknowledged(sent: Sequence[OffsetCommit], since_us: int = 0) -> bool:
    """Whether one of the commits was acknowledged, and sent no earlier."""
    return any(one.acknowledged_us is not None and one.sent_us >= since_us for one in sent)


SHORT_RETENTION = {"retention.ms": scenes_retention.SHORT_MS, "segment.ms": "200"}
HOUR_RETENTION = {"retention.ms": "3600000", "segment.ms": "200"}
# What each play needs of the cell's properties.
PLAYS: dict[Play, dict[str, str]] = {
    quick_return: {"broker.session.timeout.ms": "1500"},
    late_isr: {},
    three_leaders: {},
    late_answer: {},
    deaf_leader: {},
    former_life: {},
    stale_high_watermark: {"log.flush.offset.checkpoint.interval.ms": "60000"},
    eligible_without_disk: {},
    lonely_start: {},
    unheard_expansion: {"controlled.shutdown.enable": "false"},
    lost_answer: {},
    power_cut: {},
    old_coordinator: {},
    unclean_heir: {},
    overtaken_leader: {},
    unheard_elr: {},
    cut_then_dark: {"log.flush.offset.checkpoint.interval.ms": "60000", "log.roll.ms": "60000"},
    scenes_retention.old_retention: {},
    scenes_retention.unheard_retention: {},
    scenes_retention.wrong_clock: {"clock.settle.ms": "300000"},
    scenes_retention.wrong_start: {"clock.settle.ms": "300000"},
    scenes_due.quiet_start: {},
}
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
# What each play needs of its topic.
TOPIC_CONFIGS: dict[Play, dict[str, str]] = {
    unclean_heir: UNCLEAN,
    overtaken_leader: UNCLEAN,
    unheard_elr: {"unclean.leader.election.enable": "true"},
    scenes_retention.old_retention: SHORT_RETENTION,
    scenes_retention.unheard_retention: SHORT_RETENTION,
    scenes_retention.wrong_clock: HOUR_RETENTION,
    scenes_retention.wrong_start: HOUR_RETENTION,
}


# What each play needs of the brokers.
EXTRAS: dict[Play, frozenset[str]] = {scenes_due.quiet_start: frozenset({"pins"})}


def options(play: Play) -> Options:
    """A small cell in which nothing goes wrong but what the play does."""
    steady = {
        "leader.imbalance.check.interval.seconds": "300",
        "replica.rebuild.delay.ms": "600000",
    }
    return Options(
        brokers=3,
        faults=frozenset(),
        admin=frozenset(),
        topics=(TopicPlan("data3", 1, 3, TOPIC_CONFIGS.get(play, {})),),
        properties=steady | PLAYS[play],
        script=directed(play),
        extras=EXTRAS.get(play),
    )
