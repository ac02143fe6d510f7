"""`subscriptions`: make, list, show, edit and delete topics that show what matches of another one.

They are topics, so the SDK's client does all but one thing: no list of topics has them. Which there
are says ListConfigResources, which no client library offers, and DescribeConfigs says what they
read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tidewheel import sync
from tidewheel.errors import TidewheelError
from tidewheel.subscriptions import FILTER_PROPERTY, SOURCE_PROPERTY, Subscription

from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from data_plane.wire.messages.list_config_resources_request import ListConfigResourcesRequest
from data_plane.wire.registry import ApiKey
from stack.admin_connection import AdminConnection
from stack.errors import EXIT_USAGE, StackError
from stack.hints import PROGRAM
from stack.tables import show

TOPIC_RESOURCE: Final = 2
TOPICS_PER_REQUEST: Final = 500
COLUMNS: Final = ("name", "source", "filter")
EVERYTHING: Final = "(everything)"


def run_subscriptions(options: argparse.Namespace) -> int:
    """One of the actions. Raises StackError."""
    if options.action == "list":
        rows = [_row(one) for one in listed(options.url)]
        if rows or options.json:
            show(rows, COLUMNS, as_json=options.json)
        else:
            make = "subscriptions create NAME --source TOPIC --filter FILTER"
            print(f"No subscriptions yet. Make one: {PROGRAM} {make}")
        return 0
    if options.name is None:
        raise StackError("Say which subscription: its name is missing.", EXIT_USAGE)
    try:
        with sync.Client(options.url) as client:
            _ACTIONS[options.action](client.admin, options)
    except TidewheelError as error:
        raise StackError(str(error).replace("`tidewheel ", f"`{PROGRAM} ")) from error
    return 0


def listed(bootstrap: str | None) -> list[Subscription]:
    """All that the user may see, by name. Raises StackError."""
    with AdminConnection(bootstrap) as connection:
        request = ListConfigResourcesRequest(resource_types=[TOPIC_RESOURCE])
        answer = connection.request(ApiKey.LIST_CONFIG_RESOURCES, request)
        if answer.error_code:
            raise StackError(ErrorCode(answer.error_code).message)
        names = [one.resource_name for one in answer.config_resources]
        found = []
        for start in range(0, len(names), TOPICS_PER_REQUEST):
            found += _among(connection, names[start : start + TOPICS_PER_REQUEST])
    return sorted(found, key=lambda one: one.name)


def _among(connection: AdminConnection, names: list[str]) -> list[Subscription]:
    keys = [SOURCE_PROPERTY, FILTER_PROPERTY]
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=keys
            )
            for name in names
        ]
    )
    found = []
    for result in connection.request(ApiKey.DESCRIBE_CONFIGS, request).results:
        # One that was deleted since, or that the user may not look at, is none for him.
        values = {} if result.error_code else {one.name: one.value for one in result.configs}
        if values.get(SOURCE_PROPERTY):
            source, text = values[SOURCE_PROPERTY], values.get(FILTER_PROPERTY) or ""
            found.append(Subscription(result.resource_name, source, text))
    return found


def _create(admin: sync.Admin, options: argparse.Namespace) -> None:
    if options.source is None:
        raise StackError("Say what it reads: --source TOPIC.", EXIT_USAGE)
    made = admin.create_subscription(options.name, options.source, options.filter or "")
    _tell(options, made, f"Created {made.name}: {_words(made)}")


def _show(admin: sync.Admin, options: argparse.Namespace) -> None:
    found = admin.subscription(options.name)
    topic = admin.describe_topic(options.name)
    row = {**_row(found), "partitions": len(topic.partitions), "topic_id": topic.topic_id}
    pauses = admin.retry_pauses(options.name)
    if options.json:
        paused = [
            {
                "partition": one.partition.partition,
                "since_ms": one.since_ms,
                "nacked": one.nacked,
                "passed": one.passed,
            }
            for one in pauses
        ]
        print(json.dumps({**row, "retry_pauses": paused}))
        return
    show([row], tuple(row), as_json=False)
    for one in pauses:
        since = datetime.fromtimestamp(one.since_ms / 1000, UTC).isoformat(" ", "seconds")
        print(f"Retries of partition {one.partition.partition} pause since {since}: {one}")


def _edit(admin: sync.Admin, options: argparse.Namespace) -> None:
    if options.filter is None:
        raise StackError('Say which filter: --filter "checkout or refund".', EXIT_USAGE)
    edited = admin.edit_subscription(options.name, options.filter)
    _tell(options, edited, f"Changed {edited.name}: {_words(edited)}")


def _delete(admin: sync.Admin, options: argparse.Namespace) -> None:
    if not options.yes:
        raise StackError(
            f"Whoever reads {options.name} gets nothing more: add --yes. The messages stay where "
            "they are.",
            EXIT_USAGE,
        )
    # A topic with messages of its own is not deleted by a slip of the tongue.
    known = admin.subscription(options.name)
    admin.delete_topic(options.name)
    _tell(options, known, f"Deleted {known.name}; {known.source} has its messages as before")


_ACTIONS: Final[Mapping[str, Callable[[sync.Admin, argparse.Namespace], None]]] = {
    "create": _create,
    "show": _show,
    "edit": _edit,
    "delete": _delete,
}


def _row(one: Subscription) -> dict[str, Any]:
    return {"name": one.name, "source": one.source, "filter": one.filter}


def _words(one: Subscription) -> str:
    return f"of {one.source}, {one.filter or EVERYTHING}"


def _tell(options: argparse.Namespace, one: Subscription, words: str) -> None:
    print(json.dumps(_row(one)) if options.json else words)
