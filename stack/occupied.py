"""Why a stack cannot have a data folder just now: another one has it, or parts of one still run."""

from __future__ import annotations

from stack.errors import StackError
from stack.folder import StackFolder, bootstrap
from stack.hints import command


def in_use_message(folder: StackFolder) -> str:
    """For who finds the folder's lock taken."""
    state = folder.read_state()
    if state is not None and state.is_stopping:
        return (
            f"A stack is just stopping with the data in {folder.path} "
            f"(pid {state.supervisor.pid}). Try again in a moment."
        )
    if state is not None and not state.is_up:
        return (
            f"A stack is just starting with the data in {folder.path} "
            f"(pid {state.supervisor.pid}). Stop it with {command('down', folder)}."
        )
    where = f" at {bootstrap(state.brokers)} (pid {state.supervisor.pid})" if state else ""
    return (
        f"A stack already runs with the data in {folder.path}{where}.\n"
        f"Stop it with {command('down', folder)}, add a broker to it with "
        f"{command('up --add', folder)}, or start another one with its own --data and "
        "--port."
    )


def refuse_orphans(folder: StackFolder) -> None:
    """A part may outlive a killed supervisor. Two on one folder would destroy it. Raises
    StackError."""
    state = folder.read_state()
    if state is None:
        return
    processes = [broker.process for broker in state.living()]
    processes += [part.process for part in state.living_parts()]
    postgres = state.living_postgres()
    if postgres is not None:
        processes.append(postgres.process)
    if processes:
        pids = ", ".join(str(process.pid) for process in processes)
        raise StackError(
            f"A part of an earlier start still runs on {folder.path} (pid {pids}). "
            f"Stop it with {command('down', folder)}."
        )
