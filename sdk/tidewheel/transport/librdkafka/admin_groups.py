"""Requests about consumer groups and their committed offsets.

A group is asked for at its coordinator, for which librdkafka asks any broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient

from tidewheel.errors import GroupNotFound, from_kafka
from tidewheel.message import TopicPartition
from tidewheel.transport.librdkafka.admin_requests import NEVER_S, AdminRequests, only
from tidewheel.transport.librdkafka.connection import answered
from tidewheel.transport.port import GroupInfo, MemberInfo


class GroupRequests(AdminRequests):
    """The part of an `AdminTransport` that is about groups."""

    async def groups(self) -> list[str]:
        """Names of all consumer groups."""
        what = "listing groups"

        async def attempt(timeout_s: float, _is_unsure: bool) -> list[str]:
            future = self._client.list_consumer_groups(request_timeout=timeout_s)
            found = await answered(what, future)
            if found.errors:
                # Every broker is asked for the groups that it coordinates, and one has not told.
                raise from_kafka(found.errors[0], what)
            return sorted(group.group_id for group in found.valid)

        return await self._until_answered(attempt)

    async def describe_group(self, group: str) -> GroupInfo:
        """State and members."""

        async def attempt(timeout_s: float, _is_unsure: bool) -> Any:
            def ask(client: AdminClient) -> Future[Any]:
                return only(client.describe_consumer_groups([group], request_timeout=NEVER_S))

            return await self._at_coordinator(f'describing group "{group}"', ask, timeout_s)

        found = await self._until_answered(attempt)
        if found.state.name == "DEAD" and not found.members:
            raise GroupNotFound(f'Group "{group}" does not exist')
        members = tuple(
            MemberInfo(
                member.member_id,
                member.client_id,
                member.host,
                member.group_instance_id or None,
                tuple(
                    sorted(
                        TopicPartition(p.topic, p.partition)
                        for p in (member.assignment.topic_partitions if member.assignment else ())
                    )
                ),
            )
            for member in sorted(found.members, key=lambda member: member.member_id)
        )
        state = "".join(word.title() for word in found.state.name.split("_"))
        coordinator = found.coordinator.id if found.coordinator is not None else -1
        return GroupInfo(group, state, found.partition_assignor or "", coordinator, members)

    async def delete_group(self, group: str) -> None:
        """Delete an empty group with its offsets."""

        async def attempt(timeout_s: float, is_unsure: bool) -> None:
            def ask(client: AdminClient) -> Future[Any]:
                return only(client.delete_consumer_groups([group], request_timeout=NEVER_S))

            try:
                await self._at_coordinator(f'deleting group "{group}"', ask, timeout_s)
            except GroupNotFound:
                if not is_unsure:
                    raise

        await self._until_answered(attempt)

    async def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """The group's committed offsets."""
        what = f'reading offsets of group "{group}"'

        async def attempt(timeout_s: float, _is_unsure: bool) -> dict[TopicPartition, int]:
            def ask(client: AdminClient) -> Future[Any]:
                asked = [ck.ConsumerGroupTopicPartitions(group)]
                return only(client.list_consumer_group_offsets(asked, request_timeout=NEVER_S))

            found = await self._at_coordinator(what, ask, timeout_s)
            offsets = {}
            for p in found.topic_partitions or ():
                if p.error is not None:
                    raise from_kafka(p.error, what)
                if p.offset >= 0:
                    offsets[TopicPartition(p.topic, p.partition)] = p.offset
            return offsets

        return await self._until_answered(attempt)

    async def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set committed offsets of a group without members."""
        what = f'setting offsets of group "{group}"'
        wanted = [ck.TopicPartition(tp.topic, tp.partition, o) for tp, o in offsets.items()]

        async def attempt(timeout_s: float, _is_unsure: bool) -> None:
            def ask(client: AdminClient) -> Future[Any]:
                moved = [ck.ConsumerGroupTopicPartitions(group, wanted)]
                return only(client.alter_consumer_group_offsets(moved, request_timeout=NEVER_S))

            answer = await self._at_coordinator(what, ask, timeout_s)
            for p in answer.topic_partitions or ():
                if p.error is not None:
                    raise from_kafka(p.error, what)

        await self._until_answered(attempt)
