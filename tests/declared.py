"""What a control plane declares in tests: a tenant with a user who may do everything there.

The user is `app`, logs in as `app@TENANT`, and his password is that login.
"""

from __future__ import annotations

from data_plane.broker.authentication.scram import salted_password, verifier_of
from data_plane.contract import cell_admin_pb2 as messages

USER = "app"
ITERATIONS, SALT = 4096, b"salt"
MECHANISMS = {
    "SCRAM-SHA-256": messages.ScramVerifier.SCRAM_SHA_256,
    "SCRAM-SHA-512": messages.ScramVerifier.SCRAM_SHA_512,
}
# Of the Kafka protocol.
TOPIC_TYPE, GROUP_TYPE, CLUSTER_TYPE = 2, 3, 4
LITERAL, ALL_OPERATIONS, ALLOW = 3, 2, 3


def login_of(tenant: str) -> str:
    return f"{USER}@{tenant}"


def tenant_with_user(tenant: str) -> list[messages.Resource]:
    """In the order in which they are made; no two tenants have an id in common."""
    return [_tenant(tenant), _credential(tenant), _grants(tenant)]


def topic_of(tenant: str, name: str, partitions: int = 1) -> messages.Resource:
    topic = messages.Topic(partitions=partitions)
    return _resource(tenant, f"topic-{name}", name, topic=topic)


def _resource(tenant: str, kind: str, name: str, **spec: object) -> messages.Resource:
    return messages.Resource(
        resource_id=f"{kind}-of-{tenant}",
        generation=1,
        tenant=tenant,
        name=name,
        **spec,  # type: ignore[arg-type]
    )


def _tenant(tenant: str) -> messages.Resource:
    spec = messages.Tenant(cluster_id=f"{tenant}-cluster")
    return _resource(tenant, "tenant", "", tenant_spec=spec)


def _credential(tenant: str) -> messages.Resource:
    login = login_of(tenant)
    credential = messages.Credential(principal=USER)
    for name, number in MECHANISMS.items():
        salted = salted_password(name, login.encode(), SALT, ITERATIONS)
        verifier = verifier_of(name, salted, SALT, ITERATIONS)
        credential.verifiers.add(
            mechanism=number,
            salt=verifier.salt,
            stored_key=verifier.stored_key,
            server_key=verifier.server_key,
            iterations=verifier.iterations,
        )
    return _resource(tenant, "login", login, credential=credential)


def _grants(tenant: str) -> messages.Resource:
    grants = messages.Grants()
    for resource_type, name in (
        (TOPIC_TYPE, "*"),
        (GROUP_TYPE, "*"),
        (CLUSTER_TYPE, "kafka-cluster"),
    ):
        grants.acls.add(
            resource_type=resource_type,
            pattern_type=LITERAL,
            name=name,
            principal=f"User:{USER}",
            host="*",
            operation=ALL_OPERATIONS,
            permission=ALLOW,
        )
    return _resource(tenant, "all", "all", grants=grants)
