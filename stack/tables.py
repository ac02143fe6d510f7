"""What commands print of things of which there are several."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]


def show(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool) -> None:
    """A table of texts, or a list of objects."""
    if as_json:
        print(json.dumps(rows))
        return
    texts = [[column.upper().replace("_", " ") for column in columns]]
    texts += [[str(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for line in texts:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("   ".join(cells).rstrip())
