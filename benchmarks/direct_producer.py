"""librdkafka's producer without Python between its messages.

confluent-kafka's `Producer.produce` costs more for a message than the broker does, and copies it.
Its package brings librdkafka itself, whose `rd_kafka_produce_batch` takes a thousand messages in
one call and, asked for no copy, only their address: what a C program does that sends as fast as it
can. Same library, same settings, so the load is the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

from confluent_kafka import KafkaError, cimpl

BATCH_MESSAGES = 1_000
# librdkafka's RD_KAFKA_PARTITION_UA: its partitioner chooses.
PARTITION_UA = -1
_RD_KAFKA_PRODUCER = 0
# Neither RD_KAFKA_MSG_F_FREE nor RD_KAFKA_MSG_F_COPY: the payload stays ours, and stays.
_NO_COPY = 0
_QUEUE_FULL_WAIT_MS = 10
_ERROR_TEXT_BYTES = 512


class _Message(ctypes.Structure):
    """rd_kafka_message_t of rdkafka.h."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_char_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("_private", ctypes.c_void_p),
    )


class _Report(Protocol):
    """A pointer to a message, as ctypes gives it."""

    @property
    def contents(self) -> _Message: ...


_ON_DELIVERY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Message), ctypes.c_void_p)


def _load_librdkafka() -> ctypes.CDLL:
    """The librdkafka that confluent-kafka's extension module is linked to."""
    library = ctypes.CDLL(cimpl.__file__)
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, parameters in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_conf_set", ctypes.c_int, [pointer, text, text, text, ctypes.c_size_t]),
        ("rd_kafka_conf_set_dr_msg_cb", None, [pointer, _ON_DELIVERY]),
        ("rd_kafka_new", pointer, [ctypes.c_int, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_topic_new", pointer, [pointer, text, pointer]),
        (
            "rd_kafka_produce_batch",
            ctypes.c_int,
            [pointer, ctypes.c_int32, ctypes.c_int, pointer, ctypes.c_int],
        ),
        ("rd_kafka_poll", ctypes.c_int, [pointer, ctypes.c_int]),
        ("rd_kafka_flush", ctypes.c_int, [pointer, ctypes.c_int]),
        ("rd_kafka_outq_len", ctypes.c_int, [pointer]),
        ("rd_kafka_topic_destroy", None, [pointer]),
        ("rd_kafka_destroy", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, parameters
    return library


class DirectProducer:
    """Sends one value to one topic, again and again. For one thread.

    `settings` are librdkafka's; one that it does not know is a ValueError. `failed` counts the
    messages that were reported as not delivered, `first_failure` says why the first was not."""

    def __init__(
        self, settings: Mapping[str, str | int | float | bool], topic: str, value: bytes
    ) -> None:
        self.failed = 0
        self.first_failure = ""
        self._value = value
        self._library = _load_librdkafka()
        # Kept, since librdkafka only has its address.
        self._on_delivery = _ON_DELIVERY(self._count_failure)
        text = ctypes.create_string_buffer(_ERROR_TEXT_BYTES)
        configuration = self._library.rd_kafka_conf_new()
        # Reports cost the client more than the broker spends on a message.
        for name, setting in {**settings, "delivery.report.only.error": "true"}.items():
            if self._library.rd_kafka_conf_set(
                configuration, name.encode(), str(setting).encode(), text, len(text)
            ):
                raise ValueError(text.value.decode())
        self._library.rd_kafka_conf_set_dr_msg_cb(configuration, self._on_delivery)
        self._producer = self._library.rd_kafka_new(
            _RD_KAFKA_PRODUCER, configuration, text, len(text)
        )
        if not self._producer:
            raise ValueError(text.value.decode())
        self._topic = self._library.rd_kafka_topic_new(self._producer, topic.encode(), None)
        self._batch = (_Message * BATCH_MESSAGES)()
        for message in self._batch:
            message.payload, message.len = self._value, len(self._value)

    def __enter__(self) -> DirectProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._library.rd_kafka_topic_destroy(self._topic)
        self._library.rd_kafka_destroy(self._producer)

    def _count_failure(self, _producer: int, message: _Report, _opaque: int) -> None:
        self.failed += 1
        if self.failed == 1:
            self.first_failure = KafkaError(message.contents.err).str()

    def send(self, count: int, partition: int = PARTITION_UA) -> None:
        """Queue `count` messages, waiting where the queue is full.

        Raises RuntimeError when librdkafka refuses one for any other reason."""
        while count > 0:
            wanted = min(count, BATCH_MESSAGES)
            taken = self._library.rd_kafka_produce_batch(
                self._topic, partition, _NO_COPY, self._batch, wanted
            )
            count -= taken
            wait_ms = 0
            if taken < wanted:
                self._check_refusals(wanted)
                wait_ms = _QUEUE_FULL_WAIT_MS
            self._library.rd_kafka_poll(self._producer, wait_ms)

    def _check_refusals(self, wanted: int) -> None:
        """See that a full queue was all that kept messages out."""
        for message in self._batch[:wanted]:
            if message.err not in (KafkaError.NO_ERROR, KafkaError._QUEUE_FULL):
                raise RuntimeError(KafkaError(message.err).str())

    def flush(self, seconds_max: float) -> int:
        """Wait until all is acknowledged; how many messages are not after `seconds_max`."""
        self._library.rd_kafka_flush(self._producer, int(seconds_max * 1000))
        return int(self._library.rd_kafka_outq_len(self._producer))
