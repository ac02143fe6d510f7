"""The launcher `./tidewheel`: what it decides, and what it says when it cannot go on."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.repository.source_tree import ROOT

LAUNCHER_FILES = [
    *("tidewheel", "pyproject.toml", "sdk/pyproject.toml", "hatch_build.py"),
    *("requirements.lock", "requirements-build.lock", "data_plane/wire/kernel.py"),
]
NOWHERE = "http://127.0.0.1:9/simple"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the launcher looks at, without .venv."""
    # The launcher knows itself by its real path.
    target = (tmp_path / "checkout").resolve()
    for name in LAUNCHER_FILES:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    return target


def load(checkout: Path) -> ModuleType:
    """The launcher as a module, which is not how it is used."""
    loader = importlib.machinery.SourceFileLoader("launcher", str(checkout / "tidewheel"))
    spec = importlib.util.spec_from_loader("launcher", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def run(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(checkout / "tidewheel"), *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_the_first_screen_needs_nothing_installed(checkout: Path, arguments: list[str]) -> None:
    shown = run(checkout, *arguments)
    assert shown.returncode == 0
    first_commands = [line.split()[1] for line in shown.stdout.splitlines() if "./tide" in line]
    assert first_commands[:3] == ["demo", "up", "test"]
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert not (checkout / ".venv").exists()


def test_help_of_a_command_is_the_commands_own(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = load(checkout)
    monkeypatch.setattr(sys, "argv", ["tidewheel", "help", "topics", "create"])
    monkeypatch.setattr(launcher, "ensure_environment", lambda: None)
    started: list[list[str]] = []
    monkeypatch.setattr(launcher.os, "execv", lambda _program, words: started.append(words))
    launcher.main()
    assert started[0][-3:] == ["topics", "create", "--help"]


def test_an_old_python_gets_a_sentence(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = load(checkout)
    monkeypatch.setattr(launcher, "PYTHON_MIN", (3, 99))
    with pytest.raises(SystemExit, match=r"needs 3\.99 or newer"):
        launcher.require_python()


def test_a_newer_python_that_does_not_work_is_named_with_the_reason(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version managers put names into PATH for versions that are not installed."""
    shim = checkout / "python3.14"
    shim.write_text("#!/bin/sh\necho not installed here >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(checkout))
    launcher = load(checkout)
    monkeypatch.setattr(launcher, "PYTHON_MIN", (3, 14))
    with pytest.raises(SystemExit) as caught:
        launcher.require_python()
    assert f"{shim}: not installed here" in str(caught.value)
    assert f"({sys.executable})" in str(caught.value)


def test_the_launcher_starts_on_pythons_that_it_then_refuses(checkout: Path) -> None:
    """Nothing above `require_python` may need a new Python: no match, no walrus, no typing."""
    source = (checkout / "tidewheel").read_text(encoding="utf-8")
    compile(source, "tidewheel", "exec", dont_inherit=True)
    import ast

    ast.parse(source, feature_version=(3, 7))


def append(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "text", "changed"),
    [
        ("requirements.lock", "# x\n", {"packages", "checkout"}),
        ("requirements-build.lock", "# x\n", {"packages", "checkout"}),
        ("data_plane/wire/kernel.py", "# x\n", {"kernel"}),
        ("hatch_build.py", "# x\n", {"kernel"}),
        ("sdk/pyproject.toml", "\n[project.urls]\na = 'b'\n", {"checkout"}),
        ("sdk/pyproject.toml", "\n[tool.other]\na = 'b'\n", set()),
        ("tidewheel", "# x\n", set()),
    ],
)
def test_only_what_matters_makes_it_install_again(
    checkout: Path, name: str, text: str, changed: set[str]
) -> None:
    launcher = load(checkout)
    before = launcher.wanted_state()
    append(text)(checkout / name)
    after = launcher.wanted_state()
    assert {part for part in before if before[part] != after[part]} == changed


def test_a_finished_installation_is_recognized_in_no_time(checkout: Path) -> None:
    launcher = load(checkout)
    assert launcher.present_state() == {}
    python = checkout / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    state = checkout / ".venv" / ".tidewheel.json"
    for broken in ("", "{", "[]"):
        state.write_text(broken)
        assert launcher.present_state() == {}
    state.write_text(json.dumps(launcher.wanted_state()))
    durations = []
    for _ in range(5):
        started = time.process_time()
        launcher.ensure_environment()
        durations.append(time.process_time() - started)
    assert min(durations) < 0.05
    # A .venv whose Python is gone counts for nothing.
    python.unlink()
    python.symlink_to(checkout / "no-python")
    assert launcher.present_state() == {}


def test_pips_index_is_said_again_to_uv(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "SSL_CERT", "XDG_CONFIG")):
            monkeypatch.delenv(name)
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = http://one.test/simple\nextra-index-url =\n"
        "    http://two.test/simple\n    http://three.test/simple\ntrusted-host = one.test\n"
        f"find-links = {tmp_path / 'missing'}\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    launcher = load(checkout)
    monkeypatch.setattr(launcher, "PYTHON", shutil.which("python3"))
    environment = launcher._environment_for_uv()
    assert environment["UV_DEFAULT_INDEX"] == "http://one.test/simple"
    assert environment["UV_INDEX"] == "http://two.test/simple http://three.test/simple"
    assert environment["UV_INSECURE_HOST"] == "one.test"
    assert "UV_FIND_LINKS" not in environment

    # pip's variables win over its files; uv's own settings win over both.
    monkeypatch.setenv("PIP_INDEX_URL", "http://four.test/simple")
    assert launcher._environment_for_uv()["UV_DEFAULT_INDEX"] == "http://four.test/simple"
    monkeypatch.setenv("UV_INDEX_URL", "http://five.test/simple")
    assert "UV_DEFAULT_INDEX" not in launcher._environment_for_uv()


def test_an_install_that_fails_says_so_and_is_tried_again(checkout: Path) -> None:
    environment = {"PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0", "PIP_FIND_LINKS": ""}
    environment |= {"PIP_EXTRA_INDEX_URL": "", "PIP_CONFIG_FILE": os.devnull}
    for _ in range(2):
        failed = run(checkout, "topics", **environment)
        assert failed.returncode == 1
        assert "could not install uv" in failed.stderr
        assert "tries again" in failed.stderr
        assert "Traceback" not in failed.stderr
        assert not (checkout / ".venv" / ".tidewheel.json").exists()


def test_an_environment_that_cannot_be_written_is_said_without_a_traceback(checkout: Path) -> None:
    (checkout / ".venv").write_text("in the way")
    failed = run(checkout, "topics")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert f"{checkout / '.venv'}" in failed.stderr
    assert "Not a directory" in failed.stderr
    assert "Traceback" not in failed.stderr


def children_cpu_s() -> float:
    """The processor's time that the children which have ended have used."""
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_fresh_clone_installs_itself_once(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    command = [sys.executable, str(clone / "tidewheel"), "status", "--json"]
    environment = {n: v for n, v in os.environ.items() if n not in ("VIRTUAL_ENV", "PYTHONPATH")}
    starts = [
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(2)
    ]
    outcomes = [process.communicate(timeout=800) for process in starts]
    for output, errors in outcomes:
        assert json.loads(output)["running"] is False, errors
    notes = sorted(errors.count("installing the locked packages") for _, errors in outcomes)
    assert notes == [0, 1], "one start installs, the other waits for it"

    started = children_cpu_s()
    again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert again.stderr == ""
    assert children_cpu_s() - started < 5
    assert (clone / ".tidewheel").exists() is False
