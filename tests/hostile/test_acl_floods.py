"""A tenant that makes, lists and deletes ACLs as fast as it can, beside a user who is served."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.process_figures import memory_bytes
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from data_plane.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from data_plane.wire.messages.describe_acls_request import DescribeAclsRequest
from data_plane.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from data_plane.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from data_plane.wire.registry import ApiKey
from tests.certificates import WHY_NO_CERTIFICATES
from tests.conformance.raw_client import RawClient
from tests.declared import ALLOW, LITERAL, TOPIC_TYPE, USER, login_of
from tests.hostile.test_live_broker import TOPIC, served_meanwhile
from tests.tenant_broker import tenant_broker

pytestmark = pytest.mark.skipif(bool(WHY_NO_CERTIFICATES), reason=WHY_NO_CERTIFICATES)

TENANT = "flooder"
# Of a tenant (docs/security.md).
ACLS_MAX = 10_000
IN_A_REQUEST = 500
CONNECTIONS = 4
MEMORY_GROWTH_BYTES_MAX = 96 << 20
ANY_TYPE, ANY = 1, 1
READ = 3


def log_in(address: str) -> RawClient:
    client = RawClient(address)
    handshake = SaslHandshakeRequest(mechanism="PLAIN")
    assert client.ask(ApiKey.SASL_HANDSHAKE, 1, handshake).error_code == 0
    login = login_of(TENANT)
    token = SaslAuthenticateRequest(auth_bytes=f"\0{login}\0{login}".encode())
    assert client.ask(ApiKey.SASL_AUTHENTICATE, 2, token).error_code == 0
    return client


class Flood(threading.Thread):
    """Makes so many ACLs, whether there is room for them or not, and lists all of them."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__()
        self._address = address
        self._number = number
        self.made = 0
        self.refused: set[int] = set()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with log_in(self._address) as client:
                for first in range(0, ACLS_MAX // 2, IN_A_REQUEST):
                    self._make(client, first)
                client.ask(ApiKey.DESCRIBE_ACLS, 3, every(DescribeAclsRequest))
        except BaseException as error:
            self.problem = error
            raise

    def _make(self, client: RawClient, first: int) -> None:
        creations = [
            AclCreation(
                resource_type=TOPIC_TYPE,
                resource_name=f"topic-{self._number}-{index}",
                resource_pattern_type=LITERAL,
                principal=f"User:{index}",
                host="*",
                operation=READ,
                permission_type=ALLOW,
            )
            for index in range(first, first + IN_A_REQUEST)
        ]
        request = CreateAclsRequest(creations=creations)
        for result in client.ask(ApiKey.CREATE_ACLS, 3, request).results:
            if result.error_code:
                self.refused.add(int(result.error_code))
            else:
                self.made += 1


def every(kind: Any) -> Any:
    """A filter that all match."""
    return kind(
        resource_type_filter=ANY_TYPE,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_tenant_floods_the_cell_with_acls(tmp_path: Path) -> None:
    with tenant_broker(tmp_path, TENANT) as broker:
        admin = AdminClient({"bootstrap.servers": broker.process.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        before = memory_bytes(broker.process.pid)["rss_anon"]
        floods = [Flood(broker.users, number) for number in range(CONNECTIONS)]
        with served_meanwhile(broker.process, at_least=20):
            for flood in floods:
                flood.start()
            for flood in floods:
                flood.join()
        assert [flood.problem for flood in floods] == [None] * CONNECTIONS
        # Those of the user are there already.
        made = sum(flood.made for flood in floods)
        assert ACLS_MAX - IN_A_REQUEST < made < ACLS_MAX
        refused = set().union(*(flood.refused for flood in floods))
        assert refused == {int(ErrorCode.POLICY_VIOLATION)}
        grown = memory_bytes(broker.process.pid)["rss_anon"] - before
        assert grown < MEMORY_GROWTH_BYTES_MAX, f"{grown / 2**20:.0f} MiB more than before"
        with log_in(broker.users) as client, served_meanwhile(broker.process, at_least=5):
            request = DeleteAclsRequest(filters=[every(DeleteAclsFilter)])
            (result,) = client.ask(ApiKey.DELETE_ACLS, 3, request).filter_results
            # What a control plane has declared stays.
            assert result.error_code == 0
            assert len(result.matching_acls) == ACLS_MAX
            owned = [one for one in result.matching_acls if one.error_code]
            assert {one.principal for one in owned} == {f"User:{USER}"}
        # The default tenant has none of it.
        with RawClient(broker.process.bootstrap) as stranger:
            answer = stranger.ask(ApiKey.DESCRIBE_ACLS, 3, every(DescribeAclsRequest))
            assert answer.resources == []
