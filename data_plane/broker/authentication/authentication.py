"""Authentication of one broker: what its SASL sessions share, and who is logged in.

Credentials are those of the image, so users log in while the metadata store cannot be reached.

Who is logged in is known by login. When an image arrives in which the credential that proved a
connection is gone, is disabled or has become another one, the connection is closed, and its parked
fetches with it: a few hundred at a time, so that a login of thousands of connections does not stop
the loop. So is it when the credential expires, and when its tenant is blocked or deleted.

A session has an end where connections.max.reauth.ms says so (KIP-368): after it the client must
authenticate anew before anything else is answered.
"""

from __future__ import annotations

from base64 import b64encode
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from data_plane.broker.authentication.certificates import CERTIFICATE
from data_plane.broker.authentication.decoys import Decoys
from data_plane.broker.authentication.failure_delays import FailureDelays
from data_plane.broker.authentication.handshake_budget import HandshakeBudget
from data_plane.broker.authentication.password_checks import PasswordChecks
from data_plane.broker.authentication.plain import PLAIN
from data_plane.broker.authentication.scram import NONCE_BYTES
from data_plane.broker.request.api import ConnectionInfo
from data_plane.broker.request.fair_work import FairWork
from data_plane.broker.request.throttling import throttle_newcomer
from data_plane.broker.request.timers import Timer
from data_plane.cell.credentials import DECOY_KEY_BYTES, Credential
from data_plane.cell.tenants import BLOCKED_TENANT, DEFAULT_TENANT, DELETING_TENANT

if TYPE_CHECKING:
    from data_plane.broker.services import Services
    from data_plane.cell.metadata import MetadataImage

# How many connections are closed in one go.
CLOSED_PER_TURN_MAX = 200
# A client that authenticates anew more often is up to no good (as in Apache Kafka).
REAUTHENTICATION_MS_MIN = 1_000
# Checks of passwords that run at a time.
PASSWORDS_AT_ONCE_MAX = 1
# How long at most until an expiry is looked at: by then a wrong date may be a right one.
EXPIRY_LOOK_MS_MAX = 3_600_000
# Of tenants for which nobody speaks.
SHUT_STATES = frozenset((BLOCKED_TENANT, DELETING_TENANT))


class _Login(NamedTuple):
    """What has proved who speaks on a connection."""

    credential: Credential
    mechanism: str
    opened_ms: int
    end: Timer | None


class Authentication:
    """See the module."""

    def __init__(self, services: Services, now_ms: Callable[[], int]) -> None:
        self._services = services
        self.now_ms = now_ms
        self.random = services.random
        self.timers = services.timers
        self.delays = FailureDelays()
        self.decoys = Decoys(self._decoy_key, lambda: services.image.credentials)
        # Beside the work on producers' batches, which it is not to wait for, nor hold up.
        work = FairWork(services.executor, PASSWORDS_AT_ONCE_MAX)
        self.passwords = PasswordChecks(work, services.random, self.decoys)
        self.budget = HandshakeBudget(services.timers.schedule)
        # Of who is authenticated already: strangers, however many, hold up none of these.
        self.renewals = HandshakeBudget(services.timers.schedule)
        self.failures_count = 0
        self.successes_count = 0
        # Drawn when it is first needed.
        self._own_decoy_key = b""
        # By login, then connection id.
        self._connections: dict[str, dict[int, ConnectionInfo]] = {}
        self._logins: dict[int, _Login] = {}
        self._to_close: deque[ConnectionInfo] = deque()
        # Of logins with connections whose credentials expire.
        self._expiries: dict[str, Timer] = {}
        services.image_listeners.append(self._follow)

    @property
    def failure_delay_ms(self) -> int:
        return self._services.config.get_int("connection.failed.authentication.delay.ms")

    def find(self, login: str) -> Credential | None:
        return self._services.image.credentials.get(login)

    def _decoy_key(self) -> bytes:
        key = self._services.image.decoy_key or self._own_decoy_key
        if not key:
            key = self._own_decoy_key = self.random.randbytes(DECOY_KEY_BYTES)
        return key

    def new_nonce(self) -> str:
        """One that nobody can guess."""
        return b64encode(self.random.randbytes(NONCE_BYTES)).decode()

    def why_not_served(self, credential: Credential) -> str:
        """Why nobody is let in with this credential, or for its tenant; "" when somebody is."""
        tenant = credential.tenant
        if tenant not in self._services.namespaces.names:
            return f"there is no tenant {tenant}"
        return why_shut(self._services.image, tenant) or credential.why_not_valid(self._wall_ms())

    def why_no_connection(self, tenant: str) -> str:
        """Why the tenant may not have a further connection now; "" when it may."""
        return self._services.quotas.why_no_connection(tenant)

    def _wall_ms(self) -> int:
        return self._services.wall_clock.wall_ms(self.now_ms())

    def may_authenticate_anew(self, connection: ConnectionInfo) -> bool:
        """Whether sessions have an end, so that clients authenticate anew."""
        return connection.connection_id in self._logins and self._lifetime_ms() > 0

    def is_too_soon(self, connection: ConnectionInfo, now_ms: int) -> bool:
        login = self._logins.get(connection.connection_id)
        return login is not None and now_ms - login.opened_ms < REAUTHENTICATION_MS_MIN

    def mechanism_of(self, connection: ConnectionInfo) -> str | None:
        """The one that the connection was authenticated with."""
        login = self._logins.get(connection.connection_id)
        return None if login is None else login.mechanism

    def let_in(self, connection: ConnectionInfo) -> None:
        """It has been authenticated for the first time."""
        throttle_newcomer(self._services, connection)

    def opened(
        self,
        connection: ConnectionInfo,
        credential: Credential,
        mechanism: str,
        now_ms: int,
        certificate_ends_ms: int | None = None,
    ) -> int:
        """A connection is logged in, or anew; for how many milliseconds, or 0, for good. One that
        has shown a certificate cannot do so anew, and ends with it."""
        self.successes_count += 1
        number = connection.connection_id
        if number in self._logins:
            self._forget(connection)
        else:
            connection.on_close[partial(self._closed, connection)] = None
        lifetime_ms = self._lifetime_ms() if certificate_ends_ms is None else 0
        end = None
        if certificate_ends_ms is not None:
            end = self._schedule_certificates_end(connection, certificate_ends_ms, now_ms)
        elif lifetime_ms > 0:
            end = self.timers.schedule(now_ms + lifetime_ms, partial(_end_session, connection))
        self._logins[number] = _Login(credential, mechanism, now_ms, end)
        self._connections.setdefault(credential.login, {})[number] = connection
        if credential.login not in self._expiries:
            self._schedule_expiry(credential, now_ms)
        return lifetime_ms

    def _schedule_certificates_end(
        self, connection: ConnectionInfo, ends_ms: int, now_ms: int
    ) -> Timer:
        wait_ms = min(ends_ms - self._wall_ms(), EXPIRY_LOOK_MS_MAX)
        look = partial(self._look_at_certificate, connection, ends_ms)
        return self.timers.schedule(now_ms + max(wait_ms, 1), look)

    def _look_at_certificate(self, connection: ConnectionInfo, ends_ms: int, now_ms: int) -> None:
        number = connection.connection_id
        login = self._logins.get(number)
        if login is None:
            return
        if self._wall_ms() >= ends_ms:
            connection.close("its certificate has expired")
        else:
            end = self._schedule_certificates_end(connection, ends_ms, now_ms)
            self._logins[number] = login._replace(end=end)

    def _schedule_expiry(self, credential: Credential, now_ms: int) -> None:
        """Look again when it expires. The date may be set meanwhile, so the look may be early."""
        if credential.expires_at_ms:
            wait_ms = min(credential.expires_at_ms - self._wall_ms(), EXPIRY_LOOK_MS_MAX)
            look = partial(self._look_at_expiry, credential.login)
            when_ms = now_ms + max(wait_ms, 1)
            self._expiries[credential.login] = self.timers.schedule(when_ms, look)

    def _look_at_expiry(self, login: str, now_ms: int) -> None:
        del self._expiries[login]
        credential = self.find(login)
        if credential is None:
            return
        if credential.why_not_valid(self._wall_ms()):
            self._close_all_of(login, now_ms)
        else:
            self._schedule_expiry(credential, now_ms)

    def _close_all_of(self, login: str, now_ms: int) -> None:
        self._to_close.extend(self._connections.get(login, {}).values())
        self._close_some(now_ms)

    def _lifetime_ms(self) -> int:
        return self._services.config.get_int("connections.max.reauth.ms")

    def _closed(self, connection: ConnectionInfo) -> None:
        self._forget(connection)

    def _forget(self, connection: ConnectionInfo) -> None:
        number = connection.connection_id
        login = self._logins.pop(number)
        if login.end is not None:
            login.end.cancel()
        name = login.credential.login
        connections = self._connections[name]
        del connections[number]
        if not connections:
            del self._connections[name]
            expiry = self._expiries.pop(name, None)
            if expiry is not None:
                expiry.cancel()

    def _follow(self, old: MetadataImage, new: MetadataImage, now_ms: int) -> None:
        """Have the connections closed whose credentials are not what they were."""
        if old.credentials is not new.credentials:
            for name, connections in list(self._connections.items()):
                credential = new.credentials.get(name)
                if credential is old.credentials.get(name):
                    continue
                for number, connection in connections.items():
                    if not self._still_proves(credential, self._logins[number], connection.host):
                        self._to_close.append(connection)
                expiry = self._expiries.pop(name, None)
                if expiry is not None:
                    expiry.cancel()
                if credential is not None:
                    self._schedule_expiry(credential, now_ms)
        shut = _newly_shut(old, new)
        if shut:
            for connections in self._connections.values():
                for number, connection in connections.items():
                    if self._logins[number].credential.tenant in shut:
                        self._to_close.append(connection)
        self._close_some(now_ms)

    def _close_some(self, now_ms: int) -> None:
        for _ in range(min(len(self._to_close), CLOSED_PER_TURN_MAX)):
            connection = self._to_close.popleft()
            login = self._logins.get(connection.connection_id)
            if login is None:
                continue
            current = self.find(login.credential.login)
            # The client may have authenticated anew meanwhile, with what holds now.
            if not self._still_proves(current, login, connection.host):
                _revoke(connection, f"the credential {login.credential.login!r} was revoked")
            elif reason := why_shut(self._services.image, login.credential.tenant):
                _revoke(connection, reason)
        if self._to_close:
            self.timers.schedule(now_ms, self._close_some)

    def _still_proves(self, credential: Credential | None, login: _Login, host: str) -> bool:
        if credential is None or not credential.may_come_from(host):
            return False
        if credential.why_not_valid(self._wall_ms()):
            return False
        old = login.credential
        if (credential.tenant, credential.principal) != (old.tenant, old.principal):
            # Made anew, for somebody else.
            return False
        if login.mechanism == CERTIFICATE:
            # It stands in the login.
            return True
        if login.mechanism == PLAIN:
            return credential.verifiers == old.verifiers
        return credential.verifiers.get(login.mechanism) == old.verifiers[login.mechanism]


def why_shut(image: MetadataImage, tenant: str) -> str:
    """Why nobody speaks for this tenant; "" when somebody may. `default` is never shut: who has not
    said who it is speaks for it."""
    stored = image.tenants.get(tenant)
    if stored is None or stored.state not in SHUT_STATES or tenant == DEFAULT_TENANT:
        return ""
    return f"the tenant {tenant} is {stored.state}"


def _newly_shut(old: MetadataImage, new: MetadataImage) -> set[str]:
    if old.tenants is new.tenants:
        return set()
    return {name for name in new.tenants if why_shut(new, name) and not why_shut(old, name)}


def _revoke(connection: ConnectionInfo, reason: str) -> None:
    connection.gate.revoke()
    connection.close(reason)


def _end_session(connection: ConnectionInfo, now_ms: int) -> None:
    connection.gate.expire()
