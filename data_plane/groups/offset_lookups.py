"""Looking up the offsets of OffsetFetch, in pieces (see chores): a group may have a million."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from data_plane.groups.chores import Pieces
from data_plane.groups.loaded_shard import LoadedShard
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.offset_fetch_request import OffsetFetchRequestGroup
from data_plane.wire.messages.offset_fetch_response import OffsetFetchResponseGroup

# Of a piece, and what each of them is worth.
OFFSETS_PER_PIECE: Final = 500
OFFSET_WORK: Final = 4


def look_up(
    groups: Sequence[OffsetFetchRequestGroup],
    shards: Sequence[tuple[LoadedShard | None, ErrorCode]],
    responses: list[OffsetFetchResponseGroup],
    *,
    require_stable: bool,
) -> Pieces:
    """Put into `responses` what is asked of `groups`, each in its shard, or with an error where
    there is none. A shard that is given up meanwhile is told nothing of."""
    room = OFFSETS_PER_PIECE
    for group, (loaded, error) in zip(groups, shards, strict=True):
        response = OffsetFetchResponseGroup(group_id=group.group_id, error_code=error)
        responses.append(response)
        if loaded is None:
            continue
        if loaded.shard.is_closed:
            response.error_code = ErrorCode.NOT_COORDINATOR
            continue
        for _ in loaded.commits.fetch(group, response, require_stable=require_stable):
            room -= 1
            if room > 0:
                continue
            yield OFFSETS_PER_PIECE * OFFSET_WORK
            room = OFFSETS_PER_PIECE
            if loaded.shard.is_closed:
                response.error_code = ErrorCode.NOT_COORDINATOR
                response.topics = []
                break
