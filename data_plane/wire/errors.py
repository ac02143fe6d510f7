"""Kafka's error codes, and the faults that this room raises.

`ErrorCode` holds every code of Kafka 4.3 under Kafka's name. `retriable` says whether Kafka's
clients retry by themselves; `message` is a sentence to show when nothing more precise is known.

The exceptions are split by whose fault it is: the peer's bytes (MalformedFrame, which closes the
connection), the peer's choice of version (UnsupportedVersion), the records inside a well-formed
request (InvalidRecords, which is answered with its error code), or our own message
(InvalidMessage, a bug on this side). Their names are what contracts between rooms call them; an
Error suffix would only repeat what every `except` says.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The error codes of the Kafka protocol (as of Apache Kafka 4.3)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether a client may repeat the request unchanged."""
        return self in _RETRIABLE

    @property
    def message(self) -> str:
        """A short sentence for people."""
        return _MESSAGES[self]


class WireError(Exception):
    """Base of this room's faults."""


class MalformedFrame(WireError):
    """The peer's bytes are not what the protocol says. The connection is closed, nothing else
    happens; the message says what was wrong and at which byte."""


class UnsupportedVersion(WireError):
    """A message has no such version, or the version cannot carry a value that was set."""


class InvalidMessage(WireError):
    """A message built on this side cannot be written: None in a field that is not nullable, or a
    string too long for the wire."""


class InvalidRecords(WireError):
    """Record data inside a well-formed request is refused with `error_code`."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

_MESSAGES: dict[int, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server met an unexpected error.",
    ErrorCode.NONE: "No error.",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is outside the range that the server holds.",
    ErrorCode.CORRUPT_MESSAGE: (
        "The record data is corrupt: bad CRC or size, or a null key in a compacted topic."
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch size is invalid.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The topic-partition has no leader at the moment.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "This broker is not the leader, or not a replica, of the topic-partition."
    ),
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "The replica is not available for this topic-partition.",
    ErrorCode.MESSAGE_TOO_LARGE: "The message is larger than the server accepts.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "The controller moved to another broker.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The offset's metadata is too large.",
    ErrorCode.NETWORK_EXCEPTION: "The server disconnected before it answered.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This broker is not the coordinator.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is invalid for this operation.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The record batch is larger than a segment may be.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than required; nothing was written.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "The records were written, but to fewer in-sync replicas than required."
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: "The value of acks is invalid.",
    ErrorCode.ILLEGAL_GENERATION: "The group generation is not the current one.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "The member's protocols do not fit those of the group, or it named none."
    ),
    ErrorCode.INVALID_GROUP_ID: "The group id is invalid.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator does not know this member.",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "The session timeout is outside the range that the broker allows."
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing; the member must rejoin.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The offset data to commit has an invalid size.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.INVALID_TIMESTAMP: "The record's timestamp is out of the accepted range.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The SASL mechanism is not supported.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request does not fit the SASL state.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of this API is not supported.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic with this name already exists.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is below 1.",
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "The replication factor is below 1 or above the number of brokers."
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The replica assignment is invalid.",
    ErrorCode.INVALID_CONFIG: "The configuration is invalid.",
    ErrorCode.NOT_CONTROLLER: "This broker is not the controller.",
    ErrorCode.INVALID_REQUEST: "The request is malformed or makes no sense to this broker.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The message format does not support this request.",
    ErrorCode.POLICY_VIOLATION: "The request violates the configured policy.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The sequence number is out of order.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The sequence number is a duplicate.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "The producer's epoch is old.",
    ErrorCode.INVALID_TXN_STATE: "The transaction is not in a state that allows this.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "The producer id is not the one assigned to the transactional id."
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is above the broker's maximum.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "Another operation on the same transaction is under way.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        "The transaction coordinator that sent the marker has been replaced."
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional id authorization failed.",
    ErrorCode.SECURITY_DISABLED: "Security features are disabled.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "The broker did not attempt this operation.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The broker's disk failed.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The log directory is not one of the broker's.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SASL authentication failed.",
    ErrorCode.UNKNOWN_PRODUCER_ID: (
        "The broker has no state of this producer id, for instance because its records expired."
    ),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "A partition reassignment is in progress.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are disabled.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "The delegation token is not known.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "The principal is neither owner nor renewer of the token."
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Delegation token requests are not allowed on this connection."
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation token authorization failed.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "The principal type is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "The fetch session is not known.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The fetch session epoch is invalid.",
    ErrorCode.LISTENER_NOT_FOUND: (
        "The leader has no listener of the name that the request came in by."
    ),
    ErrorCode.TOPIC_DELETION_DISABLED: "Topic deletion is disabled.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch in the request is newer than the broker's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
        "The client does not support the partition's compression type."
    ),
    ErrorCode.STALE_BROKER_EPOCH: "The broker epoch has changed.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The new leader's high watermark has not caught up yet.",
    ErrorCode.MEMBER_ID_REQUIRED: "The member must join again with the member id given to it.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group has reached its maximum size.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member has taken this group.instance.id.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No eligible leader is available.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition needs no leader election.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "No partition reassignment is in progress.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "The group is subscribed to the topic, so its offsets cannot be deleted."
    ),
    ErrorCode.INVALID_RECORD: "The record failed validation.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "Some offsets are not stable yet.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The throttling quota has been exceeded.",
    ErrorCode.PRODUCER_FENCED: "A newer producer uses the same transactional id.",
    ErrorCode.RESOURCE_NOT_FOUND: "The resource does not exist.",
    ErrorCode.DUPLICATE_RESOURCE: "The request names the same resource twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential is not acceptable.",
    ErrorCode.INCONSISTENT_VOTER_SET: "Sender or receiver is not one of the expected voters.",
    ErrorCode.INVALID_UPDATE_VERSION: "The update version is invalid.",
    ErrorCode.FEATURE_UPDATE_FAILED: "The features could not be updated.",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The forwarded principal could not be read.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "The snapshot was not found.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position lies outside the snapshot.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This server does not host this topic id.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "The broker id is already in use.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "The broker id is not registered.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The topic id of the log differs from that in the request.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The cluster id in the request is not this cluster's.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "The transactional id was not found.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session mixes topic ids and names.",
    ErrorCode.INELIGIBLE_REPLICA: "The new ISR contains a replica that is not eligible.",
    ErrorCode.NEW_LEADER_ELECTED: "The partition changed, but so did its leader.",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset has moved to tiered storage.",
    ErrorCode.FENCED_MEMBER_EPOCH: (
        "The member epoch is fenced; the member must give up its partitions and rejoin."
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member of the group still uses the instance id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The group does not support the assignor or its version.",
    ErrorCode.STALE_MEMBER_EPOCH: (
        "The member epoch is stale; retry with the one from the next heartbeat."
    ),
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request was sent to the wrong type of endpoint.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "The endpoint type is not supported.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "The controller id is not known.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The telemetry subscription id is invalid or outdated.",
    ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry is larger than the broker accepts.",
    ErrorCode.INVALID_REGISTRATION: "The broker registration is invalid.",
    ErrorCode.TRANSACTION_ABORTABLE: (
        "The transaction failed; it can be aborted and the transactional id used again."
    ),
    ErrorCode.INVALID_RECORD_STATE: "The record is not in a state that can be acknowledged.",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "The share session is not known.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The share session epoch is invalid.",
    ErrorCode.FENCED_STATE_EPOCH: "The share group's state epoch does not match.",
    ErrorCode.INVALID_VOTER_KEY: "The voter key does not match the replica's.",
    ErrorCode.DUPLICATE_VOTER: "The voter is already in the set.",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not in the set.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The regular expression is invalid.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client's metadata is stale; it must bootstrap again.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The topology is invalid.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The topology epoch is invalid.",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "The topology epoch is outdated.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "The limit of share sessions has been reached.",
}
