"""`down` and `status`: look at a stack from outside, and stop it.

Both trust only processes that they can identify (pid and start time); what else the state file
says may be left from a stack that was killed.
"""

from __future__ import annotations

import json
import signal
from datetime import datetime
from typing import Any

from stack.broker_process import KILL_TIMEOUT_S, STOP_TIMEOUT_S
from stack.errors import EXIT_FAILED, StackError
from stack.folder import StackFolder, bootstrap
from stack.processes import ProcessIdentity


def down(folder: StackFolder) -> int:
    """Stop the stack of a folder gracefully; success when none runs. The exit status."""
    state = folder.read_state()
    if state is None:
        return _nothing_to_stop(folder)
    if state.supervisor.signal(signal.SIGTERM):
        # It stops the brokers itself, one after the other, and removes the state file.
        timeout_s = (STOP_TIMEOUT_S + KILL_TIMEOUT_S) * (len(state.brokers) + 1)
        if state.supervisor.wait_gone(timeout_s):
            print(f"Stopped. The data stays in {folder.path}.")
            return 0
        raise StackError(f"The stack (pid {state.supervisor.pid}) does not stop.")
    orphans = [f"broker {broker.broker_id}" for broker in state.living()]
    for broker in state.living():
        _stop(broker.process, signal.SIGTERM)
    postgres = state.living_postgres()
    if postgres is not None:
        # Postgres calls this its fast shutdown: it waits for no client.
        _stop(postgres.process, signal.SIGINT)
        orphans.append("Postgres")
    if not orphans:
        return _nothing_to_stop(folder)
    folder.remove_state()
    print(f"Stopped {', '.join(orphans)}, which had lost the stack. The data stays.")
    return 0


def _stop(process: ProcessIdentity, number: signal.Signals) -> None:
    process.signal(number)
    if not process.wait_gone(STOP_TIMEOUT_S):
        process.signal(signal.SIGKILL)
        process.wait_gone(KILL_TIMEOUT_S)


def _nothing_to_stop(folder: StackFolder) -> int:
    if folder.is_locked():
        raise StackError("A stack is just starting here. Try again in a moment.")
    print(f"No stack runs with the data in {folder.path}.")
    return 0


def describe(folder: StackFolder) -> dict[str, Any]:
    """What runs on a folder, as `status --json` prints it."""
    state = folder.read_state()
    living = state.living() if state is not None else []
    postgres = state.living_postgres() if state is not None else None
    return {
        "running": bool(living),
        "data": str(folder.path),
        "cluster_id": state.cluster_id if state is not None and living else None,
        "started_at_ms": state.started_at_ms if state is not None and living else None,
        "supervisor_pid": (
            state.supervisor.pid if state is not None and state.supervisor.is_alive() else None
        ),
        "bootstrap": bootstrap(living),
        "brokers": [
            {
                "id": broker.broker_id,
                "pid": broker.process.pid,
                "port": broker.port,
                "metrics_port": broker.metrics_port,
                "inter_broker_port": broker.inter_broker_port or None,
                "data": str(folder.broker_data(broker.broker_id)),
                "log": str(folder.log_file(f"broker-{broker.broker_id}")),
            }
            for broker in living
        ],
        "postgres": None
        if postgres is None
        else {
            "pid": postgres.process.pid,
            "port": postgres.port,
            "data": str(folder.postgres_data),
            "log": str(folder.postgres_data / "postgres.log"),
        },
    }


def status(folder: StackFolder, *, as_json: bool) -> int:
    """Print what runs. Exit status 0 when a broker runs, 1 otherwise."""
    found = describe(folder)
    if as_json:
        print(json.dumps(found))
    elif not found["running"]:
        print(f"No stack runs with the data in {folder.path}.")
    else:
        started = datetime.fromtimestamp(found["started_at_ms"] / 1000).astimezone()
        print(f"Up since {started:%Y-%m-%d %H:%M:%S}, data in {folder.path}")
        for broker in found["brokers"]:
            print(
                f"  broker {broker['id']}   127.0.0.1:{broker['port']}   pid {broker['pid']}"
                f"   metrics http://127.0.0.1:{broker['metrics_port']}/metrics"
            )
        if found["postgres"] is not None:
            postgres = found["postgres"]
            print(f"  postgres   127.0.0.1:{postgres['port']}   pid {postgres['pid']}")
    return 0 if found["running"] else EXIT_FAILED
