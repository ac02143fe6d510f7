"""What the controller goes by besides image and live brokers: properties, as plain values.

The broker room reads them from its configuration (broker/cell/controller_settings.py) and
replaces the whole value when one changes. Topic properties are looked up here, since a decision
needs them for every topic of the image that it decides on.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_plane.cell.metadata import TopicImage

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Times in ms.

    - `min_insync_replicas`, `unclean_leader_election`: for topics without their own.
    - `rebuild_delay_ms`: a broker that has been dead for so long gets its replicas replaced.
    - `moves_per_broker_max`: replicas that one broker receives at a time when replicas move by
      the controller's own decision (rebuilding, draining, balancing).
    - `internal_replication_factor`: up to how many replicas internal topics get when there are
      more brokers than when they were made.
    - `auto_replica_rebalance`: whether replicas move to brokers that have fewer.
    """

    session_timeout_ms: int = 1_500
    min_insync_replicas: int = 2
    unclean_leader_election: bool = False
    rebuild_delay_ms: int = 600_000
    moves_per_broker_max: int = 20
    auto_leader_rebalance: bool = True
    leader_imbalance_check_interval_ms: int = 300_000
    leader_imbalance_percent_max: int = 10
    auto_replica_rebalance: bool = False
    internal_replication_factor: int = 3

    def min_insync_replicas_of(self, topic: TopicImage) -> int:
        text = topic.configs.get(MIN_INSYNC_REPLICAS)
        if text is not None:
            try:
                return int(text)
            except ValueError:
                pass  # Stored by another version; as in the configuration, the next level counts.
        return self.min_insync_replicas

    def allows_unclean_election(self, topic: TopicImage) -> bool:
        match topic.configs.get(UNCLEAN_LEADER_ELECTION, "").strip().lower():
            case "true":
                return True
            case "false":
                return False
        return self.unclean_leader_election
