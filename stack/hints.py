"""Commands in messages: as the person has to type them, with the options in use."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stack.folder import StackFolder

PROGRAM: Final = "./tidewheel" if "TIDEWHEEL_CHECKOUT" in os.environ else "tidewheel"


def default_data_path() -> Path:
    """Where `up` keeps data unless told: in the checkout, or in the home folder without one."""
    checkout = os.environ.get("TIDEWHEEL_CHECKOUT")
    if checkout:
        return Path(checkout) / ".tidewheel" / "stack"
    return Path.home() / ".tidewheel" / "stack"


def data_option(folder: StackFolder) -> str:
    """` --data DIR` where it is needed."""
    if folder.path.absolute() == default_data_path().absolute():
        return ""
    return f" --data {shlex.quote(str(folder.path))}"


def command(words: str, folder: StackFolder) -> str:
    """`./tidewheel down --data DIR`, say."""
    return f"{PROGRAM} {words}{data_option(folder)}"
