"""Apache Kafka's broker properties that stop the start.

A property is refused when somebody who sets it would be misled about safety (TLS, SASL,
authorizers) or about what runs where (quorums, tiered storage, plug-in classes).
"""

from __future__ import annotations

from types import MappingProxyType

_NO_TLS = "this broker does not have this part of TLS; ignoring it could let somebody in"
_NO_INTER_BROKER = "brokers talk to each other at inter.broker.listener, with inter.broker.tls.*"
_NOT_OF_A_LISTENER = "a single listener can have ssl.* and sasl.enabled.mechanisms of its own only"
_NO_SASL = (
    "this broker does not serve this part of authentication; ignoring it could let somebody in"
)
_NO_CLASSES = "this broker does not load classes"
_NO_QUORUM = "this broker keeps metadata in a store of its own, there is no quorum to join"
_NO_TIERED = "this broker does not move segments to other storage yet"

# Names (exact, or ending in '.' for all others that begin so) → why they are refused.
REFUSED_PROPERTIES = MappingProxyType(
    {
        "ssl.": _NO_TLS,
        "sasl.": _NO_SASL,
        "listener.name.": _NOT_OF_A_LISTENER,
        "security.inter.broker.protocol": _NO_INTER_BROKER,
        "authorizer.class.name": "this broker has one authorizer, and it is always there",
        "delegation.token.": _NO_SASL,
        "principal.builder.class": _NO_CLASSES,
        "alter.config.policy.class.name": _NO_CLASSES,
        "create.topic.policy.class.name": _NO_CLASSES,
        "client.quota.callback.class": _NO_CLASSES,
        "metric.reporters": _NO_CLASSES,
        "kafka.metrics.reporters": _NO_CLASSES,
        "config.providers": _NO_CLASSES,
        "controller.quorum.": _NO_QUORUM,
        "controller.listener.names": _NO_QUORUM,
        "process.roles": _NO_QUORUM,
        "metadata.log.dir": _NO_QUORUM,
        "zookeeper.": _NO_QUORUM,
        "inter.broker.listener.name": "brokers talk to each other at inter.broker.listener",
        "remote.": _NO_TIERED,
        "group.share.": "this broker does not serve share groups yet",
        "share.": "this broker does not serve share groups yet",
        "group.streams.": "this broker does not serve streams groups yet",
    }
)
