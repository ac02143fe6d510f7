"""Typed ids: `top_01jb3…`, what a thing is and 128 bits that sort by time of making (UUIDv7).

They are primary keys, parts of addresses and the resource ids that cells are told, so they are
never used twice. 26 characters of Crockford's base 32 in lower case, without i, l, o and u.
"""

from __future__ import annotations

import re
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import models

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
CHARACTERS = 26
ID_CHARACTERS_MAX = 40
RANDOM_BITS_HIGH = 12
RANDOM_BITS_LOW = 62

if TYPE_CHECKING:
    _TextField = models.CharField[str, str]
else:
    _TextField = models.CharField


def new_id(prefix: str) -> str:
    """An id that nobody has had: RFC 9562's version 7 in base 32 behind `prefix` and `_`."""
    number = time.time_ns() // 1_000_000 << 80
    number |= 0x7 << 76 | secrets.randbits(RANDOM_BITS_HIGH) << 64
    number |= 0b10 << 62 | secrets.randbits(RANDOM_BITS_LOW)
    return f"{prefix}_" + "".join(
        ALPHABET[number >> 5 * place & 31] for place in reversed(range(CHARACTERS))
    )


def is_id(text: str, prefix: str) -> bool:
    """Whether `text` can be an id of this kind; what cannot be is not looked up."""
    return re.fullmatch(rf"{prefix}_[{ALPHABET}]{{{CHARACTERS}}}", text) is not None


class TypedIdField(_TextField):
    """The primary key of a model: `TypedIdField("top")`."""

    def __init__(self, prefix: str = "", **options: Any) -> None:
        self.prefix = prefix
        fixed: dict[str, Any] = {
            "primary_key": True,
            "editable": False,
            "max_length": ID_CHARACTERS_MAX,
            "default": partial(new_id, prefix),
        }
        super().__init__(**options | fixed)

    def deconstruct(self) -> tuple[str, str, list[Any], dict[str, Any]]:
        name, path, _, options = super().deconstruct()
        for fixed in ("primary_key", "editable", "max_length", "default"):
            options.pop(fixed, None)
        return name, path, [self.prefix], options
