"""Where two logs of one partition part, and what the follower drops (KIP-101, KIP-279, KIP-595).

A batch is identified by its offset *and* its leader epoch. A follower that was cut off, or that led
before, may hold batches which the present leader does not have, at offsets that the leader has
filled otherwise. High watermarks cannot tell (they lag); epochs can. Each fetch names the epoch of
the follower's last batch and the end of its log. The leader looks up where that epoch ended with
it; when that is another epoch, or before the follower's end, it answers with what it found instead
of records, and the follower truncates and asks again until there is nothing to answer:

    leader     epoch 1: 0…9    epoch 3: 10…
    follower   epoch 1: 0…11   epoch 2: 12…14        fetch from 15, last epoch 2
      ← diverges: (1, 10), the leader's largest epoch up to 2 ends at 10
    the follower's epoch 1 ends at 12; it truncates to min(12, 10)      fetch from 10, last epoch 1
      ← records of epoch 3

Two logs may have several such places, when leaders changed quickly without unclean elections
(KIP-279). Then the follower does not know the epoch that the leader answered with; it truncates to
the end of its largest epoch below, and asks again:

    leader     epoch 1: 0…9    epoch 3: 10…19
    follower   epoch 2: 0…14   epoch 4: 15…19        fetch from 20, last epoch 4
      ← diverges: (3, 20)      the follower's largest epoch up to 3 is 2, it ends at 15
    truncates to 15                                  fetch from 15, last epoch 2
      ← diverges: (1, 10)      the follower knows nothing up to 1: it truncates to min(0, 10)
"""

from __future__ import annotations

from data_plane.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from data_plane.log.log import Log
from data_plane.wire.errors import ErrorCode

EpochEnd = tuple[int, int]
UNDEFINED: EpochEnd = (UNDEFINED_EPOCH, UNDEFINED_OFFSET)


def leader_epoch_end(log: Log, leader_epoch: int, epoch: int) -> EpochEnd:
    """(largest epoch ≤ `epoch`, where it ends), with the leader of `leader_epoch`.

    The log's epochs are those of its batches; the leader's own epoch counts as soon as it leads,
    beginning at its log end while it has not appended anything. Kafka writes such an entry into its
    cache and has to take it out again when the leader resigns without a batch; nothing is written
    here. (-1, -1) for an epoch that this leader does not know of."""
    if epoch < 0 or epoch > leader_epoch:
        return UNDEFINED
    end_offset = log.log_end_offset
    latest = log.latest_epoch
    if epoch == leader_epoch or latest < 0:
        # Nothing is stored: whatever epoch it was, it ends where the log will begin.
        return epoch, end_offset
    if epoch > latest:
        return latest, end_offset
    return log.end_offset_for_epoch(epoch)


def epoch_end(log: Log, leading_epoch: int | None, epoch: int) -> EpochEnd:
    """`leader_epoch_end` of the leader of `leading_epoch`; of a follower when that is None.

    A follower knows the epochs of its batches and no others: of a reader with a newer one it cannot
    say that he has left the log, who may well be ahead."""
    if leading_epoch is None:
        return log.end_offset_for_epoch(epoch)
    return leader_epoch_end(log, leading_epoch, epoch)


def diverges(found: EpochEnd, last_fetched_epoch: int, fetch_offset: int) -> bool:
    """Whether a log that ends at `fetch_offset` with a batch of `last_fetched_epoch` left the
    leader's, which has `found` for that epoch."""
    return found[0] < last_fetched_epoch or found[1] < fetch_offset


def locate_fetch(
    log: Log,
    leading_epoch: int | None,
    fetch_offset: int,
    last_fetched_epoch: int,
    *,
    is_replica: bool = False,
) -> ErrorCode | EpochEnd:
    """Whether a log that ends at `fetch_offset` with a batch of `last_fetched_epoch` (-1: not said)
    can be gone on with from `log`: NONE, OFFSET_OUT_OF_RANGE, or where it has diverged.
    `leading_epoch` as for `epoch_end`. A replica may be below the log start, where folds hold on to
    records, and is out of range where nobody knows whether it has diverged before."""
    if fetch_offset < log.log_start_offset and not (
        is_replica and _is_held(log, fetch_offset, last_fetched_epoch)
    ):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if last_fetched_epoch >= 0:
        if is_replica and _begins_unknown(log, fetch_offset):
            return ErrorCode.OFFSET_OUT_OF_RANGE
        found = epoch_end(log, leading_epoch, last_fetched_epoch)
        if found == UNDEFINED:
            # Nothing is known of that epoch; Kafka says so in these words.
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if diverges(found, last_fetched_epoch, fetch_offset):
            return found
    if fetch_offset > log.log_end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return ErrorCode.NONE


def _is_held(log: Log, offset: int, last_fetched_epoch: int) -> bool:
    """Whether a replica may go on at `offset`, below the log start. One that has something already
    need not begin anew when what is held begins later by now."""
    start = log.copy_start_offset if last_fetched_epoch < 0 else log.anew_start_offset
    return offset >= start


def _begins_unknown(log: Log, offset: int) -> bool:
    """Whether the log begins at `offset` and does not know the epoch of what came before: it has
    begun anew there, and nobody has told it. A log that ends there may hold anything below, and
    would remember producers by records that never counted."""
    return (
        0 < offset <= log.log_start_offset
        and offset <= log.disk_start_offset
        and log.epoch_for_offset(offset - 1) == UNDEFINED_EPOCH
    )


def truncation_offset(log: Log, leader_end: EpochEnd) -> int:
    """Where the follower's log is to end, when the leader says that it diverges at `leader_end`.

    It is below the log end whenever the leader's epoch is older than the log's last one, or its
    offset below the log end; so asking and truncating comes to an end."""
    epoch, end_offset = leader_end
    own_epoch, own_end_offset = log.end_offset_for_epoch(epoch)
    if own_epoch == UNDEFINED_EPOCH:
        # It holds nothing of epochs that could be compared: the leader's word is all there is.
        return min(end_offset, log.log_end_offset)
    if own_epoch != epoch:
        return min(own_end_offset, log.log_end_offset)
    return min(own_end_offset, end_offset, log.log_end_offset)
