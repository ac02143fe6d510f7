"""The addresses of a starting broker: taken before it enters its cell, which is told the ports.

A port 0 is any free one. A member of a cell that has been started before takes the one it had, if
it is still free: without the metadata store it could tell nobody of another one, and its clients
and followers look for it where it was.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from data_plane.cell.image_file import ImageFile
from data_plane.cell.metadata import Endpoint
from data_plane.log.file_system import FileSystem
from data_plane.server.configuration import BrokerConfig
from data_plane.server.configured_listeners import Listener
from data_plane.server.entry import Addresses
from data_plane.server.listener import take_address


class TakenAddresses(NamedTuple):
    """Servers that do not serve yet, and what they amount to; `port` is that of the first one for
    clients, who may be told another one."""

    clients: list[asyncio.Server]
    other_brokers: list[asyncio.Server]
    addresses: Addresses
    port: int


async def take_addresses(
    settings: BrokerConfig,
    fs: FileSystem,
    make_client_connection: Callable[[Listener], asyncio.BaseProtocol],
    make_peer_connection: Callable[[], asyncio.BaseProtocol],
    tls: ssl.SSLContext | None,
) -> TakenAddresses:
    """Bind what this broker listens on; a client's connection is made for the address that it came
    through, and `tls` is for the other brokers. Raises OSError."""
    is_member = settings.metadata_store_url is not None
    port_before, inter_broker_port_before = _ports_before(settings, fs) if is_member else (0, 0)
    backlog = settings.effective().get_int("socket.listen.backlog.size")

    async def take(
        host: str,
        port: int,
        before: int,
        make_connection: Callable[[], asyncio.BaseProtocol],
        tls: ssl.SSLContext | None = None,
    ) -> tuple[asyncio.Server, int]:
        if port == 0 and before != 0:
            try:
                return await take_address(host, before, backlog, make_connection, tls)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        return await take_address(host, port, backlog, make_connection, tls)

    clients, ports = [], []
    advertised = settings.advertised_listeners[0]
    if advertised.port != 0:
        # What the cell was told is another one than the one listened on.
        port_before = 0
    for number, address in enumerate(settings.listeners):
        before = port_before if number == 0 else 0
        make_connection = partial(make_client_connection, address)
        server, port = await take(address.host, address.port, before, make_connection)
        clients.append(server)
        ports.append(port)
    taken = {address.name: port for address, port in zip(settings.listeners, ports, strict=True)}
    endpoints = [
        Endpoint(one.name, one.host or socket.getfqdn(), one.port or taken[one.name])
        for one in settings.advertised_listeners
    ]
    _, host, port = endpoints[0]
    listeners = tuple(endpoints) if len(taken) > 1 else ()
    if not is_member:
        return TakenAddresses(clients, [], Addresses(host, port, listeners=listeners), ports[0])
    address = settings.inter_broker_listener
    server, inter_broker_port = await take(
        address.host, address.port, inter_broker_port_before, make_peer_connection, tls
    )
    addresses = Addresses(host, port, address.host, inter_broker_port, listeners)
    return TakenAddresses(clients, [server], addresses, ports[0])


def _ports_before(settings: BrokerConfig, fs: FileSystem) -> tuple[int, int]:
    """The ports for clients and for brokers that the cell knew of; 0 where it knew of none."""
    known = ImageFile(fs, str(settings.data_directories[0])).read()
    broker = None if known is None else known[0].brokers.get(settings.node_id)
    return (0, 0) if broker is None else (broker.port, broker.inter_broker_port)
