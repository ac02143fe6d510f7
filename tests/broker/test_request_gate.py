"""The table of broker/request/request_gate.py, row by row, and its invariants in any history."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.request.request_gate import GateState, RequestGate

Step = Callable[[RequestGate], None]

STEPS: dict[str, Step] = {
    "begin": RequestGate.begin_exclusive,
    "end": RequestGate.end_exclusive,
    "mute": RequestGate.mute,
    "unmute": RequestGate.unmute,
    "authenticate": RequestGate.authenticate,
    "fail": RequestGate.fail,
    "close": RequestGate.close,
}
# What leads from an unauthenticated connection to the state.
WAYS: dict[GateState, list[str]] = {
    GateState.UNAUTHENTICATED: [],
    GateState.AUTHENTICATING: ["begin"],
    GateState.READY: ["authenticate"],
    GateState.BUSY: ["authenticate", "begin"],
    GateState.THROTTLED: ["authenticate", "mute"],
    GateState.FAILED: ["begin", "fail"],
    GateState.CLOSED: ["begin", "close"],
}
S = GateState
ROWS = [
    (S.UNAUTHENTICATED, "begin", S.AUTHENTICATING),
    (S.UNAUTHENTICATED, "authenticate", S.READY),
    (S.UNAUTHENTICATED, "mute", S.THROTTLED),
    (S.UNAUTHENTICATED, "fail", S.FAILED),
    (S.UNAUTHENTICATED, "close", S.CLOSED),
    (S.AUTHENTICATING, "end", S.UNAUTHENTICATED),
    (S.AUTHENTICATING, "authenticate", S.BUSY),
    (S.AUTHENTICATING, "mute", S.AUTHENTICATING),
    (S.AUTHENTICATING, "fail", S.FAILED),
    (S.AUTHENTICATING, "close", S.CLOSED),
    (S.READY, "begin", S.BUSY),
    (S.READY, "authenticate", S.READY),
    (S.READY, "mute", S.THROTTLED),
    (S.READY, "fail", S.FAILED),
    (S.READY, "close", S.CLOSED),
    (S.BUSY, "begin", S.BUSY),
    (S.BUSY, "end", S.READY),
    (S.BUSY, "mute", S.BUSY),
    (S.BUSY, "fail", S.FAILED),
    (S.BUSY, "close", S.CLOSED),
    (S.THROTTLED, "begin", S.BUSY),
    (S.THROTTLED, "unmute", S.READY),
    (S.THROTTLED, "authenticate", S.THROTTLED),
    (S.THROTTLED, "fail", S.FAILED),
    (S.THROTTLED, "close", S.CLOSED),
    (S.FAILED, "end", S.FAILED),
    (S.FAILED, "unmute", S.FAILED),
    (S.FAILED, "authenticate", S.FAILED),
    (S.FAILED, "close", S.CLOSED),
    (S.CLOSED, "end", S.CLOSED),
    (S.CLOSED, "unmute", S.CLOSED),
    (S.CLOSED, "authenticate", S.CLOSED),
    (S.CLOSED, "fail", S.CLOSED),
]


@pytest.mark.parametrize(("state", "step", "becomes"), ROWS)
def test_a_step_leads_where_the_table_says(state: GateState, step: str, becomes: GateState) -> None:
    gate = RequestGate(is_authenticated=False)
    for name in WAYS[state]:
        STEPS[name](gate)
    assert gate.state is state
    STEPS[step](gate)
    assert gate.state is becomes


@given(st.booleans(), st.lists(st.sampled_from(sorted(STEPS))))
def test_only_what_is_neither_busy_nor_muted_nor_over_is_open(
    is_known: bool, names: list[str]
) -> None:
    gate = RequestGate(is_authenticated=is_known)
    begun = 0
    is_muted = has_ended = False
    for name in names:
        if name == "end" and not begun:
            continue
        begun += {"begin": 1, "end": -1}.get(name, 0)
        is_muted = {"mute": True, "unmute": False}.get(name, is_muted)
        has_ended |= name in ("fail", "close")
        STEPS[name](gate)
        assert gate.is_over is has_ended
        assert gate.is_busy is (begun > 0)
        assert gate.is_open is (not begun and not is_muted and not has_ended)
        assert gate.is_open is (gate.state in (S.UNAUTHENTICATED, S.READY))
