"""An operator at a terminal: tenants, users, ACLs and quotas, over CellAdmin, to a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidewheel.errors import NotAuthenticated, NotAuthorized, TlsFailed
from tidewheel.sync import Client

from data_plane.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from data_plane.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from data_plane.wire.registry import ApiKey
from stack.__main__ import main
from stack.admin_connection import AdminConnection, NotTaken
from stack.operator_arguments import OPERATION_NAMES
from stack.operators import OPERATIONS, OPERATIONS_OF, login_of, verifiers_of
from stack.options import StackOptions
from stack.supervisor import Supervisor

# Within it librdkafka has looked for the coordinator of a group.
REFUSAL_S = 0.7


class Operator:
    """Types commands for one stack."""

    def __init__(self, stack: Supervisor, capsys: pytest.CaptureFixture[str]) -> None:
        self._stack = stack
        self._capsys = capsys
        assert stack.state is not None
        (broker,) = stack.state.brokers
        port, ca = broker.listeners["SASL_SSL"], stack.folder.tls / "ca.pem"
        self._place = f"127.0.0.1:{port}?ca={ca}"

    def types(self, words: str) -> str:
        """What is printed; it has to succeed."""
        status, out, err = self.tries(words)
        assert (status, err) == (0, ""), words
        return out

    def tries(self, words: str) -> tuple[int, str, str]:
        command, _, rest = words.partition(" ")
        status = main([command, *rest.split(), "--data", str(self._stack.folder.path)])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err

    def shown(self, words: str) -> Any:
        return json.loads(self.types(f"{words} --json"))

    def url(self, login: str, password: str) -> str:
        return f"tidewheel://{login.replace('@', '%40')}:{password}@{self._place}"

    def is_taken(self, login: str, password: str) -> bool:
        try:
            AdminConnection(self.url(login, password)).__exit__(None, None, None)
        except NotTaken:
            return False
        return True

    def delete_topic(self, login: str, password: str, name: str) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)])
        with AdminConnection(self.url(login, password)) as connection:
            answer = connection.request(ApiKey.DELETE_TOPICS, request)
        assert answer.responses[0].error_code == 0

    def create_topic(self, login: str, password: str, name: str) -> int:
        """Kafka's error code."""
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        with AdminConnection(self.url(login, password)) as connection:
            answer = connection.request(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
        code: int = answer.topics[0].error_code
        return code


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    folder = tmp_path_factory.mktemp("operators")
    with Supervisor(StackOptions(folder, brokers=1, port=0, more_listeners=True)) as running:
        yield running


@pytest.fixture
def operator(stack: Supervisor, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(stack, capsys)


def test_the_first_user_is_made_with_the_operators_certificate(operator: Operator) -> None:
    made = operator.shown("users create alice")
    assert operator.is_taken("alice", made["password"])
    assert not operator.is_taken("alice", made["password"] + "x")
    rotated = operator.shown("users rotate alice")
    assert not operator.is_taken("alice", made["password"])
    assert operator.is_taken("alice", rotated["password"])
    (row,) = operator.shown("users list")
    assert (row["login"], row["principal"], row["declared"]) == ("alice", "User:alice", True)
    status, _, words = operator.tries("users create alice")
    assert (status, "is there already" in words) == (1, True)
    operator.types("users revoke alice")
    assert not operator.is_taken("alice", rotated["password"])
    assert operator.shown("users list") == []


def test_a_tenant_with_users_and_rights(operator: Operator) -> None:
    operator.types("tenants create acme")
    password = operator.shown("users create bob --tenant acme")["password"]
    assert operator.create_topic("bob@acme", password, "orders") == 29, "nothing is allowed there"
    granted = operator.types("acls grant bob --tenant acme --topic o* --operation create")
    assert operator.create_topic("bob@acme", password, "orders") == 0
    assert operator.create_topic("bob@acme", password, "pay") == 29
    (row,) = operator.shown("acls list --tenant acme")
    assert (row["principal"], row["operation"], row["name"]) == ("User:bob", "create", "o*")
    assert row["grant"] in granted
    operator.types(f"acls revoke {row['grant']} --tenant acme")
    assert operator.create_topic("bob@acme", password, "other") == 29
    operator.types("tenants suspend acme --reason unpaid")
    (shown,) = operator.shown("tenants show acme")
    assert shown["state"] == "blocked"
    assert not operator.is_taken("bob@acme", password)
    operator.types("tenants resume acme")
    assert operator.is_taken("bob@acme", password)
    status, _, words = operator.tries("tenants delete acme")
    assert (status, "--yes" in words) == (2, True)
    operator.types("tenants delete acme --yes")
    assert not operator.is_taken("bob@acme", password)


def test_a_tenants_topics_can_come_back_where_it_says_so(operator: Operator) -> None:
    operator.types("tenants create careful --undelete-ms 3600000")
    password = operator.shown("users create eve --tenant careful")["password"]
    words = "acls grant eve --tenant careful --topic * --operation create --operation delete"
    operator.types(words)
    assert operator.create_topic("eve@careful", password, "oops") == 0
    operator.delete_topic("eve@careful", password, "oops")
    assert operator.create_topic("eve@careful", password, "oops") == 44, "the name is reserved"
    # Suspended and resumed, it says so still.
    operator.types("tenants suspend careful")
    operator.types("tenants resume careful")
    (row,) = operator.shown("deleted list --tenant careful")
    assert row["topic"] == "oops"
    operator.types("deleted purge oops --tenant careful --yes")
    status, _, err = operator.tries("tenants create hasty --undelete-ms 99999999999999")
    assert (status, "allowed are 0 to" in err) == (1, True)


def test_all_operations_that_can_be_granted_are_offered_and_no_others() -> None:
    offered = set(OPERATION_NAMES.split(", "))
    assert offered == set().union(*OPERATIONS_OF.values())
    assert offered <= set(OPERATIONS)


def test_quotas(operator: Operator) -> None:
    operator.types("tenants create small")
    words = "quotas set --tenant small --limit partitions=2 --limit produce_bytes_per_s=1000"
    operator.types(words)
    operator.types("quotas set --tenant small --limit produce_bytes_per_s=")
    assert operator.shown("quotas show --tenant small") == [
        {"of": "tenant", "limit": "partitions", "value": "2"}
    ]
    operator.types("quotas set --tenant small --limit partitions=")
    assert operator.shown("quotas show --tenant small") == []


def test_a_topic_deleted_by_mistake_comes_back(operator: Operator, stack: Supervisor) -> None:
    def request(api: ApiKey, message: Any) -> Any:
        with AdminConnection(stack.bootstrap) as connection:
            return connection.request(api, message)

    kept = CreatableTopicConfig(name="tidewheel.undelete.ms", value="3600000")
    topic = CreatableTopic(name="oops", num_partitions=2, replication_factor=1, configs=[kept])
    request(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="oops")])
    request(ApiKey.DELETE_TOPICS, deletion)
    (row,) = operator.shown("deleted list")
    assert (row["topic"], row["tenant"], row["partitions"]) == ("oops", "default", 2)
    operator.types("deleted undelete oops")
    assert operator.shown("deleted list --all") == []
    request(ApiKey.DELETE_TOPICS, deletion)
    status, _, words = operator.tries("deleted purge oops")
    assert (status, "--yes" in words) == (2, True)
    operator.types("deleted purge oops --yes")
    status, _, words = operator.tries("deleted undelete oops")
    assert (status, "There is no deleted topic 'oops'" in words) == (1, True)


def test_the_sdk_says_why_it_is_not_let_in(operator: Operator) -> None:
    operator.types("tenants create strict")
    password = operator.shown("users create zoe --tenant strict")["password"]

    def opened(address: str) -> None:
        with Client(address) as client:
            client.admin.create_topic("forbidden")

    url = operator.url("zoe@strict", password)
    with pytest.raises(NotAuthorized, match="forbidden") as refused:
        opened(url)
    assert "acls grant" in refused.value.hint
    with pytest.raises(NotAuthenticated, match="zoe@strict") as unknown:
        opened(url.replace(password, "wrong"))
    assert "users rotate" in unknown.value.hint
    with pytest.raises(TlsFailed) as untrusted:
        opened(f"{url.partition('?')[0]}?tls=true")
    assert "?ca=" in untrusted.value.hint
    for error in (refused.value, unknown.value, untrusted.value):
        assert password not in str(error)


def test_who_reads_without_a_group_needs_no_right_on_one(operator: Operator) -> None:
    operator.types("tenants create readers")
    password = operator.shown("users create zoe --tenant readers")["password"]
    for operation in ("create", "write", "read"):
        operator.types(f"acls grant zoe --tenant readers --topic t --operation {operation}")
    with Client(operator.url("zoe@readers", password)) as client:
        client.admin.create_topic("t")
        client.topic("t").send("one")
        with client.subscribe("t") as consumer:
            batches = consumer.batches(1000, REFUSAL_S)
            # A refusal would come while there is nothing to read.
            assert [len(next(batches)) for _ in range(3)] == [1, 0, 0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("tenants show nobody", "There is no tenant nobody."),
        ("tenants delete default --yes", "is always there"),
        ("users rotate nobody", "There is no user nobody"),
        ("users list --tenant nobody", "there is no tenant 'nobody'"),
        ("users create", "Say which user"),
        ("acls grant alice", "Say what for"),
        ("acls grant alice --group g --operation write", "can be granted for write"),
        ("acls revoke nothing", "There is no grant nothing"),
        ("quotas set --limit partitions", "write NAME=NUMBER"),
        ("quotas set --limit bananas=1", "bananas"),
        ("users list --cell 127.0.0.1:1", "go together"),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(operator: Operator, words: str, says: str) -> None:
    status, out, err = operator.tries(words)
    assert status != 0
    assert says in err
    assert out == ""


def test_without_a_stack_it_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["users", "list", "--data", str(tmp_path)]) == 2
    assert "--cell" in capsys.readouterr().err


def test_logins_and_what_is_told_of_a_password() -> None:
    assert login_of("alice", "default") == "alice"
    assert login_of("alice", "acme") == "alice@acme"
    for verifier in verifiers_of("secret"):
        assert b"secret" not in verifier.SerializeToString()
