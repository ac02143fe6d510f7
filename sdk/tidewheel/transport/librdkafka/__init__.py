"""The transport over librdkafka (confluent-kafka)."""

from tidewheel.transport.librdkafka.transport import LibrdkafkaTransport

__all__ = ["LibrdkafkaTransport"]
