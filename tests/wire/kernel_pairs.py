"""Both kernels side by side, and what the kernel's tests share: odd batches and mutations.

`both` parametrises a test over the interpreted modules and, where they are built, the compiled
ones. With TIDEWHEEL_KERNEL=require, as in CI, a missing compiled kernel is a failure.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import strategies as st

from data_plane.wire import kernel_sources
from data_plane.wire.errors import WireError
from data_plane.wire.records import NewRecord


@dataclass(frozen=True)
class Implementation:
    """One kernel: what reads batches and records, what reads requests, what writes answers, and
    what reads them."""

    name: str
    batches: Any
    requests: Any
    responses: Any
    fetched: Any


def _implementation(
    name: str, records: Any, batches: Any, requests: Any, responses: Any, fetched: Any
) -> Implementation:
    """The modules stand in the order of COMPILED_NAMES."""
    functions = {**_public(records), **_public(batches)}
    return Implementation(name, SimpleNamespace(**functions), requests, responses, fetched)


def _public(module: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def _compiled() -> Implementation | None:
    try:
        modules = [
            import_module(f"data_plane.wire.kernel_compiled.{name}")
            for name in kernel_sources.COMPILED_NAMES
        ]
    except ImportError:
        return None
    digest = kernel_sources.sources_digest(Path(kernel_sources.__file__).parent)
    if any(digest != module.SOURCES_DIGEST for module in modules):
        return None
    return _implementation("compiled", *modules)


INTERPRETED = _implementation(
    "interpreted",
    *[import_module(f"data_plane.wire.{name}") for name in kernel_sources.COMPILED_NAMES],
)
COMPILED = _compiled()
_MAY_SKIP = os.environ.get("TIDEWHEEL_KERNEL") != "require"
needs_compiled = pytest.mark.skipif(
    COMPILED is None and _MAY_SKIP, reason="the kernel is not compiled here, or from older source"
)
both = pytest.mark.parametrize(
    "implementation",
    [
        pytest.param(INTERPRETED, id="interpreted"),
        pytest.param(COMPILED, id="compiled", marks=needs_compiled),
    ],
)

NULLABLE_BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([b"tw-tag", b"tw-", b"h", b""]) | st.binary(max_size=9), NULLABLE_BYTES
    ),
    max_size=3,
).map(tuple)
NEW_RECORDS = st.lists(
    st.builds(
        NewRecord,
        st.integers(-1, 2**45) | st.integers(1_700_000_000_000, 1_700_000_000_200),
        NULLABLE_BYTES,
        NULLABLE_BYTES,
        HEADERS,
        st.none(),
    ),
    min_size=1,
    max_size=12,
)


def outcome(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a call gives: its result, or its error's class, code and words."""
    try:
        return call(*arguments, **options)
    except WireError as error:
        return type(error), getattr(error, "error_code", None), str(error)


def mutate(rng: random.Random, data: Sequence[int], changes: int = 3) -> bytearray:
    """`data` with a few bytes changed, cut, doubled, or overwritten by telling integers."""
    out = bytearray(data)
    for _ in range(rng.randint(1, changes)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0:
                del out[at : at + rng.randint(1, 9)]
            case 1:
                out[at:at] = rng.randbytes(rng.randint(1, 9))
            case 2:
                telling = rng.choice([-1, 0, 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 255, 64])
                size = rng.choice([1, 2, 4, 8])
                value = (telling & (1 << 8 * size) - 1).to_bytes(size, "big")
                out[at : at + size] = value
            case 3:
                out[at : at + 1] = b"\xff" * rng.randint(1, 10) + b"\x01"
            case _:
                if at < len(out):
                    out[at] = rng.choice([rng.randrange(256), out[at] ^ 1, out[at] ^ 0x80])
    return out


def with_crc(batch: bytearray) -> bytearray:
    """The same bytes with the CRC they should have, so that checks behind it are reached."""
    if len(batch) > 21:
        batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch
