"""Tidewheel beside Apache Kafka, with TLS, SCRAM, ACLs and quotas: a table of docs/benchmarks.md.

`./tidewheel bench secure` gives both brokers a listener SASL_SSL with the same certificate, a user,
ACLs without which he may do nothing, and client quotas that he has but does not reach. His clients
produce and consume as those of `./tidewheel bench` do; somebody else makes and deletes topics. The
options are those of `./tidewheel bench`.

Nothing here passes or fails.
"""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from benchmarks.brokers import ApacheKafka, Tidewheel, free_port
from benchmarks.compare import Broker, consume_load, produce_load
from benchmarks.reconnects import make_certificate
from benchmarks.side_by_side import (
    Load,
    Marks,
    benchmark_folder,
    parse_arguments,
    run_comparison,
)
from data_plane.wire.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from data_plane.wire.registry import ApiKey
from stack.admin_connection import AdminConnection

MARKS = Marks("<!-- secure table: begin -->", "<!-- secure table: end -->")
USER, PASSWORD, MECHANISM = "alice", b"only-for-a-benchmark", "SCRAM-SHA-256"
# As compare.fresh_topic and the loads name them.
PREFIX = "benchmark-"
# Never reached, and counted all the same.
QUOTAS = {
    "producer_byte_rate": 1e12,
    "consumer_byte_rate": 1e12,
    "request_percentage": 1e6,
}
ANSWER_S = 30

# What both have; who comes without a login is the administrator.
SETTINGS = {
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "false",
    "sasl.enabled.mechanisms": MECHANISM,
    "ssl.keystore.type": "PEM",
}
KAFKA_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}


def loads(scale: float) -> list[Load[Broker]]:
    """Some of `./tidewheel bench`."""
    small, large = int(1_000_000 * scale), int(300_000 * scale)
    wanted = ("≥ 1.0", "")
    return [
        produce_load(100, "all", "none", small, wanted),
        produce_load(1024, "all", "none", large, wanted),
        consume_load(1024, "none", large, wanted),
    ]


def main() -> None:
    arguments = parse_arguments(__doc__, "./tidewheel bench secure")
    with benchmark_folder() as folder:
        certificate = make_certificate(folder)
        settings = {**SETTINGS, "ssl.keystore.location": str(certificate)}

        def ours(name: str, checkout: Path | None = None) -> tuple[Broker, str]:
            users = f"127.0.0.1:{free_port()}"
            listener = f"SASL_SSL://{users}"
            return Tidewheel(folder / name, settings, checkout, more_listeners=listener), users

        compared = [ours("tidewheel")]
        if arguments.against is not None:
            compared.append(ours("against", arguments.against))
        elif not arguments.ours_only:
            users = f"127.0.0.1:{free_port()}"
            theirs = {**settings, **KAFKA_SETTINGS}
            kafka = ApacheKafka(folder / "kafka", arguments.cache, theirs, secure_address=users)
            compared.append((kafka, users))
        brokers = [broker for broker, _ in compared]
        try:
            for broker, users in compared:
                broker.start()
                _prepare(broker, users, certificate)
            run_comparison(arguments, loads(arguments.scale), brokers, MARKS)
        finally:
            for broker in brokers:
                broker.kill()


def _prepare(broker: Broker, users: str, certificate: Path) -> None:
    """A user, what he may do, his quotas, and where he logs in."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion(USER, info, PASSWORD)
    admin.alter_user_scram_credentials([upsertion])[USER].result(ANSWER_S)
    acls = [
        AclBinding(
            resource_type,
            PREFIX,
            ResourcePatternType.PREFIXED,
            f"User:{USER}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for resource_type, operation in (
            (ResourceType.TOPIC, AclOperation.WRITE),
            (ResourceType.TOPIC, AclOperation.READ),
            (ResourceType.GROUP, AclOperation.READ),
        )
    ]
    for made in admin.create_acls(acls).values():
        made.result(ANSWER_S)
    entity = EntityData(entity_type="user", entity_name=USER)
    entry = EntryData(
        entity=[entity], ops=[OpData(key=key, value=value) for key, value in QUOTAS.items()]
    )
    with AdminConnection(broker.bootstrap) as connection:
        request = AlterClientQuotasRequest(entries=[entry])
        (answer,) = connection.request(ApiKey.ALTER_CLIENT_QUOTAS, request).entries
    if answer.error_code:
        raise SystemExit(f"The quotas were not set: {answer.error_message}")
    broker.login = broker.directory / "login.json"
    broker.login.write_text(
        json.dumps(
            {
                "bootstrap.servers": users,
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(certificate),
                "sasl.mechanism": MECHANISM,
                "sasl.username": USER,
                "sasl.password": PASSWORD.decode(),
            }
        )
    )


if __name__ == "__main__":
    main()
