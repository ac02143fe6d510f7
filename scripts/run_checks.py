"""`./tidewheel check`: everything that needs no test run, one line per check.

lint and format (ruff), types (mypy --strict), import contracts (import-linter), security of the
control plane (bandit, Django's deployment checks), generated code (every scripts/generate_*),
locks. All checks run even when one fails; the output of those that fail follows its line. `--fix`
lets ruff repair what it can instead.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import time
from pathlib import Path

from stack.help import CommandParser

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# The control plane as it runs in production; it connects to nothing.
DEPLOYED = [
    *("env", "DJANGO_SETTINGS_MODULE=control_plane.settings.production"),
    *(f"SECRET_KEY={secrets.token_urlsafe(64)}", "ALLOWED_HOSTS=tidewheel.example"),
    *(sys.executable, "-m", "control_plane"),
]


def checks() -> dict[str, list[list[str]]]:
    """Name of each check → its commands, in the order in which they run."""
    generators = sorted((ROOT / "scripts").glob("generate_*"))
    # A generator is a script or a package with a __main__; both start with `python PATH`.
    return {
        "lint": [
            [str(BIN / "ruff"), "check", "."],
            [str(BIN / "ruff"), "format", "--check", "."],
        ],
        "types": [[str(BIN / "mypy")]],
        "contracts": [[str(BIN / "lint-imports")]],
        "security": [
            [str(BIN / "bandit"), "-q", "-r", "control_plane", "-c", "pyproject.toml"],
            [*DEPLOYED, "check", "--deploy", "--fail-level", "WARNING"],
        ],
        "generated": [[sys.executable, str(path), "--check"] for path in generators],
        "locks": [[sys.executable, str(ROOT / "scripts" / "lock.py"), "--check"]],
    }


def run_check(name: str, commands: list[list[str]]) -> bool:
    """Run one check and print its line. True when all of its commands succeeded."""
    started = time.monotonic()
    failures = []
    for command in commands:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            failures.append(f"{result.stdout}{result.stderr}".rstrip())
    verdict = "failed" if failures else "ok"
    print(f"{name:<10} {verdict:<7} {time.monotonic() - started:5.1f} s", flush=True)
    for output in failures:
        print(output, flush=True)
    return not failures


def fix() -> int:
    """Let ruff repair and format the tree."""
    subprocess.run([str(BIN / "ruff"), "check", "--fix", "--quiet", "."], cwd=ROOT, check=False)
    return subprocess.run([str(BIN / "ruff"), "format", "."], cwd=ROOT, check=False).returncode


def main() -> int:
    known = checks()
    parser = CommandParser(prog="./tidewheel check", description="Check the source.")
    parser.add_argument(
        "--only", choices=list(known), action="append", help="Just this one; repeatable."
    )
    parser.add_argument("--fix", action="store_true", help="Let ruff repair and format instead.")
    options = parser.parse_args()
    if options.fix:
        return fix()
    results = [run_check(name, known[name]) for name in options.only or known]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
