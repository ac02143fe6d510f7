"""What the configuration says to the controller, to placement and to ISR changes."""

from __future__ import annotations

from data_plane.broker.config.effective import EffectiveConfig, Source
from data_plane.broker.services import Config
from data_plane.cell.settings import ControllerSettings


def controller_settings(config: Config) -> ControllerSettings:
    """The properties in force now. Cheap enough for every heartbeat: values are kept parsed."""
    return ControllerSettings(
        session_timeout_ms=config.get_int("broker.session.timeout.ms"),
        min_insync_replicas=config.get_int("min.insync.replicas"),
        unclean_leader_election=config.get_bool("unclean.leader.election.enable"),
        rebuild_delay_ms=config.get_int("replica.rebuild.delay.ms"),
        moves_per_broker_max=config.get_int("replica.moves.per.broker.max"),
        auto_leader_rebalance=config.get_bool("auto.leader.rebalance.enable"),
        leader_imbalance_check_interval_ms=1000
        * config.get_int("leader.imbalance.check.interval.seconds"),
        leader_imbalance_percent_max=config.get_int("leader.imbalance.per.broker.percentage"),
        auto_replica_rebalance=config.get_bool("auto.replica.rebalance.enable"),
        internal_replication_factor=config.get_int("offsets.topic.replication.factor"),
    )


def default_replication_factor(config: Config, name: str, brokers_count: int) -> int:
    """The value of a property that says how many replicas a new topic has. One that somebody has
    set is taken by its word, and may be too large; the default is at most `brokers_count`."""
    factor = config.get_int(name)
    is_default = isinstance(config, EffectiveConfig) and (
        config.broker_synonyms(name)[0].source is Source.DEFAULT
    )
    return max(1, min(factor, brokers_count)) if is_default else factor
