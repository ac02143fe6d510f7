"""The leader epochs of a log that is opened: from their file, or from its batches.

Deliberately absent: what an epoch is (leader_epochs.py), and when the file is written (flush.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.log.batch_walk import BatchWalk
from data_plane.log.file_system import FileSystem
from data_plane.log.leader_epochs import LeaderEpochs
from data_plane.log.partition_files import LEADER_EPOCHS_FILE
from data_plane.log.segment import Segment


def load_epochs(fs: FileSystem, folder: str, segments: Sequence[Segment]) -> LeaderEpochs:
    """The leader epochs from their file, or from the batches when it is lost."""
    epochs = LeaderEpochs()
    try:
        epochs.restore(fs.read_file(f"{folder}/{LEADER_EPOCHS_FILE}"))
    except (FileNotFoundError, ValueError):
        add_epochs(epochs, segments)
    else:
        add_epochs(epochs, segments[-1:])
    return epochs


def add_epochs(epochs: LeaderEpochs, segments: Sequence[Segment]) -> None:
    """Note the epochs of all batches of `segments`."""
    for segment in segments:
        file = segment.directory.fs.open(segment.path(), write=False)
        try:
            for chunk in BatchWalk(file, 0, segment.size, check_crc=False):
                for header in chunk.headers:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        finally:
            file.close()
