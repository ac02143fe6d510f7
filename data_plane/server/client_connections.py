"""What accepts a client, for each address that it may come through: with TLS or without."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from data_plane.broker.request.api import Executor
from data_plane.broker.request.principal import listener_settings
from data_plane.broker.services import Logger
from data_plane.server.client_tls import CurrentTls, TlsContexts
from data_plane.server.configuration import BrokerConfig
from data_plane.server.configured_listeners import Listener as Address
from data_plane.server.connection import Connection
from data_plane.server.listener import Listener
from data_plane.server.tls_connection import TlsConnection


class ClientConnections:
    """Of one broker, made before its listener is there."""

    def __init__(
        self,
        settings: BrokerConfig,
        listener: Callable[[], Listener],
        executor: Executor,
        log: Logger,
    ) -> None:
        """Raises OSError when what TLS is made of cannot be used."""
        self._listener = listener
        others = []
        if settings.inter_broker_tls is not None:
            others.append(settings.inter_broker_tls.authority)
        if settings.cell_admin is not None:
            others.append(settings.cell_admin.files.authority)
        self._tls = TlsContexts(
            {
                one.name: CurrentTls(one.name, one.tls, others, log)
                for one in settings.listeners
                if one.tls is not None
            },
            executor,
        )
        self.look_for_new_files = self._tls.look

    def accept(self, address: Address) -> asyncio.BaseProtocol:
        """The protocol object of a socket that was accepted at this address."""
        listener = self._listener()
        settings = listener_settings(
            address.name, address.security_protocol, address.sasl_mechanisms
        )
        connection = Connection(listener, settings)
        if address.tls is None:
            return connection
        return TlsConnection(connection, listener, self._tls.of(address.name))
