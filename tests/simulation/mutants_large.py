"""Planted bugs of work that is done in pieces, or by threads, and of what happens in between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from data_plane.broker.cell.image_steps import ImageSteps
from data_plane.broker.produce.produce_handler import _Produce
from data_plane.broker.request.api import KeptRequest
from data_plane.cell.metadata import MetadataImage
from data_plane.groups.appends import Appends
from data_plane.groups.chores import Chores
from data_plane.groups.offsets import OffsetStore
from tests.simulation.admin import TopicPlan
from tests.simulation.cell import Options
from tests.simulation.mutant import Mutant, Patch

# Where offsets expire, topics go and coordinators change while there are pieces left to do.
LARGE = Options(
    brokers=3,
    faults=frozenset({"kill", "pause", "slow network"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 2, 3),),
    extras=frozenset({"large states"}),
)
# The same where images are followed in steps.
LARGE_IN_STEPS = Options(
    brokers=3,
    faults=frozenset({"kill", "pause"}),
    admin=frozenset(),
    topics=(TopicPlan("data3", 1, 3),),
    extras=frozenset({"large states", "image steps"}),
)


def _pending_is_unknown(patch: Patch) -> None:
    """What is due is deleted, whatever is on its way to the log."""
    patch.set(OffsetStore, "is_pending", lambda *_: False)


def _chores_go_on(patch: Patch) -> None:
    patch.set(Chores, "drop", lambda *_, **__: None)


def _appends_go_on(patch: Patch) -> None:
    patch.set(Appends, "close", lambda *_: None)


def _next_overtakes(patch: Patch) -> None:
    """A Produce that waits for a thread lets its connection's next request go first."""
    original: Any = _Produce.__dict__["_keep"]

    def keep(self: _Produce) -> KeptRequest:
        kept: KeptRequest = original(self)
        kept.release()
        return kept

    patch.set(_Produce, "_keep", keep)


def _version_before_its_time(patch: Patch) -> None:
    """The first step towards an image counts as the image."""
    original: Any = ImageSteps.__dict__["next_step"]

    def next_step(self: ImageSteps, image: MetadataImage) -> MetadataImage:
        step: MetadataImage = original(self, image)
        return replace(step, version=self.goal.version)

    patch.set(ImageSteps, "next_step", next_step)


LARGE_MUTANTS: Iterable[Mutant] = (
    Mutant(
        "sweep of what is pending",
        "an offset that is due is deleted while a commit of it is on its way",
        _pending_is_unknown,
        seeds=(12,),
        options=LARGE,
        is_quick=True,
    ),
    Mutant(
        "chores of a closed shard",
        "what was begun for a partition goes on when another broker coordinates it",
        _chores_go_on,
        seeds=(43,),
        options=LARGE,
        is_quick=True,
    ),
    Mutant(
        "appends of a closed shard",
        "appends settle in a partition that another broker coordinates",
        _appends_go_on,
        seeds=(5,),
        options=LARGE,
        is_quick=True,
    ),
    Mutant(
        "next request overtakes",
        "a connection goes on while a thread looks at what it has sent before",
        _next_overtakes,
        options=LARGE,
        is_quick=True,
    ),
    Mutant(
        "version before its time",
        "what is decided by an image's version is decided on one that lies before it",
        _version_before_its_time,
        options=LARGE_IN_STEPS,
        is_quick=True,
    ),
)
