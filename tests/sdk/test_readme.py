"""Every example of the README runs, in order, against a broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from tidewheel import sync

README = Path(__file__).parents[2] / "sdk" / "README.md"
TIMEOUT_S = 60
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_there_are_examples_of_both_kinds() -> None:
    assert {kind for kind, _ in BLOCKS} == {"python", "sh"}


@pytest.fixture(scope="module")
def environment(bootstrap: str) -> Iterator[dict[str, str]]:
    names = (
        "greetings",
        "orders",
        "clicks",
        "reminders",
        "payments.audit",
        "payments.audit-2",
        "payments",
    )
    with sync.Client(bootstrap) as client:
        if not client.admin.topic_exists("orders"):
            client.admin.create_topic("orders", partitions=1)
    scripts = sysconfig.get_path("scripts")
    yield {
        **os.environ,
        "TIDEWHEEL_URL": f"tidewheel://{bootstrap}",
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
    }
    with sync.Client(bootstrap) as client:
        for name in names:
            if client.admin.topic_exists(name):
                client.admin.delete_topic(name)


def run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


def test_python_and_shell_examples(environment: dict[str, str]) -> None:
    for kind, code in BLOCKS:
        if kind == "python":
            run([sys.executable, "-W", "error", "-c", code], environment)
        else:
            for line in code.splitlines():
                run(["sh", "-c", line], environment)
