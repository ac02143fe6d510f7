"""Grants as text: the ACLs that one resource of a control plane is made of.

The text is canonical: equal grants give equal texts, whatever order they were declared in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from data_plane.cell.acls import Acl, decode_acls, encode_acls

ACLS_OF_GRANTS_MAX: Final = 1000


def grants_text(acls: Iterable[Acl]) -> str:
    """
    >>> grants_text([])
    '{"acls":[]}'
    """
    return json.dumps({"acls": encode_acls(sorted(acls))}, separators=(",", ":"))


def acls_of_grants(text: str) -> tuple[Acl, ...]:
    """The inverse of `grants_text`. Raises ValueError."""
    try:
        return decode_acls(json.loads(text)["acls"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"no grants: {error!r}") from error
