"""The kernel: what the broker does for every batch, frame, Produce and Fetch.

This module is the door; behind it stand two implementations of the same functions, one source:
`kernel_batches.py` and `kernel_requests.py`, interpreted, or compiled to C beside them in
`kernel_compiled/`. The compiled one is taken when it is there and was made from the very sources
that lie here; TIDEWHEEL_PURE=1 in the environment asks for the interpreted one.

Both give the same results and the same errors for all bytes; the tests run on both.
"""

from __future__ import annotations

from typing import Final

from data_plane.wire.kernel_batches import (
    check_batches,
    decode_records,
    encode_records,
    filter_records,
    find_timestamp,
    list_keys,
    scan_batches,
    scan_headers,
    walk_records,
)
from data_plane.wire.kernel_requests import parse_fetch, parse_produce, split_frames

__all__ = [
    "COMPILED",
    "check_batches",
    "decode_records",
    "encode_records",
    "filter_records",
    "find_timestamp",
    "list_keys",
    "parse_fetch",
    "parse_produce",
    "scan_batches",
    "scan_headers",
    "split_frames",
    "walk_records",
]

COMPILED: Final = False
