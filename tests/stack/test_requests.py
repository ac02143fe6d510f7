"""Requests to a running stack: files that are taken once, answered once, and never mixed up."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from stack import requests
from stack.errors import EXIT_USAGE, StackError
from stack.folder import StackFolder, StackState
from stack.processes import identify
from stack.requests import Action

IDS_THAT_ARE_NONE = ('""', '"../a5"', '"A5"', f'"{"a5" * 17}"')
PARTS_THAT_ARE_NONE = ("7", '"broker-x"', '"broker-\\u00b2"', '"disk"')


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
    assert list(folder.path.glob("answer*")) == []


class ClockOfASlowStack:
    """Each time that the asker sleeps a minute has passed; after an hour he has his answer."""

    def __init__(self, folder: StackFolder) -> None:
        self._folder = folder
        self._request: requests.Request | None = None
        self._minutes = 0

    def monotonic(self) -> float:
        return self._minutes * 60.0

    def sleep(self, _seconds: float) -> None:
        self._minutes += 1
        self._request = self._request or requests.take_request(self._folder)
        assert self._request is not None
        if self._minutes == 60:
            requests.answer(self._folder, self._request, "done")
        elif self._minutes % 2:
            requests.let_wait(self._folder, self._request, f"{self._minutes} minutes")


def test_who_hears_that_he_shall_wait_waits(
    folder: StackFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(requests, "time", ClockOfASlowStack(folder))
    assert requests.ask(folder, Action.START, None, told.append) == "done"
    assert told == [f"{minutes} minutes" for minutes in range(1, 60, 2)]
    assert list(folder.path.glob("answer*")) == []


def test_a_stack_that_is_starting_is_asked_for_nothing(folder: StackFolder) -> None:
    state = folder.read_state()
    assert state is not None
    folder.write_state(replace(state, is_up=False))
    with pytest.raises(StackError, match="still starting"):
        requests.ask(folder, Action.START, None)


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
    (folder.path / "request.json").write_text('{"id": "a5", "action": "start", "part": null}')
    with pytest.raises(StackError, match="busy"):
        requests.ask(folder, Action.START, None)
    requests.forget(folder)
    assert requests.take_request(folder) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"id": "a5"}', '{"id": "a5", "action": "jump", "part": null}'),
        *(f'{{"id": "a5", "action": "start", "part": {part}}}' for part in PARTS_THAT_ARE_NONE),
    ],
)
def test_what_is_no_request_is_dropped(folder: StackFolder, text: str) -> None:
    (folder.path / "request.json").write_text(text)
    assert requests.take_request(folder) is None
    assert not (folder.path / "request.json").exists()


def test_a_request_that_nobody_takes_is_taken_back(
    folder: StackFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "ANSWER_TIMEOUT_S", 0.1)
    with pytest.raises(StackError, match="does not answer: nothing was done"):
        requests.ask(folder, Action.STOP, "broker-1")
    assert requests.take_request(folder) is None


def test_a_request_that_was_begun_is_not_called_undone(
    folder: StackFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        taken.append(requests.take_request(folder))
        now_s[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep)
    monkeypatch.setattr(requests, "time", clock)
    with pytest.raises(StackError, match="may still be at it"):
        requests.ask(folder, Action.STOP, "broker-1")
    assert taken[0] is not None


def test_a_request_is_taken_back_at_ctrl_c(
    folder: StackFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        requests.ask(folder, Action.STOP, "broker-1")
    assert not (folder.path / "request.json").exists()


def test_nobody_takes_back_what_somebody_else_has_asked(folder: StackFolder) -> None:
    (folder.path / "request.json").write_text('{"id": "a5", "action": "start", "part": null}')
    assert requests._withdraw(folder, "b6") is False
    assert requests._withdraw(folder, "a5") is True
    assert requests._withdraw(folder, "a5") is False
    assert requests.take_request(folder) is None


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *(("", None), ("4", "broker-4"), ("007", "broker-7")),
        *(("postgres", "postgres"), ("control-plane", "control-plane")),
    ],
)
def test_parts_are_named_as_people_do(name: str, part: str | None) -> None:
    assert requests.part_named(name) == part


@pytest.mark.parametrize("name", ["x", "-1", "1.5", "broker-1", "\N{SUPERSCRIPT TWO}"])
def test_what_is_no_part_is_refused(name: str) -> None:
    with pytest.raises(StackError, match="no broker id"):
        requests.part_named(name)
