"""Broker properties: the service for a control plane."""

from __future__ import annotations

from data_plane.broker.config.definition import define

CELL_ADMIN_DEFINITIONS = (
    define(
        "cell.admin.listener",
        "STRING",
        None,
        "Where CellAdmin, the gRPC service for a control plane, is served, as host:port; port 0 "
        "takes a free one. Needs cell.admin.tls.*. Not served when it is not given. Not Apache "
        "Kafka's.",
    ),
    define(
        "cell.admin.tls.certificate",
        "STRING",
        None,
        "A PEM file with the certificate (and chain) that CellAdmin shows. This and the other two "
        "files are read again when they have changed. Not Apache Kafka's.",
    ),
    define(
        "cell.admin.tls.key",
        "STRING",
        None,
        "A PEM file with the key of that certificate. Not Apache Kafka's.",
    ),
    define(
        "cell.admin.tls.ca",
        "STRING",
        None,
        "A PEM file with the authority that signs the certificates of CellAdmin's callers, and "
        "nothing else: who has one of them may change everything in the cell. Not Apache Kafka's.",
    ),
)
