"""How a command asks something of a running stack: one file with the request, one with the answer.

    DIR/request.json       {"id": ID, "action": "start" | "stop" | "put-aside",
                            "part": "broker-4" | "postgres" | "worker" | … | null}
    DIR/answer-ID.json     {"message": …}, or {"error": …, "exit_status": …}; before that, any
                           number of times, {"waiting": …}

The supervisor looks for a request whenever it looks after its brokers, takes the file away and
begins with what it says. A broker may need long to start: its request is answered then, others
meanwhile. Whoever asked waits for his own answer, for as long as he hears that he shall wait; when
he waits no longer, he takes a request back that nobody has begun. What is no request is dropped: a
bad file must not end a stack. Files in the stack's folder need no port, no permission beyond the
folder's, and are gone with it.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stack.errors import EXIT_FAILED, EXIT_USAGE, StackError
from stack.folder import StackFolder
from stack.processes import ProcessIdentity

LOOK_UP_S = 0.05
ANSWER_TIMEOUT_S = 180.0
"""Without a word. Longer than a broker may take to stop, and than one that starts is silent."""

POSTGRES = "postgres"
VALKEY, SERVER, WORKER = "valkey", "control-plane", "worker"
CONTROL_PLANE_PARTS = (VALKEY, SERVER, WORKER)
PARTS = (POSTGRES, *CONTROL_PLANE_PARTS)
BROKER_PART = re.compile(r"broker-([0-9]{1,10})")
REQUEST_ID = re.compile("[0-9a-f]{1,32}")
"""It becomes a part of a file's name."""


class Action(StrEnum):
    START = "start"
    STOP = "stop"
    PUT_ASIDE = "put-aside"


@dataclass(frozen=True, slots=True)
class Request:
    """`part` is `broker-<id>` or one of PARTS; None lets the stack choose a new broker."""

    request_id: str
    action: Action
    part: str | None

    @property
    def broker_id(self) -> int | None:
        """The id of the broker that is meant; None where it is another part or a new broker."""
        match = None if self.part is None else BROKER_PART.fullmatch(self.part)
        return None if match is None else int(match[1])


def part_named(name: str) -> str | None:
    """The part that a person means: `4`, one of PARTS, "" for a new broker. Raises StackError."""
    if not name:
        return None
    if BROKER_PART.fullmatch(f"broker-{name}"):
        return f"broker-{int(name)}"
    if name in PARTS:
        return name
    raise StackError(f"{name} is no broker id and none of {', '.join(PARTS)}.", EXIT_USAGE)


def _say_nothing(_text: str) -> None:
    pass


def ask(
    folder: StackFolder,
    action: Action,
    part: str | None,
    tell: Callable[[str], None] = _say_nothing,
) -> str:
    """Ask the running stack of a folder; its answer for the person. `tell` is told meanwhile what
    is waited for. Raises StackError."""
    state = folder.read_state()
    if state is None or not state.supervisor.is_alive():
        raise StackError(f"No stack runs with the data in {folder.path}.")
    if state.is_stopping:
        raise StackError("The stack is stopping.")
    if not state.is_up:
        raise StackError("The stack is still starting. Try again when it is up.")
    request_id = uuid.uuid4().hex
    _place(folder, {"id": request_id, "action": action, "part": part})
    try:
        answer = _await_answer(folder, state.supervisor, request_id, tell)
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
    folder: StackFolder,
    supervisor: ProcessIdentity,
    request_id: str,
    tell: Callable[[str], None],
) -> dict[str, Any] | None:
    """The answer to one's own request; None when time is up."""
    name = _answer_name(request_id)
    heard: dict[str, Any] | None = None
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while time.monotonic() < deadline:
        # Asked first: what it has answered before it ended counts.
        is_alive = supervisor.is_alive()
        answer = _read(folder, name)
        if answer is not None and "waiting" not in answer:
            (folder.path / name).unlink(missing_ok=True)
            return answer
        if answer is not None and answer != heard:
            heard = answer
            tell(str(answer["waiting"]))
            deadline = time.monotonic() + ANSWER_TIMEOUT_S
        if not is_alive:
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
    if not REQUEST_ID.fullmatch(request.request_id):
        return None
    is_part = isinstance(request.part, str) and (
        request.part in PARTS or request.broker_id is not None
    )
    return request if request.part is None or is_part else None


def answer(folder: StackFolder, request: Request, message: str) -> None:
    """Tell whoever asked what has been done."""
    _answer(folder, request, {"message": message})


def refuse(folder: StackFolder, request: Request, error: StackError) -> None:
    """Tell whoever asked why not."""
    status = error.exit_status or EXIT_FAILED
    _answer(folder, request, {"error": str(error), "exit_status": status})


def let_wait(folder: StackFolder, request: Request, why: str) -> None:
    """Tell whoever asked that it takes longer; the answer follows."""
    _answer(folder, request, {"waiting": why})


def forget(folder: StackFolder) -> None:
    """Remove what an earlier stack has left unanswered, and answers that nobody has read."""
    for path in (folder.path / "request.json", *folder.path.glob("answer*.json")):
        path.unlink(missing_ok=True)


def _answer_name(request_id: str) -> str:
    return f"answer-{request_id}.json"


def _answer(folder: StackFolder, request: Request, document: dict[str, object]) -> None:
    folder.write(folder.path / _answer_name(request.request_id), json.dumps(document))


def _read(folder: StackFolder, name: str) -> dict[str, Any] | None:
    try:
        document = json.loads((folder.path / name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return document if isinstance(document, dict) else None
