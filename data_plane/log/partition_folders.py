"""A disk's folders: which partitions have one, and that none of them has two.

<data>/topics/<topic uuid>/Partition-<n>/       <uuid>/Partition-<n>.<unique>-delete/
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from data_plane.log.errors import DuplicateLog
from data_plane.log.file_system import SyncSite
from data_plane.log.partition_files import PARTITION_FILE, PARTITION_PREFIX

if TYPE_CHECKING:
    from data_plane.log.file_system import FileSystem
    from data_plane.log.log_directory import LogDirectory

DELETE_SUFFIX = "-delete"


class PartitionFolder(NamedTuple):
    topic_id: UUID
    partition: int
    folder: str


def make_directories(fs: FileSystem, path: str) -> None:
    """Make a data directory, parents included; their names are durable on return. Raises
    OSError."""
    parent = path.rpartition("/")[0]
    try:
        is_new = fs.make_directory(path)
    except FileNotFoundError:
        make_directories(fs, parent)
        is_new = fs.make_directory(path)
    if is_new:
        fs.sync_directory(parent or "/", SyncSite.DATA_FOLDER)


def make_folders(fs: FileSystem, topic_folder: str, folder: str) -> None:
    """Make a partition's folder in its topic's. Raises OSError."""
    while True:
        fs.make_directory(topic_folder)
        try:
            fs.make_directory(folder)
        except FileNotFoundError:
            # The thread that removes a deleted partition has just taken its topic's folder.
            continue
        return


def find_partitions(directory: LogDirectory) -> tuple[list[PartitionFolder], list[str]]:
    """The partitions of a data directory, and the folders of deleted ones. Raises OSError."""
    fs = directory.fs
    found: list[PartitionFolder] = []
    deleted: list[str] = []
    for name in fs.list_directory(directory.topics_path):
        topic_folder = f"{directory.topics_path}/{name}"
        try:
            topic_id = UUID(name)
            entries = fs.list_directory(topic_folder)
        except (ValueError, NotADirectoryError):
            # Nothing of ours; leave it alone.
            continue
        for entry in entries:
            folder = f"{topic_folder}/{entry}"
            number = entry.removeprefix(PARTITION_PREFIX)
            if entry.endswith(DELETE_SUFFIX):
                deleted.append(folder)
            elif entry != number and number.isdigit():
                found.append(PartitionFolder(topic_id, int(number), folder))
    return found, deleted


def refuse_duplicates(fs: FileSystem, directories: Iterable[Sequence[PartitionFolder]]) -> None:
    """Raises DuplicateLog where two directories have a folder of one partition: on one disk that
    was away, and on one where the partition was put meanwhile."""
    folders: dict[tuple[UUID, int], str] = {}
    duplicates = []
    for found in directories:
        for one in found:
            first = folders.setdefault((one.topic_id, one.partition), one.folder)
            if first != one.folder:
                duplicates.append((one, first))
    if duplicates:
        one, first = duplicates[0]
        names = (read_topic(fs, folder) for folder in (first, one.folder))
        topic = next(filter(None, names), f"the topic with id {one.topic_id}")
        raise DuplicateLog(one.partition, topic, (first, one.folder), len(duplicates) - 1)


def read_topic(fs: FileSystem, folder: str) -> str:
    """The topic's name, "" where it is lost: the metadata has it, too."""
    try:
        data = fs.read_file(f"{folder}/{PARTITION_FILE}")
        return str(json.loads(data)["topic"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""
