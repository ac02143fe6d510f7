"""The properties of Apache Kafka's subscriptions to clients' metrics (KIP-714).

They can be read, for any name, as those of a subscription that nobody has made: there are none.
"""

from __future__ import annotations

from data_plane.broker.config.definition import at_least, define

CLIENT_METRICS_DEFINITIONS = (
    define("interval.ms", "INT", 300_000, "How often clients push their metrics.", at_least(100)),
    define("match", "LIST", "", "Which clients are meant."),
    define("metrics", "LIST", "", "Which metrics are wanted; none: nothing is."),
)
