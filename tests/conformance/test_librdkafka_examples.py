"""librdkafka's own C examples, unchanged, as their users run them: command lines and pipes."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance import programs

NameMaker = Callable[[str], str]
RUN_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def examples() -> Path:
    return programs.c_programs()


def run(command: list[str], text: str = "", stdin: int | None = None) -> str:
    """What a program printed on both of its streams; it must end with status 0."""
    result = subprocess.run(
        command,
        input=None if stdin is not None else text,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}"
    return result.stdout


def run_at_terminal(command: list[str]) -> str:
    """As `run`, with a terminal for standard input, without which some examples say little."""
    ours, theirs = pty.openpty()
    try:
        return run(command, stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)


def lines(count: int) -> str:
    return "".join(f"line {index}\n" for index in range(count))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_produce_and_consume_with_headers(
    bootstrap: str, name: NameMaker, examples: Path, codec: str
) -> None:
    topic = name("example")
    simple = [str(examples / "rdkafka_example"), "-t", topic, "-p", "1", "-b", bootstrap]
    run([*simple, "-P", "-z", codec, "-H", "colour=blue", "-H", "empty"], lines(300))
    got = run_at_terminal([*simple, "-C", "-A", "-o", "beginning", "-e"])
    assert re.findall(r"^line \d+$", got, re.MULTILINE) == lines(300).splitlines()
    assert got.count('% Headers: colour="blue", empty=NULL') == 300
    assert [int(offset) for offset in re.findall(r"Message \(offset (\d+)", got)] == [*range(300)]
    assert f'topic "{topic}" with ' in run([*simple, "-L"])


def test_a_group_goes_on_where_it_stopped(bootstrap: str, name: NameMaker, examples: Path) -> None:
    topic, group = name("complex"), name("group")
    run([str(examples / "producer"), bootstrap, topic], lines(200))
    consumer = [str(examples / "rdkafka_complex_consumer_example"), "-b", bootstrap, "-g", group]
    settings = ["-X", "session.timeout.ms=6000", "-X", "auto.offset.reset=earliest"]
    first = run([*consumer, *settings, "-A", "-e", topic])
    assert sorted(re.findall(r"^line \d+$", first, re.MULTILINE)) == sorted(lines(200).splitlines())
    run([str(examples / "producer"), bootstrap, topic], lines(20))
    second = run([*consumer, *settings, "-A", "-e", topic])
    assert sorted(re.findall(r"^line \d+$", second, re.MULTILINE)) == sorted(lines(20).splitlines())
    committed = run([*consumer, "-O", *(f"{topic}:{index}" for index in range(4))])
    assert sum(int(offset) for offset in re.findall(r"offset (\d+)", committed)) == 220


def test_the_simple_consumer_is_stopped_by_a_signal(
    bootstrap: str, name: NameMaker, examples: Path
) -> None:
    topic, group = name("signal"), name("group")
    run([str(examples / "producer"), bootstrap, topic], lines(50))
    command = [str(examples / "consumer"), bootstrap, group, "classic", topic]
    # Into a pipe it would print only at its end.
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.STDOUT) as process:
        got = b""
        deadline = time.monotonic() + RUN_SECONDS_MAX
        while got.count(b"Value: line") < 50 and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                got += os.read(ours, 65536)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(RUN_SECONDS_MAX) == 0
    os.close(ours)
    os.close(theirs)
    assert got.count(b"Value: line") == 50, got.decode()


def test_admin_examples(bootstrap: str, name: NameMaker, examples: Path) -> None:
    topic, group = name("admin"), name("group")
    simple = [str(examples / "rdkafka_example"), "-t", topic, "-p", "0", "-b", bootstrap]
    run([*simple, "-P"], lines(100))

    def admin(example: str, *arguments: str) -> str:
        return run([str(examples / example), "-b", bootstrap, "--", *arguments])

    deleted = run([str(examples / "delete_records"), bootstrap, topic, "0", "40"])
    assert "offset 40" in deleted
    earliest, latest = "-2", "-1"
    assert "Offset: 40" in admin("list_offsets", "0", topic, "0", earliest)
    assert "Offset: 100" in admin("list_offsets", "0", topic, "0", latest)
    admin("alter_consumer_group_offsets", group, topic, "0", "70")
    assert "70" in admin("list_consumer_group_offsets", group, "0", topic, "0")
    assert f'Group "{group}"' in admin("list_consumer_groups", "0", "0")
    assert group in admin("describe_consumer_groups", "0", group)
    admin("incremental_alter_configs", "TOPIC", topic, "SET", "retention.ms", "60000")
    assert topic in admin("describe_topics", "0", topic)
    assert "Node [id: " in admin("describe_cluster", "0")
