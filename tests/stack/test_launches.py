"""How the brokers of a stack are started: what wins over what, and what stays out of sight."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stack.broker_process import BrokerLaunch, as_variable
from stack.events import StackEvent
from stack.folder import MetadataStoreKind
from stack.options import DEFAULT_SCHEMA, StackOptions, cell_settings, store_schema
from stack.supervisor import Supervisor

STORE_URL = "postgresql://tidewheel:secret@127.0.0.1:5/postgres"


def launch(tmp_path: Path, *settings: str, broker_id: int = 1) -> BrokerLaunch:
    """As a cell's supervisor launches a broker."""
    supervisor = Supervisor(StackOptions(tmp_path, port=0, settings=settings))
    supervisor._store_url, supervisor._store_schema = STORE_URL, DEFAULT_SCHEMA
    supervisor._broker_count = 3
    return supervisor._launch(broker_id, 0)


def test_what_the_user_sets_comes_last_so_that_it_wins(tmp_path: Path) -> None:
    made = launch(tmp_path, "host.id=mine-{id}", broker_id=2)
    assert made.settings[-1] == "host.id=mine-2"
    assert "host.id=stack-host-2" in made.settings[:-1]


def test_the_environment_of_the_user_wins_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = as_variable("broker.rack")
    assert launch(tmp_path).environment[rack] == "RACK1"
    monkeypatch.setenv(rack, "mine")
    assert rack not in launch(tmp_path).environment


def test_the_password_of_the_store_is_on_no_command_line(tmp_path: Path) -> None:
    made = launch(tmp_path)
    assert made.environment[as_variable("metadata.store.url")] == STORE_URL
    assert "secret" not in " ".join(made.command())


def test_brokers_of_one_machine_count_as_machines_of_their_own() -> None:
    hosts = {
        setting
        for broker_id in (1, 2, 3)
        for setting in cell_settings(broker_id, 0)
        if setting.startswith("host.id=")
    }
    assert len(hosts) == 3


def test_cells_in_one_database_have_schemas_of_their_own() -> None:
    one, other = (store_schema(MetadataStoreKind.EXTERNAL, cluster) for cluster in ("a", "b"))
    assert one != other
    assert store_schema(MetadataStoreKind.EXTERNAL, "a") == one
    # Postgres cuts off what is longer, and hyphens would have to be quoted.
    assert all(len(schema) <= 63 and schema.isidentifier() for schema in (one, other))
    # The database of a stack of its own has one cell.
    assert store_schema(MetadataStoreKind.POSTGRES, "a") == DEFAULT_SCHEMA


def test_what_was_asked_of_an_earlier_stack_is_not_done_by_the_next(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"id": "a5", "action": "start", "part": "postgres"}))
    reported: list[StackEvent] = []
    with Supervisor(StackOptions(tmp_path, brokers=1, port=0)) as supervisor:
        assert supervisor.watch(reported.append)
    assert reported == []
