"""How a command asks something of a running stack: one file with the request, one with the answer.

    DIR/request.json   {"id": …, "action": "start" | "stop", "part": "broker-4" | null}
    DIR/answer.json    {"id": …, "message": …}, or {"id": …, "error": …, "exit_status": …}

The supervisor looks for a request whenever it looks after its brokers, takes the file away and does
what it says; one request at a time. Whoever asked waits for the answer with its own id, and when he
waits no longer, he takes a request back that nobody has begun. What is no request is dropped: a bad
file must not end a stack. Files in the stack's folder need no port, no permission beyond the
folder's, and are gone with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stack.errors import EXIT_FAILED, EXIT_USAGE, StackError
from stack.folder import StackFolder
from stack.processes import ProcessIdentity

LOOK_UP_S = 0.05
ANSWER_TIMEOUT_S = 180.0
"""Longer than a broker may take to start or to stop."""

POSTGRES = "postgres"
BROKER_PART = re.compile(r"broker-([0-9]{1,10})")


class Action(StrEnum):
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Request:
    """`part` is `broker-<id>` or `postgres`; None lets the stack choose a new broker."""

    request_id: str
    action: Action
    part: str | None

    @property
    def broker_id(self) -> int | None:
        """The id of the broker that is meant; None where it is Postgres or a new broker."""
        match = None if self.part is None else BROKER_PART.fullmatch(self.part)
        return None if match is None else int(match[1])


def part_named(name: str) -> str | None:
    """The part that a person means: `4`, `postgres`, or "" for a new broker. Raises StackError."""
    if not name:
        return None
    if BROKER_PART.fullmatch(f"broker-{name}"):
        return f"broker-{int(name)}"
    if name == POSTGRES:
        return name
    raise StackError(f"{name} is no broker id and not `postgres`.", EXIT_USAGE)


def ask(folder: StackFolder, action: Action, part: str | None) -> str:
    """Ask the running stack of a folder; its answer for the person. Raises StackError."""
    state = folder.read_state()
    if state is None or not state.supervisor.is_alive():
        raise StackError(f"No stack runs with the data in {folder.path}.")
    request_id = uuid.uuid4().hex
    _place(folder, {"id": request_id, "action": action, "part": part})
    try:
        answer = _await_answer(folder, state.supervisor, request_id)
    except BaseException:
        # Ctrl-C, for instance: what nobody waits for should not be done behind his back.
        _withdraw(folder, request_id)
        raise
    if answer is None:
        undone = _withdraw(folder, request_id)
        what = "nothing was done" if undone else "it may still be at it; look at `status`"
        raise StackError(f"The stack (pid {state.supervisor.pid}) does not answer: {what}.")
    if "error" in answer:
        raise StackError(answer["error"], int(answer["exit_status"]))
    return str(answer["message"])


def _await_answer(
    folder: StackFolder, supervisor: ProcessIdentity, request_id: str
) -> dict[str, Any] | None:
    """The answer to one's own request; None when time is up."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < deadline:
        answer = _read(folder, "answer.json")
        if answer is not None and answer.get("id") == request_id:
            (folder.path / "answer.json").unlink(missing_ok=True)
            return answer
        if not supervisor.is_alive():
            raise StackError("The stack ended before it answered.")
        time.sleep(LOOK_UP_S)
    return None


def _place(folder: StackFolder, request: dict[str, str | None]) -> None:
    temporary = folder.path / f".request.{request['id']}"
    try:
        temporary.write_text(json.dumps(request), encoding="utf-8")
        # A link fails where a rename would replace somebody else's request.
        os.link(temporary, folder.path / "request.json")
    except FileExistsError:
        raise StackError("The stack is busy with another request. Try again in a moment.") from None
    finally:
        temporary.unlink(missing_ok=True)


def _withdraw(folder: StackFolder, request_id: str) -> bool:
    """Take a request back that was not begun. False when it has been taken."""
    found = _read(folder, "request.json")
    if found is None or found.get("id") != request_id:
        return False
    (folder.path / "request.json").unlink(missing_ok=True)
    return True


def take_request(folder: StackFolder) -> Request | None:
    """The next request, which is then no longer there; None also when that was none."""
    if not (folder.path / "request.json").exists():
        return None
    found = _read(folder, "request.json")
    (folder.path / "request.json").unlink(missing_ok=True)
    if found is None:
        return None
    try:
        request = Request(str(found["id"]), Action(found["action"]), found["part"])
    except (KeyError, TypeError, ValueError):
        return None
    is_part = isinstance(request.part, str) and (
        request.part == POSTGRES or request.broker_id is not None
    )
    return request if request.part is None or is_part else None


def answer(folder: StackFolder, request: Request, message: str) -> None:
    """Tell whoever asked what has been done."""
    _answer(folder, {"id": request.request_id, "message": message})


def refuse(folder: StackFolder, request: Request, error: StackError) -> None:
    """Tell whoever asked why not."""
    status = error.exit_status or EXIT_FAILED
    _answer(folder, {"id": request.request_id, "error": str(error), "exit_status": status})


def forget(folder: StackFolder) -> None:
    """Remove what a stack that was killed left unanswered."""
    for name in ("request.json", "answer.json"):
        with contextlib.suppress(FileNotFoundError):
            (folder.path / name).unlink()


def _answer(folder: StackFolder, document: dict[str, object]) -> None:
    folder.write(folder.path / "answer.json", json.dumps(document))


def _read(folder: StackFolder, name: str) -> dict[str, Any] | None:
    try:
        document = json.loads((folder.path / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None
