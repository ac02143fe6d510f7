"""Builds and runs the clients that are not Python: Java, Go, JavaScript, and kcat.

Each program prints "ok CASE" or "FAILED CASE: why" for every case, so that one start of a virtual
machine serves many cases. What they need is fetched by their own package managers into a cache
folder of the checkout, once. A missing toolchain is one line's skip on a developer's machine and a
failure in CI, where nothing may be left out.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache" / "conformance"
BUILD_SECONDS_MAX = 600
RUN_SECONDS_MAX = 300


def require(*tools: str) -> None:
    """Skip (in CI: fail) when a tool is not on the PATH."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not missing:
        return
    reason = f"needs {' and '.join(missing)} on the PATH"
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; in CI nothing is skipped")
    pytest.skip(reason)


def built(name: str, sources: list[Path], build: Callable[[Path], None]) -> Path:
    """The folder that `build` filled for exactly these sources; built at most once."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    folder = CACHE / f"{name}-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            (folder / ".complete").touch()
    return folder


def execute(command: list[str], cwd: Path | None = None) -> None:
    """Run one build step; its output is shown only when it fails."""
    result = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
    )
    assert result.returncode == 0, f"{command[0]} failed:\n{result.stdout}\n{result.stderr}"


def java_command() -> list[str]:
    """The Java client's program, compiled."""
    require("java", "javac", "mvn")
    source = HERE / "java" / "Conformance.java"
    pom = HERE / "java" / "pom.xml"

    def build(folder: Path) -> None:
        goal = "dependency:copy-dependencies"
        execute(["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={folder}/lib"])
        execute(["javac", "-cp", f"{folder}/lib/*", "-d", str(folder), str(source)])

    folder = built("java", [source, pom], build)
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return ["java", *options, "-cp", f"{folder}:{folder}/lib/*", "Conformance"]


def go_command() -> list[str]:
    """franz-go's program, compiled."""
    require("go")
    sources = [HERE / "go" / name for name in ("main.go", "go.mod", "go.sum")]

    def build(folder: Path) -> None:
        execute(["go", "build", "-o", str(folder / "conformance"), "."], cwd=HERE / "go")

    return [str(built("go", sources, build) / "conformance")]


def node_command() -> list[str]:
    """kafkajs's program with its packages installed beside a copy of it."""
    require("node", "npm")
    names = ("conformance.js", "package.json", "package-lock.json")
    sources = [HERE / "node" / name for name in names]

    def build(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        execute(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder)

    return ["node", str(built("node", sources, build) / "conformance.js")]


def run_cases(command: list[str], bootstrap: str) -> list[str]:
    """Run a program against a broker; the names of the cases that passed, or a failed test."""
    result = subprocess.run(
        [*command, bootstrap], capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    lines = result.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED ")]
    detail = "\n".join(failed) or f"ended with {result.returncode}\n{result.stdout[-2000:]}"
    passed = result.returncode == 0 and not failed
    assert passed, f"{detail}\n{result.stderr[-3000:]}"
    return [line.removeprefix("ok ") for line in lines if line.startswith("ok ")]
