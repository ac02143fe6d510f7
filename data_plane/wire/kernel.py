"""The kernel: what the broker does for every batch, frame, Produce and Fetch.

This module is the door; behind it stand two implementations of the same functions, one source:
the modules of kernel_sources.COMPILED_NAMES, interpreted, or compiled to C in `kernel_compiled/`.
The compiled ones are taken when they are there and were made from the very sources that lie here;
TIDEWHEEL_PURE=1 in the environment asks for the interpreted ones.

Both give the same results and the same errors for all bytes; the tests run on both.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from data_plane.wire.kernel_sources import COMPILED_NAMES, sources_digest

if TYPE_CHECKING:
    from data_plane.wire import (
        kernel_batches,
        kernel_fetched,
        kernel_records,
        kernel_requests,
        kernel_responses,
    )

__all__ = [
    "COMPILED",
    "WHY_INTERPRETED",
    "check_batches",
    "decode_records",
    "encode_fetch_response",
    "encode_produce_response",
    "encode_records",
    "filter_records",
    "find_max_timestamp",
    "find_timestamp",
    "list_keys",
    "map_header_sets",
    "outline_records",
    "parse_fetch",
    "parse_fetch_response",
    "parse_produce",
    "scan_batches",
    "scan_headers",
    "split_frames",
    "too_many_parts",
    "walk_records",
]

_COMPILED_PACKAGE: Final = "data_plane.wire.kernel_compiled"


def _why_interpreted() -> str:
    """ "" when the compiled modules are to be used, else a reason for the log."""
    if os.environ.get("TIDEWHEEL_PURE", "") not in ("", "0"):
        return "TIDEWHEEL_PURE is set"
    try:
        modules = [import_module(f"{_COMPILED_PACKAGE}.{name}") for name in COMPILED_NAMES]
    except ImportError:
        return "it is not compiled"
    digest = sources_digest(Path(__file__).parent)
    if any(digest != module.SOURCES_DIGEST for module in modules):
        return "its compiled form is older than its source; run: python hatch_build.py"
    return ""


WHY_INTERPRETED: Final = _why_interpreted()
"""Why the interpreted kernel runs; "" when the compiled one does."""

COMPILED: Final = not WHY_INTERPRETED

if not TYPE_CHECKING:
    if COMPILED:
        from data_plane.wire.kernel_compiled import (
            kernel_batches,
            kernel_fetched,
            kernel_records,
            kernel_requests,
            kernel_responses,
        )
    else:
        from data_plane.wire import (
            kernel_batches,
            kernel_fetched,
            kernel_records,
            kernel_requests,
            kernel_responses,
        )

check_batches = kernel_batches.check_batches
decode_records = kernel_records.decode_records
encode_records = kernel_records.encode_records
filter_records = kernel_records.filter_records
find_max_timestamp = kernel_records.find_max_timestamp
find_timestamp = kernel_records.find_timestamp
list_keys = kernel_records.list_keys
map_header_sets = kernel_records.map_header_sets
outline_records = kernel_records.outline_records
scan_batches = kernel_batches.scan_batches
scan_headers = kernel_records.scan_headers
too_many_parts = kernel_records.too_many_parts
walk_records = kernel_records.walk_records
parse_fetch = kernel_requests.parse_fetch
parse_fetch_response = kernel_fetched.parse_fetch_response
parse_produce = kernel_requests.parse_produce
split_frames = kernel_requests.split_frames
encode_fetch_response = kernel_responses.encode_fetch_response
encode_produce_response = kernel_responses.encode_produce_response
