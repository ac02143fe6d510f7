"""InitProducerId, versions 0 to 5: ids for idempotent producers.

Ids come from blocks that the metadata store has given to this broker durably before one of them is
used, so that no id is ever given out twice, not even after a crash; what is left of a block then is
lost. What clients are told is such an id, or what stands for it (producer_id_cipher.py).

A broker that is alone fetches its first block when it needs one and each further one when half of
the current is used up. A member of a cell has a block in use and one in reserve from its start on:
its store may be away for a while, and new producers must work meanwhile. What is left of them at a
clean stop serves the next life, should that begin without the store.

A transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, a code that every client
treats as fatal at once; the transaction APIs are not advertised, and most clients notice that
before they ask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from data_plane.broker.produce.producer_id_cipher import told_producer_id
from data_plane.broker.request.api import Deferred, HandlerTable, RequestContext
from data_plane.broker.services import Services
from data_plane.cell.changes import AllocateProducerIds, Change
from data_plane.cell.metadata import MetadataImage
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.init_producer_id_request import InitProducerIdRequest
from data_plane.wire.messages.init_producer_id_response import InitProducerIdResponse
from data_plane.wire.registry import ApiKey

MIN_VERSION = 0
MAX_VERSION = 5

# Kafka's ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE.
BLOCK_IDS = 1000
# More requests than this wait for a block only when the store is gone; the client asks again.
WAITING_MAX = 10_000
# How soon a store that did not give a block is asked again; the commit itself waits, too.
RETRY_MS = 1_000


class ProducerIds:
    """A component: hands out producer ids from the first block and keeps the next one ready."""

    def __init__(self, services: Services, kept: Sequence[tuple[int, int]] = ()) -> None:
        """`kept` are ranges [first, end) that the last life here has left."""
        self._services = services
        self._keeps_reserve = services.store.is_shared
        self._blocks = deque(kept)
        self._is_fetching = False
        self._waiting: deque[Deferred[InitProducerIdResponse]] = deque()
        self._retry_ms: int | None = None
        self._now_ms = 0

    def start(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._keeps_reserve:
            self._fetch()

    def next_deadline_ms(self) -> int | None:
        return self._retry_ms

    def tick(self, now_ms: int) -> None:
        self._now_ms = now_ms
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            self._fetch()

    def stop(self, now_ms: int) -> None:
        self._retry_ms = None
        self._keeps_reserve = False

    @property
    def unused(self) -> list[tuple[int, int]]:
        """The ranges [first, end) that are left."""
        return list(self._blocks)

    def allocate(self) -> InitProducerIdResponse | Deferred[InitProducerIdResponse]:
        """A new id, now or when the store has given a block."""
        if self._blocks:
            response = self._take()
            if self._is_block_wanted() and self._retry_ms is None:
                self._fetch()
            return response
        if len(self._waiting) >= WAITING_MAX:
            return _error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        deferred: Deferred[InitProducerIdResponse] = Deferred()
        self._waiting.append(deferred)
        self._fetch()
        return deferred

    def _take(self) -> InitProducerIdResponse:
        producer_id, end = self._blocks.popleft()
        if producer_id + 1 < end:
            self._blocks.appendleft((producer_id + 1, end))
        told = told_producer_id(producer_id, self._services.image.decoy_key)
        return InitProducerIdResponse(producer_id=told, producer_epoch=0)

    def _is_block_wanted(self) -> bool:
        if self._keeps_reserve:
            return len(self._blocks) < 2
        return sum(end - first for first, end in self._blocks) < BLOCK_IDS // 2

    def _fetch(self) -> None:
        if self._is_fetching:
            return
        self._is_fetching = True
        block: list[int] = []

        def decide(image: MetadataImage) -> Sequence[Change]:
            block[:] = [image.next_producer_id]
            return (AllocateProducerIds(image.next_producer_id, BLOCK_IDS),)

        def done(error: BaseException | None) -> None:
            self._is_fetching = False
            if error is not None:
                self._services.log.error("producer_ids_unavailable", error=repr(error))
                if self._keeps_reserve:
                    self._retry_ms = self._now_ms + RETRY_MS
                while self._waiting:
                    self._waiting.popleft().complete(_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            self._blocks.append((block[0], block[0] + BLOCK_IDS))
            while self._waiting and self._blocks:
                self._waiting.popleft().complete(self._take())
            if self._waiting or (self._keeps_reserve and self._is_block_wanted()):
                self._fetch()

        self._services.metadata.write(decide, done)


def _error(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=int(code), producer_id=-1, producer_epoch=-1)


def handle_init_producer_id(
    services: Services, context: RequestContext, request: InitProducerIdRequest, now_ms: int
) -> InitProducerIdResponse | Deferred[InitProducerIdResponse]:
    if request.transactional_id is not None:
        if request.transactional_id == "":
            return _error(ErrorCode.INVALID_REQUEST)
        return _error(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    has_id, has_epoch = request.producer_id != -1, request.producer_epoch != -1
    if has_id != has_epoch:
        return _error(ErrorCode.INVALID_REQUEST)
    # A producer that names its old id only gets a new one: its epoch means something for
    # transactional producers alone (KIP-360), and Kafka does the same.
    return services.producer_ids.allocate()


def register(table: HandlerTable) -> None:
    table.register(ApiKey.INIT_PRODUCER_ID, MIN_VERSION, MAX_VERSION, handle_init_producer_id)
