"""Which brokers a start means, and where their metadata is: decisions without processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.errors import EXIT_USAGE, StackError
from stack.folder import MetadataStoreKind, StackFolder
from stack.options import (
    DEFAULT_BROKERS,
    StackOptions,
    cell_environment,
    decide_broker_ids,
    decide_store_kind,
)

DATA = Path("data")
EXTERNAL = "postgresql://somewhere/else"


@pytest.mark.parametrize(
    ("brokers", "first_id", "present", "ids"),
    [
        (None, None, [], list(range(1, DEFAULT_BROKERS + 1))),
        (None, None, [1, 2, 3], [1, 2, 3]),
        (None, None, [5], [5]),
        (1, None, [], [1]),
        (4, None, [1, 2, 3], [1, 2, 3, 4]),
        (3, 10, [], [10, 11, 12]),
        (4, 10, [11, 12], [10, 11, 12, 13]),
        # A drained broker left a gap.
        (None, None, [1, 3], [1, 3]),
        (3, None, [1, 3], [1, 3, 4]),
    ],
)
def test_the_brokers_of_a_start(
    brokers: int | None, first_id: int | None, present: list[int], ids: list[int]
) -> None:
    options = StackOptions(DATA, brokers=brokers, first_id=first_id)
    assert decide_broker_ids(options, present) == ids


@pytest.mark.parametrize(("brokers", "first_id"), [(2, None), (3, 2), (None, 7)])
def test_no_data_is_left_out(brokers: int | None, first_id: int | None) -> None:
    options = StackOptions(DATA, brokers=brokers, first_id=first_id)
    with pytest.raises(StackError, match="would leave out") as refused:
        decide_broker_ids(options, [1, 2, 3])
    assert refused.value.exit_status == EXIT_USAGE


def folder_with(path: Path, kind: MetadataStoreKind | None, brokers: int) -> StackFolder:
    folder = StackFolder(path)
    folder.prepare()
    for broker_id in range(1, brokers + 1):
        folder.broker_data(broker_id).mkdir()
    if kind is not None:
        folder.write_store_kind(kind)
    return folder


@pytest.mark.parametrize(
    ("written", "present", "brokers", "url", "kind"),
    [
        (None, 0, 1, None, MetadataStoreKind.LOCAL),
        # One broker needs no database, even where one is to be had.
        (None, 0, 1, EXTERNAL, MetadataStoreKind.LOCAL),
        (None, 0, 3, None, MetadataStoreKind.POSTGRES),
        (None, 0, 3, EXTERNAL, MetadataStoreKind.EXTERNAL),
        # Of a version that knew nothing else.
        (None, 1, 1, EXTERNAL, MetadataStoreKind.LOCAL),
        (MetadataStoreKind.POSTGRES, 3, 3, EXTERNAL, MetadataStoreKind.POSTGRES),
        (MetadataStoreKind.POSTGRES, 1, 1, None, MetadataStoreKind.POSTGRES),
        (MetadataStoreKind.EXTERNAL, 3, 4, EXTERNAL, MetadataStoreKind.EXTERNAL),
    ],
)
def test_where_the_metadata_is(
    tmp_path: Path,
    written: MetadataStoreKind | None,
    present: int,
    brokers: int,
    url: str | None,
    kind: MetadataStoreKind,
) -> None:
    folder = folder_with(tmp_path, written, present)
    options = StackOptions(tmp_path, brokers=brokers, database_url=url)
    assert decide_store_kind(options, folder, brokers) == kind


@pytest.mark.parametrize(
    ("written", "brokers", "words"),
    [
        (None, 3, "single broker"),
        (MetadataStoreKind.LOCAL, 2, "single broker"),
        (MetadataStoreKind.EXTERNAL, 3, "DATABASE_URL"),
    ],
)
def test_metadata_does_not_move(
    tmp_path: Path, written: MetadataStoreKind | None, brokers: int, words: str
) -> None:
    folder = folder_with(tmp_path, written, 1)
    with pytest.raises(StackError, match=words) as refused:
        decide_store_kind(StackOptions(tmp_path, brokers=brokers), folder, brokers)
    assert refused.value.exit_status == EXIT_USAGE


@pytest.mark.parametrize(("brokers", "factor"), [(2, "2"), (3, "3"), (5, "3")])
def test_there_are_no_more_replicas_than_brokers(brokers: int, factor: str) -> None:
    environment = cell_environment(7, EXTERNAL, brokers)
    assert environment["TIDEWHEEL_BROKER_DEFAULT_REPLICATION_FACTOR"] == factor
    assert environment["TIDEWHEEL_BROKER_METADATA_STORE_URL"] == EXTERNAL
