"""Everything the SDK can raise, and what to do about it.

Every error carries a `message` (what happened, naming the topic, group or address) and a `hint`
(what to do now); `str(error)` is both. Errors that came from a broker or from librdkafka carry
Kafka's own name for it in `kafka_name`.

Invariants
- Nothing of confluent-kafka leaks: callers catch the classes of this module only.
- `retriable` is True only where sending the same thing again later can succeed without anybody
  changing anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidewheel.message import Message


class TidewheelError(Exception):
    """Base of all errors of the SDK."""

    default_hint = ""
    retriable = False

    def __init__(self, message: str, *, hint: str | None = None, kafka_name: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.kafka_name = kafka_name

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class ConfigurationError(TidewheelError, ValueError):
    """A setting, address or argument cannot be used. Raised before anything is sent."""


class ClientClosed(TidewheelError):
    """The client or consumer was used before it was opened or after it was closed."""

    default_hint = "Use it inside `async with Client(...) as client:`"


class BrokerUnreachable(TidewheelError):
    """No broker answered at the given addresses within the time-out."""

    default_hint = (
        "Check that the broker runs (`tidewheel status`, with the --data that `tidewheel up` was "
        "given), that host and port are right (TIDEWHEEL_URL), and that no firewall is in between"
    )
    retriable = True


class BrokerNotFound(TidewheelError):
    """No running broker of the cell has this id."""

    default_hint = "List the brokers with `tidewheel brokers`"


class RequestTimedOut(TidewheelError):
    """A broker took a request but did not answer in time."""

    default_hint = (
        "Try again; if it lasts, look at the broker's log and load, and at its /healthz, which "
        "names a disk that is full or has failed"
    )
    retriable = True


class NotAuthenticated(TidewheelError):
    """The broker does not take the user's name and password, or asks for them."""

    default_hint = (
        "Check user and password in TIDEWHEEL_URL (tidewheel://user:password@host:port) or the "
        "profile, and that the port is one that takes them; `tidewheel users list` shows who there "
        "is, `tidewheel users rotate USER` makes a new password"
    )


class TlsFailed(TidewheelError):
    """Client and broker have not agreed on TLS: mostly, the broker's authority is not trusted."""

    default_hint = (
        "Name the authority that has signed the broker's certificate (`?ca=/path/to/ca.pem` in "
        "TIDEWHEEL_URL; `tidewheel up` prints its own), and use the host name in the certificate"
    )


class NotAuthorized(TidewheelError):
    """Who the client is may not do this."""

    default_hint = (
        "Ask an operator for a grant, for example `tidewheel acls grant USER --topic NAME "
        "--operation read`; a consumer needs read on its group, too (--group NAME)"
    )


class Unsupported(TidewheelError):
    """The broker or the client library does not know this feature or version."""

    default_hint = "Compare the versions of broker and SDK; one of them is too old for this"


class NoLeader(TidewheelError):
    """Nobody leads the partition just now: it can be neither written nor read."""

    default_hint = (
        "`tidewheel partitions --troubled` lists such partitions; `tidewheel status` and each "
        "broker's /healthz tell of brokers that are down and of disks that are full or have failed"
    )
    retriable = True


class StorageFailed(TidewheelError):
    """The disk that holds the partition is full or has failed."""

    default_hint = (
        "`tidewheel status`, the broker's /healthz and its log name the directory: make room there "
        "or replace the disk, then start the broker again"
    )
    retriable = True


class InvalidRequest(TidewheelError, ValueError):
    """The broker understood the request and refused it: a bad name, count or config value."""

    default_hint = "Correct the value the message names and try again"


class TopicNotFound(TidewheelError):
    """The topic (or the partition) does not exist."""

    default_hint = (
        "List the topics with `tidewheel topics list`, or create it: `tidewheel topics create NAME`"
    )


class TopicExists(TidewheelError):
    """A topic of this name exists already."""

    default_hint = "Use it as it is, choose another name, or delete it first"


class GroupNotFound(TidewheelError):
    """No consumer group of this name is known to the broker."""

    default_hint = "List the groups with `tidewheel groups list`"


class GroupNotEmpty(TidewheelError):
    """The group has running members, so it cannot be deleted nor its offsets be moved."""

    default_hint = "Stop the group's consumers first, or wait until their session times out"


class SendError(TidewheelError):
    """A message was not, or perhaps not, stored."""


class QueueFull(SendError):
    """The client's own send queue is full: messages come in faster than the broker takes them."""

    default_hint = (
        "Await `send` or `send_many`, which wait for room, or await `topic.wait_for_room()`"
    )
    retriable = True


class DeliveryTimedOut(SendError):
    """No acknowledgement came in time; the message may or may not be stored."""

    default_hint = (
        "A broker that is down or cut off takes no messages, nor one whose disk is full or has "
        "failed: `tidewheel status` and each broker's /healthz tell. Sending again may store the "
        "message twice"
    )
    retriable = True


class MessageTooLarge(SendError):
    """The message is larger than the client or the topic allows."""

    default_hint = (
        "Send less per message, or raise `message_bytes_max` of the client and "
        "`max.message.bytes` of the topic; records that compress extremely well are also refused "
        "where a batch unpacks to more than 128 MiB"
    )


class MessageRefused(SendError):
    """The broker refused the record: a bad `tw-` header, timestamp or missing key."""

    default_hint = "Correct the record; nothing of its batch was stored"


class TooLate(SendError):
    """What was to be cancelled is pending no more."""

    default_hint = "Its consumers have it, or will: undo it there"


class UnknownMessage(SendError):
    """What was to be cancelled is no delayed message that the broker knows."""

    default_hint = (
        "The topic was deleted and made anew, or the message's offset is another one: list what is "
        "pending with `topic.delayed.list()`"
    )


class NotEnoughReplicas(SendError):
    """acks=all needs more in-sync replicas than there are."""

    default_hint = "Wait until replicas are back in sync, or lower `min.insync.replicas`"
    retriable = True


class BatchSendFailed(SendError):
    """Some messages of a `send_many` were not stored. `sent` counts the acknowledged ones."""

    default_hint = "Correct the first error, then send the rest again"

    def __init__(
        self, message: str, *, sent: int, failed: int, first_error: TidewheelError
    ) -> None:
        super().__init__(message)
        self.sent = sent
        self.failed = failed
        self.first_error = first_error


class RetriesUnsupported(Unsupported):
    """The brokers do not run retries, or not yet."""

    default_hint = (
        "Retries are run by Tidewheel brokers that have a level of the feature tidewheel.retries. "
        "Until then leave retry= out, and call handlers again in this process: "
        "on_error=RetryInPlace(...)"
    )


class NackFailed(SendError):
    """Messages that failed could not be given back. They are in `.consumed`, and nothing of them is
    committed: they are delivered again."""

    default_hint = "Nack them again: repeating a nack changes nothing"
    refused_hint = (
        "The broker takes no such nack: the message is gone from its topic, the subscription was "
        "made anew, or the cell has no level of the feature tidewheel.retries yet. The broker's "
        "log says which"
    )

    def __init__(self, message: str, *, consumed: Sequence[Message], cause: TidewheelError) -> None:
        is_refused = isinstance(cause, MessageRefused)
        hint = self.refused_hint if is_refused else cause.hint or self.default_hint
        super().__init__(message, hint=hint, kafka_name=cause.kafka_name)
        self.consumed = tuple(consumed)
        self.retriable = cause.retriable


class SerializationFailed(SendError):
    """A serializer could not turn the key or value into bytes. Nothing was sent."""

    default_hint = "Give `bytes`, `str` or None, or set a serializer that takes this type"


class InterceptorFailed(SendError):
    """An interceptor raised. A producer's message was not sent; a consumer's is in `.consumed`."""

    default_hint = "Correct the interceptor; no message was dropped"

    def __init__(self, message: str, *, consumed: Message | None = None) -> None:
        super().__init__(message)
        self.consumed = consumed


class DeserializationFailed(TidewheelError):
    """A deserializer could not read the key or value of `.consumed` (which holds the raw bytes)."""

    default_hint = "Go on iterating to skip this message, or correct the deserializer"

    def __init__(self, message: str, *, consumed: Message) -> None:
        super().__init__(message)
        self.consumed = consumed


class ConsumerError(TidewheelError):
    """A consumer cannot go on."""


class ConsumerFenced(ConsumerError):
    """Another consumer took over this static membership id (`instance_id`)."""

    default_hint = "Give every running consumer an `instance_id` of its own"


class SubscriptionConflict(ConsumerError):
    """A subscription of this name reads another topic, or by another filter."""

    default_hint = (
        "Edit it for all who read it (`tidewheel subscriptions edit NAME --filter FILTER`, or "
        'Admin.edit_subscription), or give this group one of its own: subscription="…"'
    )


class CommitFailed(ConsumerError):
    """The offsets were not committed, usually because the partitions moved to another member."""

    default_hint = "Go on consuming: what was not committed is delivered again"
    retriable = True


class OffsetOutOfRange(ConsumerError):
    """The offset is below what the topic still keeps, or beyond its end."""

    default_hint = "Consume from the beginning or the end, or seek by time"


class HandlerFailed(ConsumerError):
    """A handler raised and the error policy says stop. The message is in `.consumed`."""

    default_hint = "Correct the handler and start again: this message is delivered first"

    def __init__(self, message: str, *, consumed: Message, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.consumed = consumed


class BrokerError(TidewheelError):
    """Any other error of the broker or of librdkafka; `kafka_name` says which."""


class KafkaFault(Protocol):
    """What this module needs of a transport's error value, in confluent-kafka's shape."""

    def name(self) -> str: ...
    def str(self) -> str: ...
    def retriable(self) -> bool: ...


_Factory = Callable[..., TidewheelError]

_NO_SUCH_PARTITION = (
    "Partitions count from 0: see how many the topic has with `tidewheel topics describe NAME`"
)

_BY_KAFKA_NAME: dict[str, _Factory] = {
    "_TRANSPORT": BrokerUnreachable,
    "_ALL_BROKERS_DOWN": BrokerUnreachable,
    "_RESOLVE": BrokerUnreachable,
    # librdkafka lets go of a broker that the others do not name any more.
    "_DESTROY_BROKER": BrokerUnreachable,
    "_TIMED_OUT": RequestTimedOut,
    "REQUEST_TIMED_OUT": RequestTimedOut,
    "_TIMED_OUT_QUEUE": RequestTimedOut,
    "_MSG_TIMED_OUT": DeliveryTimedOut,
    "KAFKA_STORAGE_ERROR": StorageFailed,
    "LEADER_NOT_AVAILABLE": NoLeader,
    "_QUEUE_FULL": QueueFull,
    "MSG_SIZE_TOO_LARGE": MessageTooLarge,
    "RECORD_LIST_TOO_LARGE": MessageTooLarge,
    "INVALID_RECORD": MessageRefused,
    "_INVALID_DIFFERENT_RECORD": MessageRefused,
    "INVALID_TIMESTAMP": MessageRefused,
    "INVALID_MSG": MessageRefused,
    "NOT_ENOUGH_REPLICAS": NotEnoughReplicas,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": NotEnoughReplicas,
    "UNKNOWN_TOPIC_OR_PART": TopicNotFound,
    "UNKNOWN_TOPIC_ID": TopicNotFound,
    "_UNKNOWN_TOPIC": TopicNotFound,
    "_UNKNOWN_PARTITION": partial(TopicNotFound, hint=_NO_SUCH_PARTITION),
    "TOPIC_ALREADY_EXISTS": TopicExists,
    "TOPIC_EXCEPTION": InvalidRequest,
    "INVALID_PARTITIONS": InvalidRequest,
    "INVALID_REPLICATION_FACTOR": InvalidRequest,
    "INVALID_REPLICA_ASSIGNMENT": InvalidRequest,
    "INVALID_CONFIG": InvalidRequest,
    "INVALID_REQUEST": InvalidRequest,
    "INVALID_GROUP_ID": InvalidRequest,
    "INVALID_SESSION_TIMEOUT": InvalidRequest,
    "POLICY_VIOLATION": InvalidRequest,
    "TOPIC_DELETION_DISABLED": InvalidRequest,
    "_INVALID_ARG": InvalidRequest,
    "GROUP_ID_NOT_FOUND": GroupNotFound,
    "NON_EMPTY_GROUP": GroupNotEmpty,
    "GROUP_SUBSCRIBED_TO_TOPIC": GroupNotEmpty,
    "TOPIC_AUTHORIZATION_FAILED": NotAuthorized,
    "GROUP_AUTHORIZATION_FAILED": NotAuthorized,
    "CLUSTER_AUTHORIZATION_FAILED": NotAuthorized,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": NotAuthorized,
    "SASL_AUTHENTICATION_FAILED": NotAuthenticated,
    "_AUTHENTICATION": NotAuthenticated,
    "_SSL": TlsFailed,
    "UNSUPPORTED_VERSION": Unsupported,
    "_UNSUPPORTED_FEATURE": Unsupported,
    "UNSUPPORTED_FOR_MESSAGE_FORMAT": Unsupported,
    "FENCED_INSTANCE_ID": ConsumerFenced,
    "_FENCED": ConsumerFenced,
    "ILLEGAL_GENERATION": CommitFailed,
    "UNKNOWN_MEMBER_ID": CommitFailed,
    "REBALANCE_IN_PROGRESS": CommitFailed,
    "_ASSIGNMENT_LOST": CommitFailed,
    "OFFSET_OUT_OF_RANGE": OffsetOutOfRange,
    "_AUTO_OFFSET_RESET": OffsetOutOfRange,
}

_TRANSIENT = frozenset({"NOT_LEADER_FOR_PARTITION", "NOT_COORDINATOR", "NETWORK_EXCEPTION"})
"""Errors that pass by themselves although librdkafka does not call them retriable here."""


_LIBRDKAFKA_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"^(?:\S+:\d+/\S+: )+"), ""),
    (re.compile(r"\b(?:Local|Broker): "), ""),
    (re.compile(r"Failed to get metadata: |Unable to produce message: "), ""),
    (re.compile(r"Invalid New(?:Topic|Partitions)\([^)]*\): (?:num_)?"), ""),
    (re.compile(r"signed integer is (?:greater|less) than m\w+"), "a number is out of range"),
    (re.compile(r"\d+/\d+ brokers are down"), "nothing that speaks the Kafka protocol"),
    (re.compile(r"Failed while waiting for (?:response from broker|controller): "), ""),
    (re.compile(r"Connect to ipv[46]#(\S+) failed: "), r"\1: "),
    (re.compile(r"Failed to resolve '([^']+)': "), r"\1: "),
    (re.compile(r" \(after \d+ms in state \w+(?:, [^)]*)?\)"), ""),
    (
        re.compile(r".*receive\.message\.max\.bytes.*"),
        "what answers there does not speak the Kafka protocol",
    ),
)


def plain(text: str) -> str:
    """What librdkafka says, without what only its developers need."""
    for pattern, instead in _LIBRDKAFKA_WORDS:
        text = pattern.sub(instead, text)
    return text


def from_kafka(fault: KafkaFault, what: str) -> TidewheelError:
    """Make the typed error for `fault`; `what` says what was tried, e.g. `sending to "orders"`."""
    name = fault.name()
    make = _BY_KAFKA_NAME.get(name, BrokerError)
    # What begins with an underscore is a name of librdkafka's own, which says nothing to others.
    known_as = "" if name.startswith("_") else f" ({name})"
    error = make(f"{what} failed: {plain(fault.str())}{known_as}", kafka_name=name)
    if make is BrokerError:
        error.retriable = fault.retriable() or name in _TRANSIENT
        error.hint = "Try again" if error.retriable else "Look at the broker's log for the reason"
    return error
