"""What other apps use of access."""

from __future__ import annotations

from control_plane.access.acls import (
    OPERATION_NUMBERS,
    OPERATIONS,
    PATTERN_TYPE_NUMBERS,
    RESOURCE_TYPE_NUMBERS,
)
from control_plane.access.logic import is_valid, valid_keys
from control_plane.access.networks import is_within

__all__ = [
    "OPERATIONS",
    "OPERATION_NUMBERS",
    "PATTERN_TYPE_NUMBERS",
    "RESOURCE_TYPE_NUMBERS",
    "is_valid",
    "is_within",
    "valid_keys",
]
