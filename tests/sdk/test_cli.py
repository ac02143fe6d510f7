"""The command line as programs and people meet it: output, exit statuses, messages."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import typer
from tidewheel import sync
from tidewheel.cli import session
from tidewheel.cli.main import app
from tidewheel.client import Client
from typer.testing import CliRunner

from tests.broker_process import BrokerProcess

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]
TIMEOUT_S = 60


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Runs a command: in a process of its own when it reads stdin, else in this one (faster)."""

    def call(*arguments: str, given: str | bytes | None = None, url: str = bootstrap) -> Result:
        if given is None:
            ended = CliRunner().invoke(app, list(arguments), env={"TIDEWHEEL_URL": url})
            return Result(arguments, ended.exit_code, ended.stdout, ended.stderr)
        return in_process_of_its_own(arguments, given, url)

    return call


def in_process_of_its_own(arguments: Sequence[str], given: str | bytes, url: str) -> Result:
    done = subprocess.run(
        [sys.executable, "-m", "tidewheel.cli.main", *arguments],
        input=given.encode() if isinstance(given, str) else given,
        env={**os.environ, "TIDEWHEEL_URL": url},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Result(arguments, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def topic(bootstrap: str, name: str) -> Iterator[str]:
    with sync.Client(bootstrap) as client:
        client.admin.create_topic(name, partitions=2)
        yield name
        if client.admin.topic_exists(name):
            client.admin.delete_topic(name)


def ok(result: Result) -> str:
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_with_keys_and_headers_come_back_as_json(run: Run, topic: str) -> None:
    sent = ok(
        run(
            *("produce", topic, "--key-separator", ":", "-H", "h=1", "--tag", "t", "--json"),
            given="a:1\r\nb:2:3\nno key\n\nlast without end",
        )
    )
    assert json.loads(sent)["sent"] == 5
    found = lines(ok(run("consume", topic, "--until-end", "--json")))
    pairs = {(line["key"], line["value"]) for line in found}
    assert pairs == {
        ("a", "1"),
        ("b", "2:3"),
        (None, "no key"),
        (None, ""),
        (None, "last without end"),
    }
    assert all(line["headers"] == [["h", "1"], ["tw-tag", "t"]] for line in found)


def test_what_consume_prints_as_json_produce_takes(run: Run, topic: str, bootstrap: str) -> None:
    with sync.Client(bootstrap) as client:
        client.topic(topic).send(b"\xff\x00", key=b"\xfe", headers=[("h", b"x")], partition=1)
        client.topic(topic).send(None, key="gone", partition=1)
    printed = ok(run("consume", topic, "-e", "--json"))
    assert ok(run("produce", topic, "--format", "json", given=printed)) == (
        f"Sent 2 messages to {topic}\n"
    )
    first, second, third, fourth = lines(ok(run("consume", topic, "-e", "--json")))
    keep = ("partition", "key", "key_base64", "value", "value_base64", "headers", "timestamp_ms")
    assert [first.get(k) for k in keep] == [third.get(k) for k in keep]
    assert [second.get(k) for k in keep] == [fourth.get(k) for k in keep]


def test_raw_files_and_values_only(run: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "whole.txt"
    path.write_text("two\nlines")
    ok(run("produce", topic, "--format", "raw", "--file", str(path), "--partition", "0"))
    assert ok(run("consume", topic, "-e", "--values")) == "two\nlines\n"


def test_human_output_names_the_place_and_disarms_control_characters(run: Run, topic: str) -> None:
    ok(run("produce", topic, "-p", "1", "-k", "k", given="\x1b[31mred\n"))
    (line,) = ok(run("consume", topic, "-e")).splitlines()
    assert f"{topic}[1]@0  key=k  " in line
    assert line.endswith(r"\x1b[31mred")


def test_starting_places(run: Run, topic: str) -> None:
    ok(run("produce", topic, "-p", "0", given="0\n1\n2\n3\n"))
    for start, expected in (("2", "2"), ("1h", "0"), ("2001-01-01", "0")):
        assert ok(run("consume", topic, "--from", start, "-n", "1", "--values")).strip() == expected


def test_groups_lag_and_resets(run: Run, topic: str) -> None:
    ok(run("produce", topic, "-p", "0", given="0\n1\n2\n"))
    ok(run("consume", topic, "--group", topic, "--count", "2", "--values"))
    found = json.loads(ok(run("lag", topic, "--json")))
    assert (found["group"], found["messages"]) == (topic, 1)
    assert "1 message behind" in ok(run("lag", topic))
    assert topic in {line["group"] for line in json.loads(ok(run("groups", "--json")))}
    assert "Empty" in ok(run("groups", "describe", topic))
    refused = run("groups", "reset", topic, topic, "--to", "beginning")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    reset = json.loads(ok(run("groups", "reset", topic, topic, "--to", "1", "-y", "--json")))
    assert reset["offsets"]["0"] == 1
    assert json.loads(ok(run("lag", topic, "--json")))["messages"] == 2
    ok(run("groups", "delete", topic, "--yes"))


def test_a_count_commits_what_it_printed_and_no_more(run: Run, topic: str) -> None:
    for partition in ("0", "1"):
        ok(run("produce", topic, "-p", partition, given="0\n1\n2\n"))
    printed = ok(run("consume", topic, "--group", topic, "--count", "4", "--values"))
    assert printed.count("\n") == 4
    assert json.loads(ok(run("lag", topic, "--json")))["messages"] == 2
    rest = ok(run("consume", topic, "--group", topic, "--count", "2", "--values"))
    assert sorted((printed + rest).split()) == ["0", "0", "1", "1", "2", "2"]


def test_topics(run: Run, name: str) -> None:
    created = ok(run("topics", "create", name, "-p", "3", "-c", "retention.ms=5000000"))
    assert created == f"Created {name} with 3 partitions\n"
    assert name in ok(run("topics"))
    ok(run("topics", "config", name, "--set", "cleanup.policy=compact", "--unset", "retention.ms"))
    ok(run("topics", "partitions", name, "4"))
    described = json.loads(ok(run("topics", "describe", name, "--json")))
    assert len(described["partitions"]) == 4
    assert described["configs"]["cleanup.policy"] == "compact"
    assert "cleanup.policy" in ok(run("topics", "describe", name))
    assert json.loads(ok(run("topics", "delete", name, "-y", "--json"))) == {"deleted": [name]}


@pytest.mark.parametrize("count", ["0", "-1", "100001", str(2**40)])
def test_a_count_of_partitions_that_cannot_be_is_refused(run: Run, topic: str, count: str) -> None:
    result = run("topics", "partitions", topic, "--", count)
    assert (result.returncode, result.stdout) == (1, "")
    assert "Traceback" not in result.stderr
    assert f'adding partitions to "{topic}" failed' in result.stderr


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_topics_are_deleted_all_or_none(run: Run, topic: str, as_json: list[str]) -> None:
    result = run("topics", "delete", topic, "no-such-topic", "-y", *as_json)
    assert (result.returncode, result.stdout) == (1, "")
    assert 'Nothing is deleted: topic "no-such-topic" does not exist' in result.stderr
    assert topic in ok(run("topics"))


def test_brokers_and_partitions(run: Run, topic: str) -> None:
    (broker,) = json.loads(ok(run("brokers", "--json")))["brokers"]
    assert broker["leads"] >= 2
    assert broker["replicas_out_of_sync"] == 0
    assert f"{broker['host']}:{broker['port']}" in ok(run("brokers"))
    found = json.loads(ok(run("partitions", topic, "--json")))
    assert [p["partition"] for p in found] == [0, 1]
    assert {p["leader"] for p in found} == {broker["id"]}
    assert topic in ok(run("partitions"))
    here = json.loads(ok(run("partitions", topic, "--broker", str(broker["id"]), "--json")))
    assert here == found
    assert json.loads(ok(run("partitions", topic, "--broker", "77", "--json"))) == []
    assert ok(run("partitions", topic, "--troubled")) == "No partition is in trouble.\n"


def test_draining_needs_somewhere_to_go(run: Run, topic: str) -> None:
    (broker,) = json.loads(ok(run("brokers", "--json")))["brokers"]
    result = run("drain", str(broker["id"]))
    assert (result.returncode, result.stdout) == (1, "")
    assert "there are 0 brokers for them" in result.stderr
    assert "up --add" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["drain", "77"], 1, "tidewheel brokers"),
        (["drain", "77", "--undo"], 1, "no running broker 77"),
        (["partitions", "no-such-topic"], 1, '"no-such-topic" does not exist'),
        (["consume", "no-such-topic"], 1, "topics create"),
        (["topics", "describe", "no-such-topic"], 1, '"no-such-topic" does not exist'),
        (["produce", "no-such-topic", "x"], 1, "no-such-topic"),
        (["lag", "no-such-group"], 1, "groups list"),
        (["topics", "create", "no/such"], 1, "no/such"),
        (["topics", "describe", ""], 1, "Empty topic name"),
        (["produce", "", "x"], 1, "Empty topic name"),
        (["topics", "create", "x", "-p", "-5"], 1, "failed: partitions out of expected range"),
        (["topics", "create", "x", "-p", str(2**40)], 1, "a number is out of range"),
        (["topics", "create", "x", "--replication-factor", "99999"], 1, "10000"),
        (["topics", "create", "x", "-c", "novalue"], 2, "KEY=VALUE"),
        (["topics", "create", "x", "-c", "novalue"], 2, "--set retention.ms=3600000"),
        (["produce", "x", "v", "--header", "novalue"], 2, "--header source=sensor-7"),
        (["produce", "x", "v", "--delay", "abc"], 2, "--delay 'abc' is not a duration"),
        (["produce", "x", "v", "--delay", "-5s"], 2, "30s"),
        (["produce", "x", "v", "--delay", "0s"], 2, "from 1 ms to ten years"),
        (["produce", "x", "v", "--deliver-at", "tomorrow"], 2, "'tomorrow' is no time"),
        (["produce", "x", "v", "--deliver-at", "2027-01-01T08:00:00"], 2, "08:00:00Z"),
        (["produce", "x", "v", "--delay", "1s", "--deliver-at", "5"], 2, "Give one of them"),
        (["consume", "x", "--from", "yesterday"], 2, "a duration ago (10m)"),
        (["consume", "x", "--group", "g", "--from", "5"], 2, "groups reset"),
        (["nonsense"], 2, "nonsense"),
        (["upp"], 2, "Did you mean 'up'?"),
        (["reasign"], 2, "Did you mean 'reassign'"),
        (["topic", "list"], 2, "Did you mean 'topics'?"),
    ],
)
def test_errors_say_what_to_do(run: Run, arguments: list[str], status: int, says: str) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_message_that_is_too_large_is_sent_with_the_option_that_the_hint_names(
    run: Run, topic: str, tmp_path: Path
) -> None:
    (large := tmp_path / "large").write_bytes(b"x" * 2_000_000)
    sending = ("produce", topic, "--format", "raw", "--file", str(large))
    size = ("--message-bytes-max", "3000000")
    for arguments in (sending, (*sending, *size)):
        refused = run(*arguments)
        assert refused.returncode == 1
        assert "--message-bytes-max BYTES" in refused.stderr
        assert f"topics config {topic} --set max.message.bytes=BYTES" in refused.stderr
    assert run("topics", "config", topic, "--set", "max.message.bytes=3000000").returncode == 0
    assert run(*sending, *size).stdout.startswith("Sent 1 message")


def test_an_offset_past_the_end_is_said(run: Run, topic: str) -> None:
    run("produce", topic, "a", "--partition", "0")
    result = run("consume", topic, "--from", "99", "--until-end")
    assert (result.returncode, result.stdout) == (0, "")
    assert "99 is past the end, which is 1" in result.stderr
    assert run("consume", topic, "--from", "1", "--until-end").stderr == ""


def test_a_group_that_is_new_is_said_when_it_is_reset(run: Run, topic: str) -> None:
    reset = ("groups", "reset", topic, topic, "--to", "end", "--yes")
    assert f"There was no group {topic}" in run(*reset).stderr
    assert run(*reset).stderr == ""


def test_a_topic_that_the_broker_makes_is_said(tmp_path: Path, name: str) -> None:
    with BrokerProcess(tmp_path) as broker:
        first, second = (
            in_process_of_its_own(["produce", name, "x"], "", broker.bootstrap) for _ in range(2)
        )
    assert (first.returncode, second.returncode) == (0, 0)
    assert f"There was no topic {name}; the broker has made it, with 1 partition" in first.stderr
    assert second.stderr == ""


def test_what_an_ascii_terminal_cannot_show_is_escaped(
    run: Run, topic: str, bootstrap: str
) -> None:
    run("produce", topic, "gr\u00fc\u00dfe")
    result = subprocess.run(
        [sys.executable, "-m", "tidewheel.cli.main", "consume", topic, "--until-end"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "TIDEWHEEL_URL": bootstrap},
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"gr\\xfc\\xdfe" in result.stdout


def test_a_partition_that_is_not_there_is_named_with_where_to_look(run: Run, topic: str) -> None:
    result = run("produce", topic, "x", "--partition", "77")
    assert (result.returncode, result.stdout) == (1, "")
    assert "0 messages sent, 1 failed" in result.stderr
    assert "tidewheel topics describe NAME" in result.stderr
    assert "topics create" not in result.stderr


def test_in_a_checkout_hints_name_the_launcher() -> None:
    environment = {**os.environ, "TIDEWHEEL_CHECKOUT": "/anywhere", "TIDEWHEEL_URL": "127.0.0.1:1"}
    command = [sys.executable, "-m", "tidewheel.cli.main"]
    for arguments, says in ((["topics"], "`./tidewheel status`"), (["no"], "'./tidewheel -h'")):
        done = subprocess.run(
            [*command, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert says in done.stderr


@pytest.mark.parametrize(
    ("arguments", "url", "says"),
    [
        (["topics", "--url", "127.0.0.1:1"], "127.0.0.1:2", "--url 127.0.0.1:1 is its address"),
        (["topics"], "127.0.0.1:2", "TIDEWHEEL_URL 127.0.0.1:2 is its address"),
        (
            ["produce", "x", "y"],
            "127.0.0.1:2",
            f"with the --data that `{session.PROGRAM} up` was given",
        ),
    ],
)
def test_a_broker_that_is_not_there_is_named_with_the_options_in_use(
    run: Run, arguments: list[str], url: str, says: str
) -> None:
    result = run(*arguments, url=url)
    assert (result.returncode, result.stdout) == (1, "")
    assert says in result.stderr


def test_hints_go_to_the_brokers_that_the_command_was_for(run: Run, bootstrap: str) -> None:
    elsewhere = "127.0.0.1:2"
    for arguments, says in (
        (["consume", "no-such"], f"`{session.PROGRAM} topics create NAME --url {bootstrap}`"),
        (["lag", "no-such"], f"`{session.PROGRAM} groups list --url {bootstrap}`"),
    ):
        assert says in run(*arguments, "--url", bootstrap, url=elsewhere).stderr
        assert "--url" not in run(*arguments).stderr


def test_a_table_whose_reader_leaves_is_no_failure(bootstrap: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "tidewheel.cli.main", "brokers"],
        env={**os.environ, "TIDEWHEEL_URL": bootstrap},
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_names_of_librdkafkas_own_are_not_shown(run: Run, topic: str) -> None:
    result = run("produce", topic, "x", "--partition", "77")
    assert "failed: Unknown partition\n" in result.stderr


def test_commands_of_the_server_say_where_they_are() -> None:
    result = in_process_of_its_own(["test"], "", "127.0.0.1:1")
    assert (result.returncode, result.stdout) == (2, "")
    assert "./tidewheel test" in result.stderr


def test_bad_input_names_the_line_and_keeps_what_came_before(run: Run, topic: str) -> None:
    given = '{"value": 1}\n{"valu": 2}\n'
    result = run("produce", topic, "--format", "json", given=given)
    assert result.returncode == 1
    assert "Line 2" in result.stderr
    assert "'valu'" in result.stderr
    assert "the 1 before it was sent" in result.stderr
    assert ok(run("consume", topic, "-e", "--values")) == "1\n"


def test_nobody_there_is_said_within_seconds(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    started = time.monotonic()
    result = run("topics", url=f"127.0.0.1:{port}")
    assert result.returncode == 1
    assert f"127.0.0.1:{port}" in result.stderr
    assert "Connection refused" in result.stderr
    assert "TIDEWHEEL_URL" in result.stderr
    assert time.monotonic() - started < 15


@pytest.mark.parametrize(
    "arguments",
    [
        ["topics"],
        ["brokers", "--json"],
        ["consume", "{topic}", "--group", "{topic}", "--count", "1"],
    ],
)
def test_a_full_disk_below_the_output_is_said_and_nothing_is_committed(
    run: Run, bootstrap: str, topic: str, arguments: list[str]
) -> None:
    ok(run("produce", topic, "x"))
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [
                sys.executable,
                "-m",
                "tidewheel.cli.main",
                *(a.format(topic=topic) for a in arguments),
            ],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TIDEWHEEL_URL": bootstrap},
            timeout=TIMEOUT_S,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "tidewheel: The output: No space left on device\n"
    if "consume" in arguments:
        assert "committed nothing" in ok(run("lag", topic))


def test_following_ends_with_the_reader_or_an_interrupt(bootstrap: str, topic: str) -> None:
    command = [sys.executable, "-m", "tidewheel.cli.main", "consume", topic, "--values"]
    environment = {**os.environ, "TIDEWHEEL_URL": bootstrap}
    following = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with sync.Client(bootstrap) as client, following:
        assert following.stdout is not None
        assert following.stderr is not None
        client.topic(topic).send("one")
        assert following.stdout.readline() == b"one\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(TIMEOUT_S) == 0
        assert following.stderr.read() == b""
    leaving = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with sync.Client(bootstrap) as client, leaving:
        assert leaving.stdout is not None
        assert leaving.stderr is not None
        assert leaving.stdout.readline() == b"one\n"
        leaving.stdout.close()
        client.topic(topic).send("two")
        assert leaving.wait(TIMEOUT_S) == 0
        assert leaving.stderr.read() == b""


def test_an_interrupt_cancels_between_callbacks_not_within_one(bootstrap: str) -> None:
    """Within one it may find a future half set, which ends in a traceback on stderr."""
    at_once: list[bool] = []

    async def command(_client: Client) -> None:
        loop = asyncio.get_running_loop()
        waited: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            signal.raise_signal(signal.SIGINT)
            at_once.append(waited.cancelled())

        loop.call_soon(settle)
        await waited

    with pytest.raises(typer.Exit) as ended:
        session.run(command, bootstrap)
    assert ended.value.exit_code == session.EXIT_INTERRUPTED
    assert at_once == [False]


def test_progress_on_the_terminal_leaves_the_output_alone(bootstrap: str, topic: str) -> None:
    """stderr is a terminal, stdout is not: the spinner goes to one, the messages to the other."""
    numbers = "".join(f"{number}\n" for number in range(20_000))
    environment = {**os.environ, "TIDEWHEEL_URL": bootstrap, "TERM": "xterm"}
    for arguments, given, expected in (
        (["produce", topic], numbers, f"Sent 20,000 messages to {topic} in "),
        (["consume", topic, "-e", "--values"], "", numbers),
    ):
        controller, terminal = os.openpty()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "tidewheel.cli.main", *arguments],
                input=given.encode(),
                env=environment,
                stdout=subprocess.PIPE,
                stderr=terminal,
                timeout=TIMEOUT_S,
                check=True,
            )
        finally:
            os.close(terminal)
            os.close(controller)
        lines_out = sorted(done.stdout.decode().splitlines())
        wanted = sorted(expected.splitlines())
        assert lines_out == wanted or lines_out[0].startswith(expected)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sending_from_a_silent_input_can_be_interrupted(
    bootstrap: str, topic: str, number: signal.Signals
) -> None:
    sending = subprocess.Popen(
        [sys.executable, "-m", "tidewheel.cli.main", "produce", topic],
        env={**os.environ, "TIDEWHEEL_URL": bootstrap},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with sync.Client(bootstrap) as client, sending:
        assert sending.stdin is not None
        assert sending.stderr is not None
        sending.stdin.write(b"one\n")
        sending.stdin.flush()
        for message in client.subscribe(topic):
            assert message.value == b"one"
            break
        sending.send_signal(number)
        assert sending.wait(TIMEOUT_S) == 130
        assert sending.stderr.read() == b""


def test_a_member_that_is_terminated_commits_and_leaves(bootstrap: str, topic: str) -> None:
    command = [sys.executable, "-m", "tidewheel.cli.main", "consume", topic, "--values"]
    environment = {**os.environ, "TIDEWHEEL_URL": bootstrap}
    member = subprocess.Popen(
        [*command, "--group", topic],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with sync.Client(bootstrap) as client, member:
        assert member.stdout is not None
        assert member.stderr is not None
        client.topic(topic).send("one")
        assert member.stdout.readline() == b"one\n"
        member.send_signal(signal.SIGTERM)
        assert member.wait(TIMEOUT_S) == 0
        assert member.stderr.read() == b""
        assert sum(lag.messages for lag in client.admin.lag(topic)) == 0
        assert client.admin.describe_group(topic).members == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"value": 1}\nnonsense\n', "Line 2 is not JSON: Expecting value at column 1;"),
        ('\n{"value": }', "Line 1 is not JSON: Expecting value at column 1"),
        ('{"value": 1}\n{"value": 2, }\n', "Line 2 is not JSON"),
    ],
)
def test_a_bad_line_is_named_once(run: Run, topic: str, text: str, says: str) -> None:
    result = run("produce", topic, "--format", "json", given=text)
    assert (result.returncode, result.stdout) == (1, "")
    assert says in result.stderr
    # The parser counts lines within the line, which would name another one.
    assert result.stderr.count("ine 1") == says.count("ine 1")
