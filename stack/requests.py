"""How a command asks something of a running stack: one file with the request, one with the answer.

    DIR/request.json   {"id": …, "action": "start" | "stop", "part": "broker-4" | null}
    DIR/answer.json    {"id": …, "message": …}, or {"id": …, "error": …, "exit_status": …}

The supervisor looks for a request whenever it looks after its brokers, takes the file away and does
what it says; one request at a time. Whoever asked waits for the answer with its own id. Files in
the stack's folder need no port, no permission beyond the folder's, and are gone with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stack.errors import EXIT_FAILED, EXIT_USAGE, StackError
from stack.folder import StackFolder

LOOK_UP_S = 0.05
ANSWER_TIMEOUT_S = 180.0
"""Longer than a broker may take to start or to stop."""


class Action(StrEnum):
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Request:
    """`part` is `broker-<id>` or `postgres`; None lets the stack choose a new broker."""

    request_id: str
    action: Action
    part: str | None


def part_named(name: str) -> str | None:
    """The part that a person means: `4`, `postgres`, or "" for a new broker. Raises StackError."""
    if not name:
        return None
    if name.isdigit():
        return f"broker-{name}"
    if name == "postgres":
        return name
    raise StackError(f"{name} is no broker id and not `postgres`.", EXIT_USAGE)


def ask(folder: StackFolder, action: Action, part: str | None) -> str:
    """Ask the running stack of a folder; its answer for the person. Raises StackError."""
    state = folder.read_state()
    if state is None or not state.supervisor.is_alive():
        raise StackError(f"No stack runs with the data in {folder.path}.")
    request_id = uuid.uuid4().hex
    _place(folder, {"id": request_id, "action": action, "part": part})
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < deadline:
        answer = _read(folder, "answer.json")
        if answer is not None and answer.get("id") == request_id:
            (folder.path / "answer.json").unlink(missing_ok=True)
            if "error" in answer:
                raise StackError(answer["error"], int(answer["exit_status"]))
            return str(answer["message"])
        if not state.supervisor.is_alive():
            raise StackError("The stack ended before it answered.")
        time.sleep(LOOK_UP_S)
    raise StackError(f"The stack (pid {state.supervisor.pid}) does not answer.")


def _place(folder: StackFolder, request: dict[str, str | None]) -> None:
    temporary = folder.path / f".request.{request['id']}"
    temporary.write_text(json.dumps(request), encoding="utf-8")
    try:
        # A link fails where a rename would replace somebody else's request.
        os.link(temporary, folder.path / "request.json")
    except FileExistsError:
        raise StackError("The stack is busy with another request. Try again in a moment.") from None
    finally:
        temporary.unlink()


def take_request(folder: StackFolder) -> Request | None:
    """The next request, which is then no longer there."""
    found = _read(folder, "request.json")
    if found is None:
        return None
    (folder.path / "request.json").unlink(missing_ok=True)
    return Request(str(found["id"]), Action(found["action"]), found["part"])


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
    except FileNotFoundError:
        return None
    return document if isinstance(document, dict) else None
