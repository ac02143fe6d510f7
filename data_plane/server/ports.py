"""What a broker has of the world: time, files, threads, chance, the store, the other brokers.

The server hands in the real things (broker_process.py), the simulator its own, and
everything below behaves the same. Nothing else reaches the world by another way.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from data_plane.broker.admin.log_threshold import LogThreshold
from data_plane.broker.loop_bounds import LOOP_BOUNDS, LoopBounds
from data_plane.broker.request.api import Executor
from data_plane.broker.request.peers import OnResponse, Peers
from data_plane.broker.request.turns import Turns, UnwatchedTurns
from data_plane.broker.services import Logger, Services
from data_plane.cell.features import SUPPORTED_FEATURES, SupportedFeatures
from data_plane.cell.metadata_store import MetadataStore
from data_plane.log.file_system import FileSystem
from data_plane.log.fold import FoldFactory
from data_plane.log.lanes import Lane
from data_plane.log.open_files import OPEN_SEGMENTS_MAX

PlugIn = Callable[[Services], None]


class NoPeers:
    """The Peers port of a broker that is alone: nobody answers."""

    def __init__(self, services: Services, now_ms: Callable[[], int]) -> None:
        self._services = services
        self._now_ms = now_ms

    def send(
        self, node_id: int, api_key: int, api_version: int, body: object, on_response: OnResponse
    ) -> None:
        self._services.timers.schedule(self._now_ms(), lambda now_ms: on_response(None, now_ms))

    def disconnect(self, node_id: int) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """See the module.

    - `now_ms` reads the steady clock, `ahead_ms` how far the one that people set is ahead of it,
      `clock_ns` one that is good for short durations only, `thread_clock_ns` what the calling
      thread has had of a processor.
    - `booted_ms`: what `now_ms` would have read at the machine's boot; None where that is unknown.
    - `executor` runs what requests wait for, `maintenance_lanes` the rest: each lane one job after
      the other.
    - `read_executor` runs what consumers read from disk, which is to hold up nothing else; None
      when `executor` may do that, too.
    - `store_executor` runs calls of a shared store, which a slow disk must not hold up; None when
      `executor` may do that, too.
    - `shared_store` None: the broker is alone and keeps the metadata in its data directory.
    - `make_peers` may be called again where a purpose needs connections of its own.
    - `sleep_ms` holds up the thread that enters the cell.
    - `turns` is told what the loop does.
    - `features`: the levels that this broker supports, those of what is plugged in included.
    - `plug_ins` add what the data plane knows nothing of, once its own parts are made.
    - `fold_factories` make what features keep of each log, beside the state of producers.
    - `measure_space(path)` → (size, usable) bytes of the file system.
    """

    fs: FileSystem
    executor: Executor
    maintenance_lanes: Mapping[Lane, Executor]
    now_ms: Callable[[], int]
    ahead_ms: Callable[[], int]
    random: random.Random
    log: Logger
    log_threshold: LogThreshold
    make_peers: Callable[[Services], Peers]
    measure_space: Callable[[str], tuple[int, int]]
    booted_ms: int | None = None
    shared_store: MetadataStore | None = None
    store_executor: Executor | None = None
    read_executor: Executor | None = None
    sleep_ms: Callable[[int], None] = lambda duration_ms: None
    open_segments_max: int = OPEN_SEGMENTS_MAX
    loop_bounds: LoopBounds = LOOP_BOUNDS
    fold_factories: Sequence[FoldFactory] = ()
    turns: Turns = field(default_factory=UnwatchedTurns)
    features: SupportedFeatures = SUPPORTED_FEATURES
    plug_ins: Sequence[PlugIn] = ()
    clock_ns: Callable[[], int] = time.perf_counter_ns
    thread_clock_ns: Callable[[], int] = time.thread_time_ns
