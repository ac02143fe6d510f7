"""A broker with CellAdmin for the tests of a module, and the authority of its certificates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.broker_process import BrokerProcess
from tests.certificates import Authority
from tests.server.control_plane import settings


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def properties() -> Mapping[str, str]:
    """What a module's broker has besides."""
    return {}


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, properties: Mapping[str, str]
) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    given = {**settings(authority.issue("broker", "IP:127.0.0.1")), **properties}
    with BrokerProcess(folder, set=given) as started:
        yield started
