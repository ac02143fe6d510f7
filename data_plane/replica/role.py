"""What a replica is to its partition, and what it may do as that.

| role | leads | follows | counts followers | gives consumers records | follows images |
|---|---|---|---|---|---|
| NEW: no image has named it yet | no | no | no | no | yes |
| FOLLOWER: another broker leads, or nobody | no | yes | no | yes, where the request may | yes |
| SOLE_LEADER: it is the only replica | yes | no | no | yes | yes |
| LEADER: there are others | yes | no | yes | yes | yes |
| CLOSED: deleted, moved away, its disk failed | no | no | no | no | no |

- *leads*: takes what clients produce, and lets others wait until it is committed; any other role
  gives an error instead (`Partition.leader_error`).
- *follows*: takes a leader's answers, and drops what is not the leader's. Any other role refuses
  (StaleLeaderEpoch).
- *counts followers*: has a `Leadership`: an ISR, and followers whose fetches say what they have.

Images lead from any role but CLOSED to FOLLOWER, SOLE_LEADER and LEADER; `close` leads from any
role to CLOSED, which is final.
"""

from __future__ import annotations

from enum import Enum, unique


@unique
class Role(Enum):
    """The rows of the table above."""

    NEW = (False, False, False, False, True)
    FOLLOWER = (False, True, False, True, True)
    SOLE_LEADER = (True, False, False, True, True)
    LEADER = (True, False, True, True, True)
    CLOSED = (False, False, False, False, False)

    def __init__(
        self,
        leads: bool,
        follows: bool,
        counts_followers: bool,
        serves_consumers: bool,
        follows_images: bool,
    ) -> None:
        self.leads = leads
        self.follows = follows
        self.counts_followers = counts_followers
        self.serves_consumers = serves_consumers
        self.follows_images = follows_images
