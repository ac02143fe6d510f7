"""The listeners for clients, as a broker's properties say: addresses, protocols, mechanisms, TLS.

`listener.name.NAME.PROPERTY` is the property for the listener NAME only, in small letters, and
stronger than PROPERTY for all of them; LISTENER_PROPERTIES can be given so.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from data_plane.broker.authentication.plain import PLAIN
from data_plane.broker.config.broker_definitions import BROKER_DEFINITIONS
from data_plane.broker.config.definition import ConfigDefinition, Value
from data_plane.broker.config.effective import EffectiveConfig
from data_plane.broker.config.tls_definitions import LISTENER_PROPERTIES
from data_plane.broker.request.principal import SecurityProtocol
from data_plane.server.client_tls import ListenerTls
from data_plane.server.inter_broker_tls import is_loopback

# Kafka's names of listeners and hosts; an IPv6 address stands in brackets.
_LISTENER = re.compile(r"([A-Za-z0-9_-]+)://(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]*):(\d{1,5})")
_OF_LISTENER = re.compile(r"listener\.name\.([a-z0-9_-]+)\.(.+)")

Problem = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Listener:
    """An address to listen on or to advertise. An empty host is every interface."""

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    # Where they are spoken.
    sasl_mechanisms: tuple[str, ...] = ()
    tls: ListenerTls | None = None


def definition_for_listener(name: str) -> ConfigDefinition | None:
    """What `listener.name.NAME.PROPERTY` is to be parsed by; None when it cannot be given so."""
    match = _OF_LISTENER.fullmatch(name)
    if match is None or match[2] not in LISTENER_PROPERTIES:
        return None
    return BROKER_DEFINITIONS[match[2]]


class ListenerProperties:
    """What holds for each listener: its own value, or that for all of them."""

    def __init__(self, resolver: EffectiveConfig, own: Mapping[str, str]) -> None:
        """`own` are those given as listener.name.…."""
        self._resolver = resolver
        self._own = own

    def has_own(self, listener: str, name: str) -> bool:
        return _own_name(listener, name) in self._own

    def source(self, listener: str, name: str) -> str:
        """Under which name the value was given, or would be."""
        return _own_name(listener, name) if self.has_own(listener, name) else name

    def get(self, listener: str, name: str) -> Value | None:
        text = self._own.get(_own_name(listener, name))
        return self._resolver.get(name) if text is None else BROKER_DEFINITIONS[name].parse(text)

    def get_list(self, listener: str, name: str) -> tuple[str, ...]:
        value = self.get(listener, name)
        assert isinstance(value, list), f"{name} is not a list"
        return tuple(dict.fromkeys(value))

    def get_str(self, listener: str, name: str) -> str:
        return str(self.get(listener, name) or "")

    def strangers(self, listeners: tuple[Listener, ...]) -> list[str]:
        """Properties given for listeners that do not exist."""
        known = {listener.name.lower() for listener in listeners}
        matches = ((name, _OF_LISTENER.fullmatch(name)) for name in self._own)
        return [name for name, match in matches if match is None or match[1] not in known]


def _own_name(listener: str, name: str) -> str:
    return f"listener.name.{listener.lower()}.{name}"


def client_listeners(
    resolver: EffectiveConfig, own: Mapping[str, str], problem: Problem
) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """Those to listen at, and those that are advertised."""
    listeners = _listeners("listeners", resolver, problem)
    advertised = _advertised(resolver, listeners, problem)
    listeners = _with_protocols(resolver, listeners, problem)
    properties = ListenerProperties(resolver, own)
    for name in properties.strangers(listeners):
        problem(name, "there is no such listener")
    return tuple(_with_security(one, properties, problem) for one in listeners), advertised


def _listeners(name: str, resolver: EffectiveConfig, problem: Problem) -> tuple[Listener, ...]:
    listeners: list[Listener] = []
    for item in resolver.get_list(name):
        match = _LISTENER.fullmatch(item)
        if match is None or int(match[3]) > 65535:
            problem(name, f"{item!r} is not of the form NAME://host:port")
            continue
        listener = Listener(match[1].upper(), match[2].strip("[]"), int(match[3]))
        if any(other.name == listener.name for other in listeners):
            problem(name, f"the listener name {listener.name} is there twice")
        else:
            listeners.append(listener)
    if not listeners:
        problem(name, "needs at least one listener, such as PLAINTEXT://127.0.0.1:9092")
    return tuple(listeners)


def _advertised(
    resolver: EffectiveConfig, listeners: tuple[Listener, ...], problem: Problem
) -> tuple[Listener, ...]:
    if resolver.get("advertised.listeners") in (None, resolver.get("listeners")):
        return listeners
    advertised = _listeners("advertised.listeners", resolver, problem)
    names = {listener.name for listener in listeners}
    for listener in advertised:
        if listener.name not in names:
            problem("advertised.listeners", f"{listener.name} is not one of the listeners")
        if is_every_interface(listener.host):
            problem(
                "advertised.listeners",
                f"{listener.name} needs an address that clients can connect to, "
                f"not {listener.host or 'an empty one'}",
            )
    return advertised


def is_every_interface(host: str) -> bool:
    """Whether it is no address that one could connect to."""
    if not host:
        return True
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _with_protocols(
    resolver: EffectiveConfig, listeners: tuple[Listener, ...], problem: Problem
) -> tuple[Listener, ...]:
    """`listeners` with the security protocols that their names stand for."""
    name = "listener.security.protocol.map"
    protocols: dict[str, str] = {protocol.value: protocol.value for protocol in SecurityProtocol}
    for item in filter(None, (part.strip() for part in resolver.get_str(name).split(","))):
        listener, separator, protocol = item.partition(":")
        if not separator:
            problem(name, f"{item!r} is not of the form NAME:PROTOCOL")
        protocols[listener.strip().upper()] = protocol.strip().upper()
    served = {protocol.value: protocol for protocol in SecurityProtocol}
    known: list[Listener] = []
    for listener_config in listeners:
        protocol = protocols.get(listener_config.name, "")
        if protocol in served:
            known.append(replace(listener_config, security_protocol=served[protocol]))
        elif not protocol:
            problem("listeners", f"{listener_config.name} has no entry in {name}")
        else:
            problem(
                "listeners",
                f"{listener_config.name} asks for {protocol}; {', '.join(served)} are served",
            )
    return tuple(known)


def _with_security(
    listener: Listener, properties: ListenerProperties, problem: Problem
) -> Listener:
    protocol = listener.security_protocol
    if protocol.has_sasl:
        listener = replace(listener, sasl_mechanisms=_mechanisms(listener, properties, problem))
    if protocol.has_tls:
        listener = replace(listener, tls=_tls(listener, properties, problem))
    return listener


def _mechanisms(
    listener: Listener, properties: ListenerProperties, problem: Problem
) -> tuple[str, ...]:
    name = "sasl.enabled.mechanisms"
    mechanisms = properties.get_list(listener.name, name)
    source = properties.source(listener.name, name)
    if not mechanisms:
        problem(source, f"clients of {listener.name} could not authenticate")
    if (
        PLAIN in mechanisms
        and not listener.security_protocol.has_tls
        and not is_loopback(listener.host)
    ):
        problem(
            source,
            f"PLAIN would send passwords in the clear to {listener.name}, which others can "
            "reach: listen at 127.0.0.1, or give the listener TLS",
        )
    return mechanisms


def _tls(listener: Listener, properties: ListenerProperties, problem: Problem) -> ListenerTls:
    def get(name: str) -> str:
        return properties.get_str(listener.name, name)

    def tell(name: str, reason: str) -> None:
        problem(properties.source(listener.name, name), reason)

    assert {get("ssl.keystore.type"), get("ssl.truststore.type")} == {"PEM"}, "nothing else parses"
    client_auth = get("ssl.client.auth")
    if listener.security_protocol.has_sasl and not properties.has_own(
        listener.name, "ssl.client.auth"
    ):
        # As in Apache Kafka: there SASL says who speaks, and a certificate is one more thing.
        client_auth = "none"
    tls = ListenerTls(
        keystore=get("ssl.keystore.location"),
        chain=get("ssl.keystore.certificate.chain"),
        key=get("ssl.keystore.key"),
        key_password=get("ssl.key.password"),
        truststore=get("ssl.truststore.location"),
        authorities=get("ssl.truststore.certificates"),
        client_auth=client_auth,
        versions=properties.get_list(listener.name, "ssl.enabled.protocols"),
    )
    if bool(tls.chain) != bool(tls.key):
        name = "ssl.keystore.key" if tls.chain else "ssl.keystore.certificate.chain"
        tell(name, f"is missing: {listener.name} needs the certificate and its key")
    elif bool(tls.keystore) == bool(tls.chain):
        tell(
            "ssl.keystore.location",
            f"{listener.name} needs a certificate: ssl.keystore.location, or "
            "ssl.keystore.certificate.chain with ssl.keystore.key, not both",
        )
    if client_auth != "none" and bool(tls.truststore) == bool(tls.authorities):
        tell(
            "ssl.truststore.location",
            f"{listener.name} needs the authorities of its clients: ssl.truststore.location or "
            "ssl.truststore.certificates, not both",
        )
    if not tls.versions:
        tell("ssl.enabled.protocols", "names no version")
    return tls
