"""Broker properties: TLS of listeners for clients. Names are Apache Kafka's; the format is PEM."""

from __future__ import annotations

from data_plane.broker.config.definition import define, list_of, one_of

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")

TLS_DEFINITIONS = (
    define(
        "ssl.keystore.type",
        "STRING",
        "PEM",
        "The format of ssl.keystore.*. Apache Kafka has JKS and PKCS12, too, and JKS unless it "
        "says otherwise.",
        one_of("PEM"),
    ),
    define(
        "ssl.keystore.location",
        "STRING",
        None,
        "A PEM file with the private key and the certificate (with its chain) that clients are "
        "shown. Read again when it has changed: what cannot be used is logged, and the old one "
        "remains in force. As listener.name.NAME.ssl.keystore.location for one listener, NAME in "
        "small letters; so with all of ssl.* and with sasl.enabled.mechanisms.",
    ),
    define(
        "ssl.keystore.certificate.chain",
        "STRING",
        None,
        "The certificate and its chain as PEM, instead of a file.",
    ),
    define(
        "ssl.keystore.key",
        "PASSWORD",
        None,
        "The private key as PEM, with ssl.keystore.certificate.chain.",
    ),
    define(
        "ssl.key.password",
        "PASSWORD",
        None,
        "What the private key is encrypted with, if it is.",
    ),
    define(
        "ssl.truststore.type",
        "STRING",
        "PEM",
        "The format of ssl.truststore.*. Apache Kafka has JKS and PKCS12, too.",
        one_of("PEM"),
    ),
    define(
        "ssl.truststore.location",
        "STRING",
        None,
        "A PEM file with the authorities that sign clients' certificates; not those of brokers or "
        "of CellAdmin. Read again when it has changed.",
    ),
    define(
        "ssl.truststore.certificates",
        "STRING",
        None,
        "The authorities as PEM, instead of a file.",
    ),
    define(
        "ssl.client.auth",
        "STRING",
        "none",
        "Whether clients show a certificate: `required`, `requested` (those without one are "
        "User:ANONYMOUS of the tenant `default`), or `none`.",
        one_of("required", "requested", "none"),
    ),
    define(
        "ssl.enabled.protocols",
        "LIST",
        "TLSv1.2,TLSv1.3",
        "The versions of TLS that are spoken.",
        list_of(*TLS_VERSIONS),
    ),
)
# What may be given for one listener only.
LISTENER_PROPERTIES = frozenset(
    {*(definition.name for definition in TLS_DEFINITIONS), "sasl.enabled.mechanisms"}
)
