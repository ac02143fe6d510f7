"""The demo's input."""

from __future__ import annotations

import json

import pytest

from stack.demo.flights import FLIGHTS_COUNT, KEYLESS_COUNT, data_file, flights, read_flights


def test_all_flights_are_there_and_keyed_by_tail_number() -> None:
    keyless = 0
    row = 0
    for row, flight in enumerate(read_flights(data_file()), start=1):
        assert flight.row == row
        keyless += flight.key is None
        if row in (1, FLIGHTS_COUNT):
            content = json.loads(flight.value)
            assert content["row"] == row
            assert content["tailnum"] == (flight.key.decode() if flight.key else None)
            assert len(content) == 20
    assert (row, keyless) == (FLIGHTS_COUNT, KEYLESS_COUNT)


def test_numbers_stay_numbers_and_missing_is_null() -> None:
    (made,) = flights(["year", "dep_time", "tailnum"], iter([["2013", "NA", "N14228"]]))
    assert made.key == b"N14228"
    assert json.loads(made.value) == {
        "row": 1,
        "year": 2013,
        "dep_time": None,
        "tailnum": "N14228",
    }


def test_a_row_of_the_wrong_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        list(flights(["year", "tailnum"], iter([["2013", "N1", "extra"]])))
