"""The code of a former version, to be run beside today's.

It is taken from the repository's own history, where that reaches so far; a shallow clone has none
of it. TIDEWHEEL_FORMER_CHECKOUT names a folder with any former version instead.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "TIDEWHEEL_FORMER_CHECKOUT"
WITHOUT_LEVELS = "44af9ea5f3ff12577a099d653751339d5cecfa80"
"""The last commit before there were feature levels."""
WITHOUT_TENANTS = "a90d480c73a786f75e1d95127cffc94842cc9a4a"
"""The last commit before there were tenants."""


class NoFormerVersion(Exception):
    """Says where it was looked for, and how to give one."""


def former_checkout(folder: Path, commit: str = WITHOUT_LEVELS) -> Path:
    """A checkout of a former version; made in `folder` if need be. Raises NoFormerVersion."""
    given = os.environ.get(VARIABLE)
    if given:
        path = Path(given).resolve()
        if not (path / "data_plane" / "server").is_dir():
            raise NoFormerVersion(f"{VARIABLE}={given} is no checkout")
        return path
    # As a file: it must not depend on where the tests are started, nor on what is checked out.
    packed = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit, "data_plane"],
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        words = packed.stderr.decode(errors="replace").strip()
        raise NoFormerVersion(
            f"the history here has no commit {commit[:7]} (a shallow clone?): {words}; "
            f"fetch it, or name a checkout in {VARIABLE}"
        )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
