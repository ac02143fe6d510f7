"""What the kernel's sources use of the `cython` module, for machines that do not have it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

compiled: Final = False
nogil: Final = nullcontext()
