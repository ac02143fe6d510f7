"""`tidewheel topics` over REST: the commands of topics.py for who is logged in at a control plane.

What REST declares the cell keeps: Kafka clients cannot delete such a topic, or change what was set
here. A deleted one can be had back for a while.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidewheel.cli.over_rest import Account, found, run_rest
from tidewheel.cli.session import PROGRAM, note, print_json, print_line, print_table, table

READY_TIMEOUT_S: Final = 10.0
LOOK_UP_S: Final = 0.1


def list_topics(*, as_json: bool) -> None:
    def command(account: Account) -> None:
        topics = sorted(account.items("topics"), key=lambda topic: str(topic["name"]))
        if as_json:
            print_json([_as_json(topic) for topic in topics])
            return
        if not topics:
            print_line(f"No topics yet. Create one: {PROGRAM} topics create NAME")
            return
        made = table("TOPIC", "PARTITIONS", "STATUS", "OWNER", right=frozenset({"PARTITIONS"}))
        for topic in topics:
            count = str(topic["spec"]["partitions"])
            made.add_row(topic["name"], count, _status(topic), topic["managed_by"])
        print_table(made)

    run_rest(command)


def create(
    name: str,
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    as_json: bool,
) -> None:
    """Numbers below 1 are left to the control plane."""
    spec: dict[str, Any] = {"configs": dict(configs)}
    if partitions >= 0:
        spec["partitions"] = partitions
    if replication_factor >= 0:
        spec["replication_factor"] = replication_factor

    def command(account: Account) -> None:
        made = account.rest.post(account.at("topics"), {"name": name, "spec": spec}).body
        made = _until_ready(account, made)
        count = made["spec"]["partitions"]
        if as_json:
            print_json(_as_json(made))
        else:
            print_line(f"Created {name} with {count} partition{'s' if count != 1 else ''}")
        status = made["status"]
        if status["state"] != "ready":
            reason = f": {status['reason']}" if status["reason"] else ""
            note(f"It is {status['state']}{reason}")

    run_rest(command)


def describe(name: str, *, as_json: bool) -> None:
    def command(account: Account) -> None:
        topic = _topic(account, name)
        if as_json:
            print_json(topic)
            return
        print_line(f"{name}  (id {topic['id']})")
        made = table("PROPERTY", "VALUE")
        spec = topic["spec"]
        made.add_row("status", _status(topic))
        if topic["status"]["reason"]:
            made.add_row("reason", topic["status"]["reason"])
        made.add_row("owner", topic["managed_by"])
        made.add_row("partitions", str(spec["partitions"]))
        made.add_row("replication factor", str(spec["replication_factor"] or "the cell's"))
        made.add_row("deletion protection", "on" if topic["deletion_protection"] else "off")
        for key, value in sorted(spec["configs"].items()):
            made.add_row(key, str(value))
        print_table(made)

    run_rest(command)


def config_topic(name: str, changes: Mapping[str, Any], *, as_json: bool) -> None:
    """None takes a property away."""

    def command(account: Account) -> None:
        address = account.at(f"topics/{_topic(account, name)['id']}")
        present = account.rest.get(address)
        configs = {**present.body["spec"]["configs"], **changes}
        kept = {key: value for key, value in configs.items() if value is not None}
        # Somebody else's change in between is not undone: that is 412 then.
        account.rest.patch(address, {"spec": {"configs": kept}}, present.etag)
        if as_json:
            print_json({"topic": name, "changed": dict(changes)})
        else:
            print_line(f"Changed {', '.join(changes)} of {name}")

    run_rest(command)


def grow(name: str, count: int, *, as_json: bool) -> None:
    def command(account: Account) -> None:
        address = account.at(f"topics/{_topic(account, name)['id']}")
        account.rest.patch(address, {"spec": {"partitions": count}})
        if as_json:
            print_json({"topic": name, "partitions": count})
        else:
            print_line(f"{name} is to have {count} partitions")

    run_rest(command)


def delete(names: Sequence[str], *, as_json: bool) -> None:
    def command(account: Account) -> None:
        # All are looked up first: nothing is deleted when one of them is not there.
        topics = [_topic(account, name) for name in names]
        for topic in topics:
            gone = account.rest.delete(account.at(f"topics/{topic['id']}")).body
            if not as_json:
                until = f"; it can be had back until {gone['purge_after']}"
                print_line(f"Deleted {topic['name']}{until if gone['purge_after'] else ''}")
        if as_json:
            print_json({"deleted": list(names)})

    run_rest(command)


def undelete(name: str, *, as_json: bool) -> None:
    def command(account: Account) -> None:
        deleted = account.items("topics", name=name, deleted="true")
        topic = found(deleted, f"deleted topic {name}")
        made = account.rest.post(account.at(f"topics/{topic['id']}/undelete")).body
        if as_json:
            print_json(_as_json(made))
        else:
            print_line(f"{name} is back")

    run_rest(command)


def _topic(account: Account, name: str) -> dict[str, Any]:
    return found(account.items("topics", name=name, deleted="false"), f'topic "{name}"')


def _until_ready(account: Account, topic: dict[str, Any]) -> dict[str, Any]:
    """The topic once its cell has it; as it is when that takes long."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    under_way = ("provisioning", "updating")
    while topic["status"]["state"] in under_way and time.monotonic() < deadline_s:
        time.sleep(LOOK_UP_S)
        topic = account.rest.get(account.at(f"topics/{topic['id']}")).body
    return topic


def _status(topic: Mapping[str, Any]) -> str:
    return "deleted" if topic["purge_after"] else str(topic["status"]["state"])


def _as_json(topic: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": topic["name"],
        "partitions": topic["spec"]["partitions"],
        "topic_id": topic["id"],
        "status": _status(topic),
        "managed_by": topic["managed_by"],
    }
