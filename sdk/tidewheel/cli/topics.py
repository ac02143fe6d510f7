"""`tidewheel topics`: list, create, describe, change and delete topics.

Of brokers, over Kafka's protocol; or of an organization, over REST (rest_topics.py), for who is
logged in and does not say which brokers.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from tidewheel.cli import rest_topics
from tidewheel.cli.help import PlainCommand, PlainGroup, examples
from tidewheel.cli.over_rest import speaks_rest
from tidewheel.cli.session import (
    PROGRAM,
    JsonOption,
    UrlOption,
    YesOption,
    command_line,
    confirm,
    parse_pairs,
    print_json,
    print_line,
    print_table,
    run,
    table,
    usage,
)
from tidewheel.client import Client
from tidewheel.errors import TopicNotFound
from tidewheel.message import TopicPartition

HELP = """List, create, describe, change and delete topics.

With --url or TIDEWHEEL_URL these are topics of those brokers, over Kafka's protocol. Else, after
`login`, they are your organization's, over REST; without a login those of the default brokers.

What REST has made Kafka clients cannot delete, and it can be had back for a while.
"""

app = typer.Typer(
    cls=PlainGroup,
    help=HELP,
    no_args_is_help=False,
    rich_markup_mode=None,
)

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="Its name.")]


@app.callback(invoke_without_command=True)
def main(context: typer.Context, as_json: JsonOption = False, url: UrlOption = None) -> None:
    """List, create, describe, change and delete topics; without a command: list them."""
    if context.invoked_subcommand is None:
        list_topics(internal=False, as_json=as_json, url=url)


@app.command("list", cls=PlainCommand)
def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="The brokers' own topics too.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """All topics with their partitions and how many offsets they hold."""
    if speaks_rest(url):
        rest_topics.list_topics(as_json=as_json)
        return

    async def command(client: Client) -> None:
        found = await client.admin.topics(internal=internal)
        names = [topic.name for topic in found]
        begins = await client.admin.offsets(names, "earliest")
        ends = await client.admin.offsets(names, "latest")
        held_by = Counter[str]()
        for place, end in ends.items():
            held_by[place.topic] += end - begins[place]
        rows = [(topic.name, len(topic.partitions), held_by[topic.name]) for topic in found]
        if as_json:
            print_json(
                [{"topic": name, "partitions": n, "messages": held} for name, n, held in rows]
            )
            return
        if not rows:
            print_line(f"No topics yet. Create one: {command_line('topics create NAME')}")
            return
        made = table("TOPIC", "PARTITIONS", "MESSAGES", right=frozenset({"PARTITIONS", "MESSAGES"}))
        for name, count, held in rows:
            made.add_row(name, str(count), f"{held:,}")
        print_table(made)

    run(command, url)


@app.command(
    "create",
    cls=PlainCommand,
    epilog=examples(PROGRAM, "topics create orders -p 6 --set retention.ms=86400000"),
)
def create(
    topic: TopicArgument,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            show_default=False,
            help="How many; as many as the brokers' default if not given.",
        ),
    ] = -1,
    replication_factor: Annotated[
        int,
        typer.Option(
            metavar="N",
            show_default=False,
            help="Replicas of each partition; the brokers' default if not given.",
        ),
    ] = -1,
    config: Annotated[
        list[str] | None,
        typer.Option(
            *("--set", "--config", "-c"),
            metavar="KEY=VALUE",
            help="A topic property under Kafka's name; repeatable.",
        ),
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Create a topic."""
    configs = parse_pairs(config or [], "--set", "retention.ms=3600000")
    if speaks_rest(url):
        rest_topics.create(
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
            as_json=as_json,
        )
        return

    async def command(client: Client) -> None:
        await client.admin.create_topic(
            topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
        )
        made = await client.admin.describe_topic(topic)
        count = len(made.partitions)
        if as_json:
            print_json({"topic": topic, "partitions": count, "topic_id": made.topic_id})
        else:
            print_line(f"Created {topic} with {count} partition{'s' if count != 1 else ''}")

    run(command, url)


@app.command("describe", cls=PlainCommand)
def describe(
    topic: TopicArgument,
    all_configs: Annotated[
        bool, typer.Option("--all", "-a", help="Also properties that nobody set.")
    ] = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Partitions with leaders, replicas and offsets, and the properties that were set."""
    if speaks_rest(url):
        rest_topics.describe(topic, as_json=as_json)
        return

    async def command(client: Client) -> None:
        info = await client.admin.describe_topic(topic)
        begins = await client.admin.offsets(topic, "earliest")
        ends = await client.admin.offsets(topic, "latest")
        configs = [c for c in await client.admin.configs(topic) if all_configs or not c.is_default]
        if as_json:
            print_json(
                {
                    "topic": topic,
                    "topic_id": info.topic_id,
                    "partitions": [
                        {
                            "partition": p.partition,
                            "leader": p.leader,
                            "replicas": list(p.replicas),
                            "in_sync_replicas": list(p.in_sync_replicas),
                            "start_offset": begins[TopicPartition(topic, p.partition)],
                            "end_offset": ends[TopicPartition(topic, p.partition)],
                        }
                        for p in info.partitions
                    ],
                    "configs": {c.name: c.value for c in configs},
                }
            )
            return
        numbers = frozenset({"PARTITION", "LEADER", "START", "END", "MESSAGES"})
        made = table(
            *("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "START", "END", "MESSAGES"),
            right=numbers,
        )
        for p in info.partitions:
            place = TopicPartition(topic, p.partition)
            made.add_row(
                str(p.partition),
                str(p.leader) if p.leader >= 0 else "none",
                ",".join(map(str, p.replicas)),
                ",".join(map(str, p.in_sync_replicas)),
                f"{begins[place]:,}",
                f"{ends[place]:,}",
                f"{ends[place] - begins[place]:,}",
            )
        print_line(f"{topic}  (id {info.topic_id})" if info.topic_id else topic)
        print_table(made)
        if configs:
            print_line("")
            made = table("PROPERTY", "VALUE", "SET BY")
            for c in configs:
                value = "(hidden)" if c.sensitive else str(c.value)
                made.add_row(c.name, value, _SOURCES.get(c.source, c.source))
            print_table(made)

    run(command, url)


_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "this topic",
    "DYNAMIC_BROKER_CONFIG": "broker, at run time",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers, at run time",
    "STATIC_BROKER_CONFIG": "broker",
    "DEFAULT_CONFIG": "default",
}


@app.command("config", cls=PlainCommand)
def config_topic(
    topic: TopicArgument,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a property; repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Back to the default; repeatable."),
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Change properties of a topic."""
    changes: dict[str, Any] = {**parse_pairs(set_ or [], "--set", "retention.ms=3600000")}
    changes.update(dict.fromkeys(unset or []))
    if not changes:
        usage("Nothing to change", "Give --set KEY=VALUE or --unset KEY")
    if speaks_rest(url):
        rest_topics.config_topic(topic, changes, as_json=as_json)
        return

    async def command(client: Client) -> None:
        await client.admin.alter_configs(topic, changes)
        if as_json:
            print_json({"topic": topic, "changed": changes})
        else:
            print_line(f"Changed {', '.join(changes)} of {topic}")

    run(command, url)


@app.command("partitions", cls=PlainCommand)
def grow(
    topic: TopicArgument,
    count: Annotated[int, typer.Argument(metavar="N", help="How many it shall have in all.")],
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Add partitions. Keys may then go to other partitions than before."""
    if speaks_rest(url):
        rest_topics.grow(topic, count, as_json=as_json)
        return

    async def command(client: Client) -> None:
        await client.admin.create_partitions(topic, count)
        if as_json:
            print_json({"topic": topic, "partitions": count})
        else:
            print_line(f"{topic} has {count} partitions now")

    run(command, url)


@app.command("delete", cls=PlainCommand)
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Their names.")],
    yes: YesOption = False,
    as_json: JsonOption = False,
    url: UrlOption = None,
) -> None:
    """Delete topics with all their messages. Nothing is deleted when one of them is not there."""
    confirm(f"Delete {', '.join(topics)} with all messages?", yes)
    if speaks_rest(url):
        rest_topics.delete(topics, as_json=as_json)
        return

    async def command(client: Client) -> None:
        present = {topic.name for topic in await client.admin.topics(internal=True)}
        for topic in topics:
            if topic not in present:
                raise TopicNotFound(f'Nothing is deleted: topic "{topic}" does not exist')
        for topic in topics:
            await client.admin.delete_topic(topic)
            if not as_json:
                print_line(f"Deleted {topic}")
        if as_json:
            print_json({"deleted": topics})

    run(command, url)


@app.command("undelete", cls=PlainCommand)
def undelete(topic: TopicArgument, as_json: JsonOption = False) -> None:
    """Bring back a deleted topic, with its messages (after `login`).

    Operators of a cell do it for its tenants: `deleted undelete`.
    """
    rest_topics.undelete(topic, as_json=as_json)
