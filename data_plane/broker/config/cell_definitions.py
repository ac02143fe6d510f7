"""Broker properties: being one of several brokers with a metadata store in common."""

from __future__ import annotations

from data_plane.broker.config.definition import at_least, define

CELL_DEFINITIONS = (
    define(
        "metadata.store.url",
        "PASSWORD",
        None,
        "The Postgres database in which the brokers of a cell keep their metadata, as "
        "postgresql://user:password@host:port/database. Without it the broker is alone and keeps "
        "its metadata in its data directory; one cannot become the other. Not Apache Kafka's.",
    ),
    define(
        "metadata.store.schema",
        "STRING",
        "tidewheel_cell",
        "The schema of the cell in that database. Not Apache Kafka's.",
    ),
    define(
        "inter.broker.listener",
        "STRING",
        "127.0.0.1:0",
        "Where this broker listens for the others of its cell, as host:port; they connect to this "
        "very host, so it must be one that they can reach. Port 0 takes a free one. Clients are "
        "not served there. A host other than this machine's loopback needs inter.broker.tls.*. Not "
        "Apache Kafka's.",
    ),
    define(
        "inter.broker.tls.certificate",
        "STRING",
        None,
        "A PEM file with the certificate (and chain) that this broker shows to the others; its "
        "subjectAltName has the host of inter.broker.listener. Not Apache Kafka's.",
    ),
    define(
        "inter.broker.tls.key",
        "STRING",
        None,
        "A PEM file with the key of that certificate. Not Apache Kafka's.",
    ),
    define(
        "inter.broker.tls.ca",
        "STRING",
        None,
        "A PEM file with the authority that signs the certificates of this cell, and nothing else: "
        "who has one of them is a broker of the cell. Not Apache Kafka's.",
    ),
    define(
        "host.id",
        "STRING",
        None,
        "Brokers with the same host.id fail together: replicas of a partition are spread over "
        "different ones. Default: the advertised host. Not Apache Kafka's.",
    ),
    define(
        "broker.heartbeat.interval.ms",
        "INT",
        300,
        "How often a broker renews its session in the metadata store. The controller does so three "
        "times while the others do twice, and its lease lasts four of these. Apache Kafka has "
        "2000.",
        at_least(10),
    ),
    define(
        "broker.session.timeout.ms",
        "INT",
        1500,
        "How long a broker may be silent before its leaders move to others. At least three "
        "heartbeats. Apache Kafka has 9000.",
        at_least(100),
    ),
    define(
        "controlled.shutdown.enable",
        "BOOLEAN",
        True,
        "Hand leaders over to other brokers before stopping.",
    ),
    define(
        "controlled.shutdown.timeout.ms",
        "LONG",
        10_000,
        "How long a stopping broker waits for that. Not Apache Kafka's.",
        at_least(0),
    ),
)
