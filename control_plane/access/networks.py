"""Networks that a key is accepted from: which there can be, and which address is in them.

No networks means everywhere. A server that listens for IPv6 sees callers of IPv4 as mapped
addresses (`::ffff:10.0.0.1`); they are what they map.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from control_plane.tenancy.errors import Invalid

NETWORKS_MAX = 100


def normalized_networks(networks: Sequence[str]) -> list[str]:
    """The networks in one form, each once. Raises Invalid."""
    if len(networks) > NETWORKS_MAX:
        raise Invalid(f"More than {NETWORKS_MAX} networks.", field="/networks")
    try:
        return sorted({str(ipaddress.ip_network(network)) for network in networks})
    except ValueError as error:
        raise Invalid(f"{error}.", field="/networks") from error


def is_within(networks: Sequence[str], address: str) -> bool:
    """Whether `address` is in one of the networks; one that cannot be read is in none."""
    if not networks:
        return True
    try:
        wanted: Any = ipaddress.ip_address(address)
    except ValueError:
        return False
    wanted = getattr(wanted, "ipv4_mapped", None) or wanted
    return any(wanted in ipaddress.ip_network(network) for network in networks)


def are_within(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Whether each network of `inner` lies in one of `outer`."""
    if not outer:
        return True
    wider: list[Any] = [ipaddress.ip_network(network) for network in outer]
    narrower: list[Any] = [ipaddress.ip_network(network) for network in inner]
    return bool(narrower) and all(
        any(one.version == other.version and one.subnet_of(other) for other in wider)
        for one in narrower
    )
