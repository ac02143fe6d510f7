"""`down --broker ID --remove`: a broker leaves its cell for good, with its data.

1. It holds nothing; else it must be drained first.
2. The stack stops it.
3. The cell forgets it, and refuses where it is in service again or has been given replicas.
4. Its data folder gets another name. The process that starts brokers does that itself, so that none
   starts in this folder meanwhile; it refuses where one has been started since.
5. What has that name is deleted.

Whoever was interrupted in between gives the command again: what is done already is left out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from stack.admin_connection import AdminConnection
from stack.errors import StackError
from stack.folder import StackFolder, bootstrap
from stack.hints import PROGRAM, command
from stack.reassign import replica_counts, unregister
from stack.requests import Action, ask


def remove_broker(folder: StackFolder, broker_id: int, *, tell: Callable[[object], None]) -> None:
    """See the module. Raises StackError."""
    state = folder.read_state()
    living = [] if state is None else state.living()
    others = [b for b in living if b.broker_id != broker_id and b.serves]
    if not others:
        raise StackError(f"No other broker of a stack runs with the data in {folder.path}.")
    runs = any(broker.broker_id == broker_id for broker in living)
    with AdminConnection(bootstrap(others)) as connection:
        held = replica_counts(connection)[broker_id]
        if held:
            raise StackError(
                f"Broker {broker_id} has {held} replicas. Have them moved first: "
                f"{PROGRAM} drain {broker_id} --url {bootstrap(others)}"
            )
        if runs:
            tell(ask(folder, Action.STOP, f"broker-{broker_id}", tell))
        try:
            was_known = unregister(connection, broker_id)
        except StackError as error:
            if not runs:
                raise
            raise StackError(
                f"{error}\nBroker {broker_id} stays a member, with its data. To start it again: "
                f"{command(f'up --add {broker_id}', folder)}"
            ) from error
    has_data = folder.broker_data(broker_id).exists()
    if not was_known and not has_data and not folder.put_aside_of(broker_id):
        raise StackError(f"The cell has no broker {broker_id}: nothing to remove.")
    if has_data:
        put_aside(folder, broker_id, tell)
    _delete(folder, broker_id)
    tell(f"Broker {broker_id} has left the cell; its data folder is deleted.")


def put_aside(folder: StackFolder, broker_id: int, tell: Callable[[object], None]) -> None:
    """Give the data folder of a broker that does not run another name. Raises StackError when it
    runs again."""
    lock = folder.lock()
    if lock is None:
        ask(folder, Action.PUT_ASIDE, f"broker-{broker_id}", tell)
        return
    try:
        # The process that started the brokers has gone, and no other can start any now.
        state = folder.read_state()
        living = [] if state is None else state.living()
        if any(broker.broker_id == broker_id for broker in living):
            raise StackError(f"Broker {broker_id} runs; its data stays.")
        folder.put_aside(broker_id)
    finally:
        os.close(lock)


def _delete(folder: StackFolder, broker_id: int) -> None:
    for data in folder.put_aside_of(broker_id):
        try:
            shutil.rmtree(data)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StackError(
                f"Broker {broker_id} has left the cell, but its data in {data} could not be "
                f"deleted: {error.strerror}. Delete it by hand."
            ) from error
