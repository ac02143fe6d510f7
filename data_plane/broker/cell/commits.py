"""Commits as this broker learns them, for those who follow what changes.

Each commit comes once, in order, right behind its image, whichever of the two ways it came by: this
broker's own, or the store's feed. Where an image came whole, what led to it is not known here.

Deliberately absent: memory. Who needs what was before asks the store's feed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from data_plane.cell.changes import Change
from data_plane.cell.metadata import MetadataImage

# The image after a commit, and the commit's changes; None where the image came whole.
CommitListener = Callable[[MetadataImage, Sequence[Change] | None], None]


class Commits:
    """One per broker. `version` is the newest that was told."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.listeners: list[CommitListener] = []

    def learnt(self, image: MetadataImage, changes: Sequence[Change] | None) -> None:
        """Tell the listeners, unless they know. `changes` lead to `image` from the version before;
        when that is not the newest one here, there is a hole."""
        if image.version <= self.version:
            return
        is_next = image.version == self.version + 1
        self.version = image.version
        for listener in self.listeners:
            listener(image, changes if is_next else None)
