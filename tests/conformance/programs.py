"""Builds and runs the clients that are not Python: Java, franz-go, sarama, kafkajs, and C.

Each program prints "ok CASE" or "FAILED CASE: why" for every case, so that one start of a virtual
machine serves many cases. What they need is fetched by their own package managers into a cache
folder of the checkout, once. A missing toolchain is one line's skip on a developer's machine and a
failure in CI, where nothing may be left out.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
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

C_EXAMPLES = (
    *("producer", "consumer", "rdkafka_example", "rdkafka_complex_consumer_example"),
    *("list_offsets", "delete_records", "describe_topics"),
    *("describe_cluster", "describe_consumer_groups", "list_consumer_groups"),
    *("list_consumer_group_offsets", "alter_consumer_group_offsets", "incremental_alter_configs"),
)


GO_PROGRAMS = ("main.go", "cell.go", "projected.go", "delayed.go", "retried.go", "secure.go")
GO_SOURCES = (*GO_PROGRAMS, "go.mod", "go.sum")
JAVA_PROGRAMS = ("Conformance", "CellLoad", "Projected", "Delayed", "Retried", "Secure")
SARAMA_PROGRAMS = ("features", "delayed", "retried", "secure")
NODE_PROGRAMS = (
    *("conformance.js", "cell.js", "projected.js"),
    *("delayed.js", "retried.js", "secure.js"),
)


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


def java_command(program: str = "Conformance") -> list[str]:
    """A program of the Java client's, compiled."""
    require("java", "javac", "mvn")
    sources = [HERE / "java" / f"{name}.java" for name in JAVA_PROGRAMS]
    pom = HERE / "java" / "pom.xml"

    def build(folder: Path) -> None:
        _compile(folder, sources, pom)

    return _java(built("java", [*sources, pom], build), program)


def ecosystem_command(program: str, log_level: str = "off") -> list[str]:
    """A program of what stands on the Java client: Kafka Streams, Connect, MirrorMaker 2."""
    require("java", "javac", "mvn")
    here = HERE / "java" / "ecosystem"
    sources, pom = [here / "Counter.java"], here / "pom.xml"

    def build(folder: Path) -> None:
        _compile(folder, sources, pom)

    return _java(built("ecosystem", [*sources, pom], build), program, log_level)


def _compile(folder: Path, sources: list[Path], pom: Path) -> None:
    """Java, with the libraries that Maven brings."""
    goal = "dependency:copy-dependencies"
    execute(["mvn", "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={folder}/lib"])
    execute(["javac", "-cp", f"{folder}/lib/*", "-d", str(folder), *map(str, sources)])


def _java(folder: Path, program: str, log_level: str = "off") -> list[str]:
    log = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    options = ["-Xmx256m", "-XX:+UseSerialGC", log]
    return ["java", *options, "-cp", f"{folder}:{folder}/lib/*", program]


def go_command() -> list[str]:
    """franz-go's program, compiled."""
    require("go")
    sources = [HERE / "go" / name for name in GO_SOURCES]

    def build(folder: Path) -> None:
        execute(["go", "build", "-o", str(folder / "conformance"), "."], cwd=HERE / "go")

    return [str(built("go", sources, build) / "conformance")]


def sarama_command(program: str = "projected") -> list[str]:
    """One of sarama's programs, compiled."""
    require("go")
    mains = [f"{name}/main.go" for name in SARAMA_PROGRAMS]
    names = ("main.go", *mains, "go.mod", "go.sum")
    sources = [HERE / "sarama" / name for name in names]

    def build(folder: Path) -> None:
        for name in ("projected", *SARAMA_PROGRAMS):
            package = "." if name == "projected" else f"./{name}"
            execute(["go", "build", "-o", str(folder / name), package], cwd=HERE / "sarama")

    return [str(built("sarama", sources, build) / program)]


def node_command(program: str = "conformance.js") -> list[str]:
    """One of kafkajs's programs with its packages installed beside a copy of them."""
    require("node", "npm")
    names = (*NODE_PROGRAMS, "package.json", "package-lock.json")
    sources = [HERE / "node" / name for name in names]

    def build(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        execute(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder)

    return ["node", str(built("node", sources, build) / program)]


def c_programs() -> Path:
    """The folder with `conformance` and librdkafka's own examples, compiled.

    The header and the examples come from a package of Node's that carries librdkafka's sources;
    the library is the one that confluent-kafka brings, whose interface only ever grows."""
    require("cc", "npm")
    spec = importlib.util.find_spec("confluent_kafka")
    assert spec is not None
    assert spec.origin is not None
    wheel = Path(spec.origin).parent.parent
    libraries = sorted(wheel.glob("confluent_kafka.libs/librdkafka-*.so*"))
    if not libraries and not os.environ.get("CI"):
        pytest.skip("needs a confluent-kafka that was installed as a wheel for Linux")
    assert len(libraries) == 1, libraries
    sources = [HERE / "c" / name for name in ("conformance.c", "package.json", "package-lock.json")]

    def build(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        execute(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder)
        package = folder / "node_modules" / "node-rdkafka" / "deps" / "librdkafka"
        examples = [package / "examples" / f"{name}.c" for name in C_EXAMPLES]
        for source in (folder / "conformance.c", *examples):
            command = ["cc", "-O1", "-w", "-I", str(package / "src"), str(source)]
            command += [str(libraries[0]), f"-Wl,-rpath,{libraries[0].parent}", "-lm", "-lpthread"]
            execute([*command, "-o", str(folder / source.stem)])
        shutil.rmtree(folder / "node_modules")

    # This file names the examples.
    return built("c", [*sources, libraries[0], Path(__file__)], build)


def run_cases(command: list[str], bootstrap: str, *arguments: str) -> list[str]:
    """Run a program against a broker; the names of the cases that passed, or a failed test."""
    result = subprocess.run(
        [*command, bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )
    lines = result.stdout.splitlines()
    failed = [line for line in lines if line.startswith("FAILED ")]
    detail = "\n".join(failed) or f"ended with {result.returncode}\n{result.stdout[-2000:]}"
    passed = result.returncode == 0 and not failed
    assert passed, f"{detail}\n{result.stderr[-3000:]}"
    return [line.removeprefix("ok ") for line in lines if line.startswith("ok ")]
