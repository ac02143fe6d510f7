"""Rewrites the requirements locks from the two pyprojects. Run it as `./tidewheel lock`.

requirements.lock pins every package of the checkout (runtime, extras, development) with the hashes
of all its files; requirements-build.lock is the part that builds packages and is installed first.
Both are index-neutral: no address, no local path, so that every machine installs from whichever
index it is configured for (docs/adr/0001-index-neutral-lock.md).

The first line of each lock holds a digest of the dependency tables that it was made from. The
launcher does not look at it; a test and `./tidewheel check` do, without needing an index.

Pins that are already in a lock are kept unless `--upgrade` (all) or `--upgrade-package NAME` says
otherwise. This script does not install anything.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from stack.help import CommandParser

ROOT = Path(__file__).resolve().parent.parent
DIGEST_PREFIX = "# made by `./tidewheel lock` from dependency tables with digest "
OWN_DISTRIBUTIONS = ("tidewheel", "tidewheel-server")
LOCKS = {
    "requirements.lock": ["--all-extras", "--group", "dev", "--group", "build"],
    "requirements-build.lock": ["--group", "build"],
}


def dependency_digest(root: Path = ROOT) -> str:
    """A digest of everything in the pyprojects that the resolution depends on."""
    tables: list[object] = []
    for name in ("pyproject.toml", "sdk/pyproject.toml"):
        document = tomllib.loads((root / name).read_text(encoding="utf-8"))
        project = document["project"]
        uv_settings = document.get("tool", {}).get("uv", {})
        tables.append(
            {
                "requires-python": project["requires-python"],
                "dependencies": sorted(project.get("dependencies", [])),
                "optional": project.get("optional-dependencies", {}),
                "groups": document.get("dependency-groups", {}),
                "build": document["build-system"]["requires"],
                "environments": uv_settings.get("environments", []),
                "overrides": uv_settings.get("override-dependencies", []),
            }
        )
    canonical = json.dumps(tables, sort_keys=True).encode()
    return hashlib.sha256(canonical).hexdigest()[:32]


def recorded_digest(lock: Path) -> str | None:
    """The digest in the first line of a lock, or None when there is no such line."""
    if not lock.exists():
        return None
    first_line = lock.read_text(encoding="utf-8").split("\n", 1)[0]
    return first_line.removeprefix(DIGEST_PREFIX) if DIGEST_PREFIX in first_line else None


def stale_locks(root: Path = ROOT) -> list[str]:
    """Names of the locks that were not made from today's pyprojects."""
    digest = dependency_digest(root)
    return [name for name in LOCKS if recorded_digest(root / name) != digest]


def _compile(target: Path, selection: list[str], options: list[str]) -> None:
    uv = Path(sys.executable).with_name("uv")
    source = "pyproject.toml"
    if target.name == "requirements-build.lock":
        # Only the group: a project name before the colon-less group would drag in its runtime.
        selection = ["--group", f"{ROOT / 'pyproject.toml'}:build", "-c", "requirements.lock"]
        source = ""
    command = [str(uv), "pip", "compile", *([source] if source else []), *selection]
    command += ["--universal", "--generate-hashes", "--python-version", "3.11", "--quiet"]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    for name in OWN_DISTRIBUTIONS:
        command += ["--no-emit-package", name]
    with tempfile.TemporaryDirectory() as scratch:
        # uv reads the present pins from its output file, so it gets a copy of the lock there.
        output = Path(scratch) / "requirements.txt"
        if target.exists():
            output.write_text(target.read_text(encoding="utf-8"), encoding="utf-8")
        subprocess.run(
            [*command, *options, "-o", str(output)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
        body = output.read_text(encoding="utf-8")
    target.write_text(f"{DIGEST_PREFIX}{dependency_digest()}\n{body}", encoding="utf-8")


def main() -> int:
    parser = CommandParser(prog="./tidewheel lock", description=__doc__.split("\n")[0])
    parser.add_argument("--upgrade", action="store_true", help="Take the newest of everything.")
    parser.add_argument(
        "--upgrade-package",
        action="append",
        default=[],
        metavar="NAME",
        help="Take the newest of this; repeatable.",
    )
    parser.add_argument("--check", action="store_true", help="Only say whether they are current.")
    arguments = parser.parse_args()
    if arguments.check:
        stale = stale_locks()
        for name in stale:
            print(f"{name} was not made from these pyproject files; run ./tidewheel lock")
        return 1 if stale else 0
    options = ["--upgrade"] if arguments.upgrade else []
    for name in arguments.upgrade_package:
        options += ["--upgrade-package", name]
    for name, selection in LOCKS.items():
        _compile(ROOT / name, selection, options)
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
