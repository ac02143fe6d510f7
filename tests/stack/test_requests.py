"""Requests to a running stack: files that are taken once, answered once, and never mixed up."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from stack import requests
from stack.errors import EXIT_USAGE, StackError
from stack.folder import StackFolder, StackState
from stack.processes import identify
from stack.requests import Action


@pytest.fixture
def folder(tmp_path: Path) -> StackFolder:
    """A folder whose stack is this process."""
    made = StackFolder(tmp_path)
    made.prepare()
    supervisor = identify(os.getpid())
    assert supervisor is not None
    made.write_state(StackState(supervisor, "id", 0, ()))
    return made


def serve_one(folder: StackFolder, error: StackError | None = None) -> threading.Thread:
    def serve() -> None:
        request = None
        while request is None:
            request = requests.take_request(folder)
        if error is not None:
            requests.refuse(folder, request, error)
        else:
            requests.answer(folder, request, f"{request.action} {request.part}")

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_request_is_answered(folder: StackFolder) -> None:
    thread = serve_one(folder)
    assert requests.ask(folder, Action.START, "broker-4") == "start broker-4"
    thread.join()
    assert requests.take_request(folder) is None
    assert not (folder.path / "answer.json").exists()


def test_a_refusal_keeps_its_words_and_status(folder: StackFolder) -> None:
    thread = serve_one(folder, StackError("No.", EXIT_USAGE))
    with pytest.raises(StackError, match=r"No\.") as refused:
        requests.ask(folder, Action.STOP, None)
    thread.join()
    assert refused.value.exit_status == EXIT_USAGE


def test_nobody_is_there_to_ask(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="No stack runs"):
        requests.ask(StackFolder(tmp_path), Action.START, None)


def test_one_request_at_a_time(folder: StackFolder) -> None:
    (folder.path / "request.json").write_text('{"id": "x", "action": "start", "part": null}')
    with pytest.raises(StackError, match="busy"):
        requests.ask(folder, Action.START, None)
    requests.forget(folder)
    assert requests.take_request(folder) is None
