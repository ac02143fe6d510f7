"""All planted bugs, and how to try them: python -m tests.simulation.mutants [--only NAME]."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.mutant import Mutant, hunt
from tests.simulation.mutants_brief import BRIEF_MUTANTS
from tests.simulation.mutants_broker import BROKER_MUTANTS
from tests.simulation.mutants_bundles import BUNDLE_MUTANTS
from tests.simulation.mutants_cell import CELL_MUTANTS
from tests.simulation.mutants_cleaner import CLEANER_MUTANTS
from tests.simulation.mutants_commands import COMMAND_MUTANTS
from tests.simulation.mutants_compacted_delays import COMPACTED_DELAY_MUTANTS
from tests.simulation.mutants_delays import DELAY_MUTANTS
from tests.simulation.mutants_drains import DRAIN_MUTANTS
from tests.simulation.mutants_factors import FACTOR_MUTANTS
from tests.simulation.mutants_follower import FOLLOWER_MUTANTS
from tests.simulation.mutants_large import LARGE_MUTANTS
from tests.simulation.mutants_leaps import LEAP_MUTANTS
from tests.simulation.mutants_pins import PIN_MUTANTS
from tests.simulation.mutants_projections import PROJECTION_MUTANTS
from tests.simulation.mutants_quotas import QUOTA_MUTANTS
from tests.simulation.mutants_repair import REPAIR_MUTANTS
from tests.simulation.mutants_replica import REPLICA_MUTANTS
from tests.simulation.mutants_retention import RETENTION_MUTANTS
from tests.simulation.mutants_retries import RETRY_MUTANTS
from tests.simulation.mutants_returns import RETURN_MUTANTS
from tests.simulation.mutants_sessions import SESSION_MUTANTS
from tests.simulation.mutants_slow import SLOW_MUTANTS
from tests.simulation.mutants_standing import STANDING_MUTANTS
from tests.simulation.mutants_starts import START_MUTANTS
from tests.simulation.mutants_static import STATIC_MUTANTS
from tests.simulation.mutants_subscriptions import SUBSCRIPTION_MUTANTS
from tests.simulation.mutants_tenants import TENANT_MUTANTS
from tests.simulation.mutants_throttles import THROTTLE_MUTANTS
from tests.simulation.mutants_undeletes import UNDELETE_MUTANTS

MUTANTS: tuple[Mutant, ...] = (
    *REPLICA_MUTANTS,
    *FOLLOWER_MUTANTS,
    *CELL_MUTANTS,
    *STANDING_MUTANTS,
    *CLEANER_MUTANTS,
    *BROKER_MUTANTS,
    *REPAIR_MUTANTS,
    *RETURN_MUTANTS,
    *RETENTION_MUTANTS,
    *BUNDLE_MUTANTS,
    *FACTOR_MUTANTS,
    *STATIC_MUTANTS,
    *SLOW_MUTANTS,
    *THROTTLE_MUTANTS,
    *QUOTA_MUTANTS,
    *DRAIN_MUTANTS,
    *BRIEF_MUTANTS,
    *START_MUTANTS,
    *SESSION_MUTANTS,
    *LEAP_MUTANTS,
    *LARGE_MUTANTS,
    *PROJECTION_MUTANTS,
    *SUBSCRIPTION_MUTANTS,
    *PIN_MUTANTS,
    *DELAY_MUTANTS,
    *COMMAND_MUTANTS,
    *RETRY_MUTANTS,
    *COMPACTED_DELAY_MUTANTS,
    *UNDELETE_MUTANTS,
    *TENANT_MUTANTS,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those with this in their name")
    arguments = parser.parse_args()
    survivors = 0
    for mutant in MUTANTS:
        if arguments.only not in mutant.name:
            continue
        started = time.perf_counter()
        tried, killed = hunt(mutant)
        took_s = time.perf_counter() - started
        if killed is None or killed.failure is None:
            survivors += 1
            print(f"LIVES   {mutant.name}: {tried} seeds, {took_s:.1f} s")
        else:
            reason = killed.failure.strip().splitlines()[-1][:150]
            print(f"killed  {mutant.name}: seed {killed.seed}, {tried} tried, {took_s:.1f} s")
            print(f"            {reason}")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
