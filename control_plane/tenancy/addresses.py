"""Who shares an address with a caller: a host of IPv4, and the /64 of a host of IPv6, which is what
one customer of a provider has at least, and could otherwise change from request to request."""

from __future__ import annotations

import ipaddress

IPV6_PREFIX_BITS = 64


def range_of(address: str) -> tuple[str, str] | None:
    """The first and the last address that count as this one; None for what is no address."""
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return None
    if isinstance(host, ipaddress.IPv6Address):
        if host.ipv4_mapped is None:
            network = ipaddress.IPv6Network((host, IPV6_PREFIX_BITS), strict=False)
            return str(network[0]), str(network[-1])
        host = host.ipv4_mapped
    return str(host), str(host)
