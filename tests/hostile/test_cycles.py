"""What comes and goes with clients is freed when it goes, not when a garbage collection finds it.

A collection of everything is rare in a broker, since nearly all that it has lives for ever. What
refers to itself in a circle (a member to its timer, the timer to what it calls, that to the member)
would stay until then, with all the bytes that its client sent.

A broker is served by clients of many kinds, which then go; then its collector counts what only it
could free.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.request
from pathlib import Path

import pytest

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from data_plane.wire.messages.delete_groups_request import DeleteGroupsRequest
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest
from data_plane.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from data_plane.wire.messages.find_coordinator_request import FindCoordinatorRequest
from data_plane.wire.messages.heartbeat_request import HeartbeatRequest
from data_plane.wire.messages.join_group_response import JoinGroupResponse
from data_plane.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from data_plane.wire.messages.metadata_request import MetadataRequest
from data_plane.wire.messages.offset_fetch_request import OffsetFetchRequest
from data_plane.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from data_plane.wire.records import NewRecord, build_batch
from data_plane.wire.registry import ApiKey
from tests.broker_process import BrokerProcess
from tests.conformance.raw_client import RawClient
from tests.groups.requests import commit, join, leave, sync

# Runs in the broker before anything else. SIGUSR1 empties the collector and turns it off, SIGUSR2
# has it tell what it finds.
COUNTING = """
import collections, gc, json, os, signal

def begin(*_):
    gc.collect()
    gc.disable()
    answer({})

def count(*_):
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    found = collections.Counter(f"{type(one).__module__}.{type(one).__qualname__}"
                                for one in gc.garbage)
    gc.set_debug(0)
    answer(found)

def answer(found):
    path = os.environ["COUNTED"]
    with open(path + ".new", "w") as file:
        json.dump(found, file)
    os.replace(path + ".new", path)

signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, count)
"""
ROUNDS = 25
SESSION_MS = 200
SETTINGS = {
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
# A few per round of something that clients bring would be more.
CIRCLES_MAX = 10


class CountingBroker(BrokerProcess):
    def __init__(self, folder: Path) -> None:
        code = folder / "code"
        code.mkdir(parents=True)
        (code / "sitecustomize.py").write_text(COUNTING)
        self._counted = folder / "counted.json"
        environment = {"PYTHONPATH": str(code), "COUNTED": str(self._counted)}
        super().__init__(folder, set=SETTINGS, environment=environment)

    def signalled(self, number: signal.Signals) -> dict[str, int]:
        self._counted.unlink(missing_ok=True)
        os.kill(self.pid, number)
        deadline = time.monotonic() + 30
        while not self._counted.exists():
            assert time.monotonic() < deadline, "the broker does not answer"
            time.sleep(0.02)
        found: dict[str, int] = json.loads(self._counted.read_text())
        return found


def _topics(client: RawClient, number: int) -> None:
    topic = CreatableTopic(name=f"passing-{number}", num_partitions=2, replication_factor=1)
    client.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=5_000))
    client.ask(
        ApiKey.DELETE_TOPICS,
        4,
        DeleteTopicsRequest(topic_names=[f"passing-{number}"], timeout_ms=5_000),
    )
    client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None))


def _records(client: RawClient) -> None:
    batch = bytes(build_batch([NewRecord(int(time.time() * 1000), b"key", b"value")]))
    for acks in (1, -1):
        data = TopicProduceData(
            name="stays", partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=5_000, topic_data=[data]
        )
        client.ask(ApiKey.PRODUCE, 9, request)
    asked = ListOffsetsTopic(
        name="stays", partitions=[ListOffsetsPartition(partition_index=0, timestamp=5)]
    )
    client.ask(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-1, topics=[asked]))


def _fetches(client: RawClient, *, closes: bool) -> None:
    def fetch(session_id: int, epoch: int, offset: int, *, names: bool = True) -> FetchRequest:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="stays", partitions=[partition])] if names else []
        return FetchRequest(
            max_wait_ms=20,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics,
        )

    client.ask(ApiKey.FETCH, 11, fetch(0, -1, 0))
    session = client.ask(ApiKey.FETCH, 11, fetch(0, 0, 0)).session_id
    client.ask(ApiKey.FETCH, 11, fetch(session, 1, 10_000_000))
    # Waits to the end of its time.
    client.ask(ApiKey.FETCH, 11, fetch(session, 2, 0, names=False))
    if closes:
        client.ask(ApiKey.FETCH, 11, fetch(session, -1, 0, names=False))


def _groups(client: RawClient, number: int, *, leaves: bool) -> None:
    group = f"group-{number}"

    def joined(member_id: str) -> JoinGroupResponse:
        request = join(
            group,
            member_id,
            protocols=[("range", b"\0\1" + bytes(8) + b"m" * 1_000)],
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
        )
        response: JoinGroupResponse = client.ask(ApiKey.JOIN_GROUP, 9, request)
        return response

    abandoned = joined("")
    assert abandoned.error_code == ErrorCode.MEMBER_ID_REQUIRED
    member = joined(joined("").member_id)
    if leaves:
        member_id, generation_id = member.member_id, member.generation_id
        client.ask(
            ApiKey.SYNC_GROUP,
            5,
            sync(group, member_id, generation_id, {member_id: b"all"}, protocol_name="range"),
        )
        client.ask(
            ApiKey.HEARTBEAT,
            4,
            HeartbeatRequest(group_id=group, member_id=member_id, generation_id=generation_id),
        )
        request = commit(group, {("stays", 0): 1}, member_id=member_id, generation_id=generation_id)
        client.ask(ApiKey.OFFSET_COMMIT, 8, request)
        client.ask(ApiKey.LEAVE_GROUP, 4, leave(group, (member_id, None)))
        client.ask(ApiKey.OFFSET_FETCH, 7, OffsetFetchRequest(group_id=group, topics=None))
        client.ask(ApiKey.DELETE_GROUPS, 1, DeleteGroupsRequest(groups_names=[group]))


def wait_for_expired(broker: BrokerProcess, count: int) -> None:
    deadline = time.monotonic() + 30
    page = f"http://127.0.0.1:{broker.metrics_port}/metrics"
    while True:
        with urllib.request.urlopen(page, timeout=30) as answer:
            text = answer.read().decode()
        (expired,) = re.findall(r"^tidewheel_group_members_expired_total (\S+)", text, re.MULTILINE)
        if float(expired) >= count:
            return
        assert time.monotonic() < deadline, f"{expired} sessions of {count} have ended"
        time.sleep(0.05)


@pytest.mark.timeout(180)
def test_what_clients_bring_is_freed_without_the_collector(tmp_path: Path) -> None:
    broker = CountingBroker(tmp_path)
    with broker:
        with RawClient(broker.bootstrap) as client:
            stays = CreatableTopic(name="stays", num_partitions=1, replication_factor=1)
            create = CreateTopicsRequest(topics=[stays], timeout_ms=5_000)
            assert client.ask(ApiKey.CREATE_TOPICS, 5, create).topics[0].error_code == 0
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            assert client.ask(ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code == 0
        for is_counted in (False, True):
            if is_counted:
                broker.signalled(signal.SIGUSR1)
            for number in range(ROUNDS):
                with RawClient(broker.bootstrap) as client:
                    _topics(client, number)
                    _records(client)
                    _fetches(client, closes=bool(number % 2))
                    _groups(client, number, leaves=bool(number % 2))
            # Half of the members have left; the sessions of the others end.
            wait_for_expired(broker, (1 + is_counted) * (ROUNDS + 1) // 2)
        found = broker.signalled(signal.SIGUSR2)
    circles = {
        name: count
        for name, count in found.items()
        if name.startswith("data_plane") and count > CIRCLES_MAX
    }
    assert not circles, found
