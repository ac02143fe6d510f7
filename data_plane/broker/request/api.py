"""How a request reaches its handler and how the answer finds its way back.

A handler is a plain function of (services, context, request, now_ms). It returns the response
message, or a `Deferred` that somebody completes later: a long poll, a produce that waits for its
acknowledgements, a group member that waits for the others. A message of very many items comes in
such a `Deferred`, as a `LongAnswer`. Nothing here knows sockets, threads or clocks; the server room
turns frames into calls and completed answers into bytes.

Invariants
- Every request is answered exactly once, or its connection is closed. `Deferred.complete` refuses
  to be called twice; a handler that raises is answered by the dispatcher.
- Answers of one connection leave in the order of its requests, whatever the order of completion;
  the server keeps the slots, handlers need not care.
- What follows an exclusive request on its connection (request_gate.py) waits until that is done.
- A handler never blocks: slow file work goes to `Executor.submit`, whose `on_done` runs back on
  the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from data_plane.broker.request.authorizer import CLUSTER_NAME, EVERYTHING
from data_plane.broker.request.budget import Share
from data_plane.broker.request.namespaces import DEFAULT_NAMESPACE, RequestNames, Topics
from data_plane.broker.request.principal import ANONYMOUS, Principal
from data_plane.broker.request.request_gate import RequestGate
from data_plane.cell.acls import AclResourceType
from data_plane.cell.authors import KAFKA_SOURCE, Author
from data_plane.wire.registry import API_BY_KEY, ApiKey, ApiSpec

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class KeptRequest:
    """A request's bytes beyond the return of its handler. It is exclusive (request_gate.py) until
    `release`, which is called once, whether or not the connection is still there: so the requests
    of a connection take effect in their order.

    What was at `position` of the handler's buffer is at `position - shift` of `buf`."""

    __slots__ = ("_on_release", "buf", "shift")

    def __init__(
        self, buf: bytearray | memoryview, shift: int, on_release: Callable[[], None] | None = None
    ) -> None:
        self.buf = buf
        self.shift = shift
        self._on_release = on_release

    def release(self) -> None:
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()


def keep_copy(buf: bytearray | memoryview, position: int, end: int) -> KeptRequest:
    """For a connection that has one request at a time anyway."""
    return KeptRequest(bytearray(memoryview(buf)[position:end]), position)


_NOTHING: Final = bytearray()


@dataclass(slots=True)
class ConnectionInfo:
    """What handlers may know of a connection. Lives as long as the connection."""

    connection_id: int
    peer: str
    listener: str
    host: str
    port: int
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    principal: Principal = ANONYMOUS
    # Which of its requests may be handled.
    gate: RequestGate = field(default_factory=RequestGate)
    # Called once when it is closed, in this order; who no longer wants that takes itself out.
    on_close: dict[Callable[[], None], None] = field(default_factory=dict)
    # Closes the connection; the reason goes to the log. Set by the server.
    close: Callable[[str], None] = lambda reason: None
    # Lets the answers of requests that were handled leave, this one's included, and then closes the
    # connection; nothing behind them is handled. Called before the answer is given. Set by the
    # server.
    fail: Callable[[str], None] = lambda reason: None
    # Nothing further is read or handled for so many milliseconds. Set by the server.
    mute: Callable[[int], None] = lambda duration_ms: None
    # Has what it takes counted with another namespace. Set by the server.
    move: Callable[[str], None] = lambda namespace: None
    # It counts no longer as one that is not authenticated. Set by the server.
    admitted: Callable[[], None] = lambda: None
    # What a handler calls that needs `buf[position:end]`, the request or a part of it, for longer.
    # Raises CloseConnection when there is no memory for it. Set by the server.
    keep: Callable[[bytearray | memoryview, int, int], KeptRequest] = keep_copy
    # Its namespace's share of what clients leave unread. Set by the server, which keeps the count.
    unsent: Share | None = None
    # What its last Fetch without a session asked for (fetch_sessions.FetchSet).
    fetch_set: Any = None
    # Tenant listeners refuse what belongs between brokers.
    is_inter_broker: bool = False
    # How its listener lets clients authenticate; none where they do not.
    sasl_mechanisms: tuple[str, ...] = ()
    # Its authentication in progress, or the last one (SaslSession).
    sasl: Any = None
    # What takes the next frame of a stranger, which has no header then; None when it has one.
    take_token: Callable[[bytes, int], Any] | None = None
    # For how long its client has to wait for what it has had made and deleted, until it is told.
    mutation_wait_ms: int = 0
    # Whether it is known to be one of its tenant's: a newcomer waits for what the tenant owes
    # (throttling.py).
    waits_with_tenant: bool = False
    # Whose topics, groups and limits are meant.
    namespace: str = DEFAULT_NAMESPACE

    def hold(self) -> KeptRequest:
        """Have it handle nothing further until `release`, for a request that is decoded."""
        return self.keep(_NOTHING, 0, 0)

    @property
    def closed(self) -> bool:
        return self.gate.is_closed

    def authenticate(self, principal: Principal, namespace: str = DEFAULT_NAMESPACE) -> None:
        """It is known who speaks, and for whom. Called before the answer that says so is given. A
        namespace that may have no further connection has this one closed."""
        self.principal = principal
        if namespace != self.namespace or not self.gate.is_authenticated:
            self.namespace = namespace
            self.move(namespace)
        self.gate.authenticate()
        self.admitted()


class CloseConnection(Exception):
    """Raised by a handler that can only be answered by closing the connection, as Kafka does."""


class RequestContext(NamedTuple):
    """One request's envelope: who asks, in which version, over which connection, and what the names
    in it stand for (namespaces.py)."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    connection: ConnectionInfo
    names: RequestNames
    # Whether it was asked before it was known who asks: it counts for no tenant.
    is_stranger: bool = False

    @property
    def topics(self) -> Topics:
        return self.names.topics

    @property
    def cell_topics(self) -> Topics:
        """What requests about replicas and disks are about: an operator's are everybody's."""
        is_operator = self.names.rights.is_operator(self.connection.principal)
        return self.names.cell_topics if is_operator else self.names.topics

    @property
    def may_see_cell(self) -> bool:
        """Whether he who asks is told of brokers, disks and replicas."""
        connection = self.connection
        return connection.is_inter_broker or self.names.rights.may_see_cell(connection.principal)

    @property
    def tenant(self) -> str:
        """Whose names are meant."""
        return self.names.tenant

    @property
    def tenant_id(self) -> str:
        """What no tenant of the same name has had before: coordinators keep things by it."""
        return self.names.tenant_id

    def may(self, operation: int, resource_type: int, name: str) -> bool:
        """Whether who asks may do this to the resource that he calls so (authorizer.py). What is
        asked for each request looks at `names.rights.is_open` first. Other brokers may do all."""
        rights, connection = self.names.rights, self.connection
        if rights.is_open or connection.is_inter_broker:
            return True
        return rights.may(connection.principal, connection.host, operation, resource_type, name)

    def operations_allowed(self, resource_type: int, name: str) -> int:
        """All that he may do to it, as bits."""
        rights, connection = self.names.rights, self.connection
        if rights.is_open or connection.is_inter_broker:
            return EVERYTHING
        return rights.operations(connection.principal, connection.host, resource_type, name)

    def may_to_topic(self, operation: int, name: str) -> bool:
        return self.may(operation, AclResourceType.TOPIC, name)

    def may_to_group(self, operation: int, group_id: str) -> bool:
        return self.may(operation, AclResourceType.GROUP, group_id)

    def may_to_cluster(self, operation: int) -> bool:
        return self.may(operation, AclResourceType.CLUSTER, CLUSTER_NAME)

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def namespace(self) -> str:
        return self.connection.namespace

    @property
    def author(self) -> Author:
        """Whose change of the metadata it is."""
        return Author(KAFKA_SOURCE, self.tenant, str(self.principal))

    @property
    def listener(self) -> str:
        """The name of the address that it came through."""
        return self.connection.listener

    @property
    def client_host(self) -> str:
        return self.connection.host

    @property
    def client_software(self) -> tuple[str, str]:
        """Name and version, as the client says (KIP-511)."""
        connection = self.connection
        return connection.client_software_name, connection.client_software_version


class Deferred(Generic[T]):
    """An answer that comes later. The dispatcher sets `on_complete`; the handler's side calls
    `complete` once. Completing for a connection that has gone away is harmless.

    `is_exclusive`: what follows on the connection is not handled before (request_gate.py)."""

    __slots__ = ("_on_complete", "_result", "done", "is_exclusive")

    def __init__(self, *, is_exclusive: bool = False) -> None:
        self.done = False
        self.is_exclusive = is_exclusive
        self._result: T | None = None
        self._on_complete: Callable[[T], None] | None = None

    def complete(self, result: T) -> None:
        assert not self.done, "a request is answered exactly once"
        self.done = True
        if self._on_complete is None:
            self._result = result
        else:
            self._on_complete(result)

    def when_complete(self, on_complete: Callable[[T], None]) -> None:
        assert self._on_complete is None, "one listener per deferred answer"
        self._on_complete = on_complete
        if self.done:
            assert self._result is not None
            on_complete(self._result)


class LongAnswer:
    """A response of very many items, in place of the message: `make` puts it into its form, and
    it is encoded, in a worker thread. So `make` changes nothing that anybody else could look at.

    `held` is the connection, which handles nothing further until the answer is ready: so it has
    one such answer in the making."""

    __slots__ = ("held", "make")

    def __init__(self, make: Callable[[], Any], held: KeptRequest) -> None:
        self.make = make
        self.held = held


class Executor(Protocol):
    """Runs slow file work off the loop. In the server a thread pool, in simulation a queue."""

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work` elsewhere, then call `on_done(result, error)` on the loop."""


Handler = Callable[[Any, RequestContext, Any, int], Any]

# A raw handler reads the request's body from `buf[position:end]` itself and returns the buffers of
# the whole response frame, a Deferred of them, or None when the request has no answer:
# (services, context, buf, position, end, now_ms).
RawHandler = Callable[[Any, RequestContext, bytearray | memoryview, int, int, int], Any]


class Slices(NamedTuple):
    """How a request with very many items is handled a slice at a time (large_requests.py). Its
    handler keeps nothing of the request's bytes, and its responses are nobody else's.

    - `cut` makes small requests of one, in a thread.
    - `merge` adds to a response the one to the next small request.
    """

    cut: Callable[[Any], list[Any]]
    merge: Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """One supported API: the versions that really work and the function that answers it."""

    spec: ApiSpec
    min_version: int
    max_version: int
    # What ApiVersions says. Lower than `min_version` where clients take a higher one for a sign
    # that the broker lacks something else.
    advertised_min_version: int
    handler: Handler | None
    raw_handler: RawHandler | None = None
    # Whether it is answered before it is known who asks.
    is_for_strangers: bool = False
    slices: Slices | None = None

    @property
    def api_key(self) -> ApiKey:
        return self.spec.key


# Looks at a request before its handler does, where not everybody may do everything (guards.py).
Guard = Callable[[RequestContext, Any], Any]


class HandlerTable:
    """All APIs that this broker answers; what ApiVersions advertises is read from here."""

    def __init__(self) -> None:
        # What the dispatcher looks up for each request.
        self.by_key: dict[int, HandlerEntry] = {}
        # What has none is closed to who may not do everything.
        self.guards: dict[int, Guard] = {}

    def register(
        self,
        api_key: ApiKey,
        min_version: int,
        max_version: int,
        handler: Handler,
        *,
        is_for_strangers: bool = False,
        slices: Slices | None = None,
    ) -> None:
        assert api_key not in self.by_key, f"{api_key.name} is registered twice"
        assert 0 <= min_version <= max_version
        self.by_key[int(api_key)] = HandlerEntry(
            API_BY_KEY[api_key],
            min_version,
            max_version,
            min_version,
            handler,
            is_for_strangers=is_for_strangers,
            slices=slices,
        )

    def register_raw(
        self,
        api_key: ApiKey,
        min_version: int,
        max_version: int,
        raw_handler: RawHandler,
        *,
        advertised_min_version: int | None = None,
    ) -> None:
        """For the hot APIs, whose bytes are not worth a message object."""
        assert api_key not in self.by_key, f"{api_key.name} is registered twice"
        advertised = min_version if advertised_min_version is None else advertised_min_version
        assert 0 <= advertised <= min_version <= max_version
        self.by_key[int(api_key)] = HandlerEntry(
            API_BY_KEY[api_key], min_version, max_version, advertised, None, raw_handler
        )

    def get(self, api_key: int) -> HandlerEntry | None:
        return self.by_key.get(api_key)

    def entries(self) -> list[HandlerEntry]:
        """All entries, by API key."""
        return [self.by_key[key] for key in sorted(self.by_key)]
