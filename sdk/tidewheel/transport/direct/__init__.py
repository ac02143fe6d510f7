"""Requests that librdkafka has no call for, or whose answers it does not pass on whole.

    codec       what goes over the wire, as bytes
    connection  one connection to one broker: TLS, login, requests and answers in their order
    brokers     to whoever leads a partition, again when somebody else does

Everything else goes through librdkafka (ADR 0048).
"""
