"""Which files the compiled kernel is made of, and their digest.

Read by `kernel.py` at import and by `hatch_build.py`, which runs this file on its own: it imports
nothing of the project.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Final

COMPILED_NAMES: Final = (
    "kernel_records",
    "kernel_batches",
    "kernel_requests",
    "kernel_responses",
    "kernel_fetched",
)
"""The modules that exist in both forms."""

_SOURCES: Final = tuple(f"{name}{end}" for name in COMPILED_NAMES for end in (".py", ".pxd"))


def sources_digest(folder: Path) -> str:
    """The digest of the sources in `folder`; OSError when one is missing."""
    digest = blake2b(digest_size=16)
    for name in (*_SOURCES, "kernel_leaves.pxd"):
        text = (folder / name).read_bytes()
        digest.update(b"%s %d\n" % (name.encode(), len(text)))
        digest.update(text)
    return digest.hexdigest()
