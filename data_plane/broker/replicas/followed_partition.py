"""A partition that this broker follows."""

from __future__ import annotations

from dataclasses import dataclass

from data_plane.cell.metadata import PartitionImage, TopicImage


@dataclass(frozen=True, slots=True)
class Followed:
    """As the image has it."""

    topic: TopicImage
    index: int
    image: PartitionImage
