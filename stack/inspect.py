"""`down` and `status`: look at a stack from outside, and stop it.

Both trust only processes that they can identify (pid and start time); what else the state file
says may be left from a stack that was killed.
"""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime
from typing import Any

from stack.child import STOP_TIMEOUT_S
from stack.errors import EXIT_FAILED, StackError
from stack.folder import MetadataStoreKind, StackFolder, StackState, bootstrap
from stack.health import health_lines, healths
from stack.hints import command
from stack.processes import KILL_TIMEOUT_S, ProcessIdentity
from stack.requests import CONTROL_PLANE_PARTS, SERVER, VALKEY


def down(folder: StackFolder) -> int:
    """Stop the stack of a folder gracefully; success when none runs. The exit status."""
    state = folder.read_state()
    if state is not None and state.supervisor.signal(signal.SIGTERM):
        # It stops the brokers itself, one after the other, and removes the state file.
        parts = len(state.brokers) + len(state.control_plane or ())
        timeout_s = (STOP_TIMEOUT_S + KILL_TIMEOUT_S) * (parts + 1)
        if state.supervisor.wait_gone(timeout_s):
            print(f"Stopped. The data stays in {folder.path}.")
            return 0
        raise StackError(f"The stack (pid {state.supervisor.pid}) does not stop.")
    if folder.is_locked():
        raise StackError("A stack is just starting or stopping here. Try again in a moment.")
    has_left = state is not None or _has_postgres(folder) or _has_valkey(folder)
    orphans = _stop_orphans(folder, state) if has_left else []
    if orphans:
        print(f"Stopped {', '.join(orphans)}, which had lost the stack. The data stays.")
    else:
        print(f"No stack runs with the data in {folder.path}.")
    return 0


def _stop_orphans(folder: StackFolder, state: StackState | None) -> list[str]:
    """Stop what a supervisor that was killed has left running; the names of it. Holds the folder
    meanwhile, so that no other stack starts among it."""
    lock = folder.lock()
    if lock is None:
        raise StackError("A stack is just starting or stopping here. Try again in a moment.")
    try:
        parts = [] if state is None else state.living_parts()
        for part in parts:
            _stop(part.process)
        stopped = [f"the {part.part.replace('-', ' ')}" for part in parts if part.part != VALKEY]
        brokers = [] if state is None else state.living()
        for broker in brokers:
            _stop(broker.process)
        stopped += [f"broker {broker.broker_id}" for broker in brokers]
        found_valkey = _has_valkey(folder) and _stop_valkey(folder)
        if found_valkey or any(part.part == VALKEY for part in parts):
            stopped.append("Valkey")
        # Also one that no state file names, because the supervisor was killed while it started.
        if _has_postgres(folder) and _stop_postgres(folder):
            stopped.append("Postgres")
        folder.remove_state()
        return stopped
    finally:
        os.close(lock)


def _has_postgres(folder: StackFolder) -> bool:
    return (folder.postgres_data / "data" / "postmaster.pid").exists()


def _stop_postgres(folder: StackFolder) -> bool:
    # Only a cell has one, and needs the modules for it.
    from stack.postgres import stop_leftover

    return stop_leftover(folder.postgres_data)


def _has_valkey(folder: StackFolder) -> bool:
    return (folder.valkey / "valkey.pid").exists()


def _stop_valkey(folder: StackFolder) -> bool:
    from stack.valkey import stop_leftover

    return stop_leftover(folder.valkey)


def _stop(process: ProcessIdentity) -> None:
    if not process.end(signal.SIGTERM, STOP_TIMEOUT_S):
        raise StackError(f"Process {process.pid} does not end, not even by kill -9.")


def describe(folder: StackFolder) -> dict[str, Any]:
    """What runs on a folder, as `status --json` prints it."""
    state = folder.read_state()
    living = state.living() if state is not None else []
    postgres = state.living_postgres() if state is not None else None
    present = {broker.broker_id for broker in living}
    found_healths = healths(living)
    return {
        "running": bool(living) and state is not None and state.is_up,
        "stopping": state is not None and state.is_stopping and state.supervisor.is_alive(),
        "restarting": (
            state is not None
            and state.is_up
            and not state.is_stopping
            and not living
            and state.supervisor.is_alive()
        ),
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
                "port": broker.port or None,
                "metrics_port": broker.metrics_port or None,
                "inter_broker_port": broker.inter_broker_port or None,
                "cell_admin_port": broker.cell_admin_port or None,
                "listeners": dict(broker.listeners),
                "data": str(folder.broker_data(broker.broker_id)),
                "log": str(folder.log_file(f"broker-{broker.broker_id}")),
                "health": found_healths.get(broker.broker_id),
            }
            for broker in living
        ],
        "brokers_not_running": [i for i in folder.broker_ids() if i not in present],
        "postgres": None
        if postgres is None
        else {
            "pid": postgres.process.pid,
            "port": postgres.port,
            "data": str(folder.postgres_data),
            "log": str(folder.postgres_data / "postgres.log"),
        },
        "control_plane": _describe_control_plane(folder, state),
    }


def _describe_control_plane(folder: StackFolder, state: StackState | None) -> dict[str, Any] | None:
    """Its parts by name, null for one that does not run; None where it was not asked for."""
    if state is None or state.control_plane is None:
        return None
    living = {part.part: part for part in state.living_parts()}
    parts: dict[str, Any] = {
        name: None
        if name not in living
        else {
            "pid": living[name].process.pid,
            "port": living[name].port or None,
            "log": str(folder.log_file(name)),
        }
        for name in CONTROL_PLANE_PARTS
    }
    serves = SERVER in living and living[SERVER].port
    url = f"http://127.0.0.1:{living[SERVER].port}" if serves else None
    return {"url": url, "docs": url and f"{url}/api/v1/docs", "parts": parts}


def _brings_postgres(found: dict[str, Any], folder: StackFolder) -> bool:
    """Whether it has one for the control plane alone."""
    return found["control_plane"] is not None and (folder.postgres_data / "data").exists()


def _control_plane_lines(found: dict[str, Any] | None, folder: StackFolder) -> list[str]:
    lines = []
    for name, part in ({} if found is None else found["parts"]).items():
        shown = f"{name.replace('-', ' '):<8}"
        if part is None:
            lines.append(f"  {shown}   not running   log {folder.log_file(name)}")
            continue
        where = f"   127.0.0.1:{part['port']}" if part["port"] else ""
        if name == SERVER and part["port"]:
            where = f"   http://127.0.0.1:{part['port']}/api/v1"
        lines.append(f"  {shown}{where}   pid {part['pid']}")
    return lines


def status(folder: StackFolder, *, as_json: bool) -> int:
    """Print what runs. Exit status 0 when a broker runs, 1 otherwise."""
    found = describe(folder)
    if as_json:
        print(json.dumps(found))
    else:
        print("\n".join(_lines(found, folder)))
    return 0 if found["running"] else EXIT_FAILED


def _lines(found: dict[str, Any], folder: StackFolder) -> list[str]:
    """What `status` says, from `describe`."""
    parts, postgres, plane = found["brokers"], found["postgres"], found["control_plane"]
    has_parts = any((plane or {"parts": {}})["parts"].values())
    if not parts and postgres is None and not has_parts and not found["restarting"]:
        return [f"No stack runs with the data in {folder.path}."]
    if found["stopping"]:
        lines = [f"Stopping, data in {folder.path}"]
    elif found["running"]:
        started = datetime.fromtimestamp(found["started_at_ms"] / 1000).astimezone()
        lines = [f"Up since {started:%Y-%m-%d %H:%M:%S}, data in {folder.path}"]
    elif found["restarting"]:
        lines = [
            f"All brokers have ended; the stack (pid {found['supervisor_pid']}) starts them again, "
            f"data in {folder.path}"
        ]
    elif found["supervisor_pid"] is not None:
        lines = [f"A stack is starting or stopping with the data in {folder.path}"]
    else:
        lines = [f"No stack runs with the data in {folder.path}, but parts of one"]
    for broker in parts:
        address = f"127.0.0.1:{broker['port']}" if broker["port"] else "not ready"
        line = f"  broker {broker['id']}   {address}   pid {broker['pid']}"
        if broker["metrics_port"]:
            line += f"   metrics http://127.0.0.1:{broker['metrics_port']}/metrics"
        lines.append(line)
        if broker["metrics_port"]:
            lines += [f"    {text}" for text in health_lines(broker["health"])]
    if any((one["health"] or {}).get("offline_log_directories") for one in parts):
        lines.append(
            f"  {command('down', folder)} stops the stack, {command('up', folder)} starts it again."
        )
    for broker_id in found["brokers_not_running"]:
        log = folder.log_file(f"broker-{broker_id}")
        lines.append(f"  broker {broker_id}   not running   log {log}")
    if postgres is not None:
        lines.append(f"  postgres   127.0.0.1:{postgres['port']}   pid {postgres['pid']}")
    elif folder.store_kind() is MetadataStoreKind.POSTGRES or _brings_postgres(found, folder):
        log = folder.postgres_data / "postgres.log"
        lines.append(f"  postgres   not running   log {log}")
    lines += _control_plane_lines(plane, folder)
    if found["supervisor_pid"] is None:
        lines.append(
            f"The process that looked after them has ended. {command('down', folder)} stops them, "
            f"{command('up', folder)} starts them again then."
        )
    return lines
