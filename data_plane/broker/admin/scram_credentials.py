"""DescribeUserScramCredentials and AlterUserScramCredentials, version 0 (KIP-554).

A tenant's clients name its users; the login of a user is made of both names. Outcomes and words are
Apache Kafka's (4.3, KRaft), where a user with any mistake is not changed at all, and the others of
the request are. A client sends the salted password, of which only the verifier is kept.

Beyond Kafka a salted password must have the size of its hash, and a user of the tenant `default`
no `@` in its name: that would be the login of another tenant's user.

What a control plane has declared is not changed here: POLICY_VIOLATION names its resource. Where it
has declared no verifiers, users change theirs; the last one stays.

Deliberately absent: networks of credentials and logins by other names, which the metadata has and
this API has not. What is altered here leaves them alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from data_plane.broker.admin.declared_credentials import declares_verifiers
from data_plane.broker.authentication.scram import verifier_of
from data_plane.broker.request.api import (
    Deferred,
    HandlerTable,
    LongAnswer,
    RequestContext,
)
from data_plane.broker.request.refusal import Refusal, commit_refusal
from data_plane.broker.services import Services
from data_plane.broker.topics.ownership import managed
from data_plane.cell.acls import AclOperation, AclResourceType
from data_plane.cell.changes import Change
from data_plane.cell.credentials import (
    DECOY_KEY_BYTES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    KEY_BYTES,
    Credential,
    Credentials,
    DeleteCredential,
    PutCredential,
    PutDecoyKey,
    login_of,
    why_invalid_credential,
)
from data_plane.cell.declarations import CREDENTIAL_KIND
from data_plane.cell.features import METADATA_VERSION, TENANCY_LEVEL
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.wire.errors import ErrorCode
from data_plane.wire.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from data_plane.wire.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from data_plane.wire.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
)
from data_plane.wire.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from data_plane.wire.registry import ApiKey

MIN_VERSION, MAX_VERSION = 0, 0
# The protocol's numbers.
MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
CLUSTER: Final = "kafka-cluster"

# Of a tenant whose quotas do not say, so that none takes all credentials that a cell may have.
USERS_MAX: Final = 10_000
# So many credentials of a cell are looked through at once for a tenant's users.
LISTED_HERE_MAX: Final = 1_000

_DENIED = Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
_TWICE = Refusal(
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)

# What became of each user that a request names; None when it was altered.
Outcomes = dict[str, Refusal | None]


def handle_describe(
    services: Services,
    context: RequestContext,
    request: DescribeUserScramCredentialsRequest,
    now_ms: int,
) -> Deferred[LongAnswer] | DescribeUserScramCredentialsResponse:
    response = DescribeUserScramCredentialsResponse(error_message=None)
    if not context.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER):
        response.error_code, response.error_message = int(_DENIED.code), _DENIED.message
        return response
    credentials, tenant = services.image.credentials, context.namespace
    # How often each is asked for.
    asked = Counter(user.name for user in request.users or ())

    def make() -> DescribeUserScramCredentialsResponse:
        names: Iterable[str] = asked or sorted(
            one.principal
            for one in credentials.values()
            if one.tenant == tenant and one.login == login_of(tenant, one.principal)
        )
        response.results = [
            _described(name, _of_user(credentials, tenant, name), asked[name] > 1) for name in names
        ]
        return response

    if asked or len(credentials) <= LISTED_HERE_MAX:
        return make()
    # Everybody's are looked through for those of the one tenant.
    answer: Deferred[LongAnswer] = Deferred()
    answer.complete(LongAnswer(make, context.connection.hold()))
    return answer


def _described(
    name: str, credential: Credential | None, is_asked_twice: bool
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name, error_message=None)
    if is_asked_twice:
        result.error_code = int(ErrorCode.DUPLICATE_RESOURCE)
        result.error_message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        )
    elif credential is None:
        result.error_code = int(ErrorCode.RESOURCE_NOT_FOUND)
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        result.credential_infos = [
            CredentialInfo(mechanism=number, iterations=credential.verifiers[mechanism].iterations)
            for number, mechanism in MECHANISMS.items()
            if mechanism in credential.verifiers
        ]
    return result


def handle_alter(
    services: Services,
    context: RequestContext,
    request: AlterUserScramCredentialsRequest,
    now_ms: int,
) -> AlterUserScramCredentialsResponse | Deferred[AlterUserScramCredentialsResponse]:
    named = [item.name for item in request.deletions]
    names = dict.fromkeys(named + [item.name for item in request.upsertions])
    if not context.may(AclOperation.ALTER, AclResourceType.CLUSTER, CLUSTER):
        return _response(dict.fromkeys(names, _DENIED))
    deferred: Deferred[AlterUserScramCredentialsResponse] = Deferred()
    decoy_key = services.random.randbytes(DECOY_KEY_BYTES)
    outcomes: Outcomes = {}

    def decide(image: MetadataImage) -> Sequence[Change]:
        nonlocal outcomes
        outcomes, changes = decide_alterations(image, context.namespace, request)
        if changes and not image.decoy_key:
            changes.append(PutDecoyKey(decoy_key))
        return changes

    def done(error: BaseException | None) -> None:
        if error is not None:
            refusal = error if isinstance(error, Refusal) else commit_refusal(error)
            deferred.complete(_response({name: outcomes.get(name) or refusal for name in names}))
        else:
            deferred.complete(_response({name: outcomes[name] for name in names}))

    services.metadata.write(decide, done, author=context.author, cost=len(names))
    return deferred


class _Alteration(NamedTuple):
    """What a request wants for one mechanism of a user; `upsertion` None: that it goes."""

    name: str
    mechanism: int
    upsertion: ScramCredentialUpsertion | None

    @property
    def mechanism_name(self) -> str:
        return MECHANISMS[self.mechanism]


def decide_alterations(
    image: MetadataImage, tenant: str, request: AlterUserScramCredentialsRequest
) -> tuple[Outcomes, list[Change]]:
    """What becomes of each user, and the changes that make it so."""
    outcomes: Outcomes = {}
    wanted: dict[str, dict[int, _Alteration]] = {}
    items: list[ScramCredentialDeletion | ScramCredentialUpsertion]
    items = [*request.deletions, *request.upsertions]
    for item in items:
        if outcomes.setdefault(item.name, None) is not None:
            continue
        upsertion = item if isinstance(item, ScramCredentialUpsertion) else None
        alteration = _Alteration(item.name, item.mechanism, upsertion)
        of_user = wanted.setdefault(item.name, {})
        if item.mechanism in of_user:
            outcomes[item.name] = _TWICE
        else:
            of_user[item.mechanism] = alteration
            outcomes[item.name] = _why_not(image, tenant, alteration)
    changes: list[Change] = []
    credentials = dict(image.credentials)
    room = _Room(image, credentials, tenant)
    for name, of_user in wanted.items():
        if outcomes[name] is None:
            outcomes[name] = _why_managed(image, tenant, name, of_user) or room.why_none(name)
        if outcomes[name] is None:
            outcomes[name] = _alter(credentials, tenant, name, of_user.values(), changes.append)
    return outcomes, changes


class _Room:
    """Whether a tenant may have further users. Theirs are counted once for a request, among those
    of the whole cell."""

    def __init__(
        self, image: MetadataImage, credentials: Mapping[str, Credential], tenant: str
    ) -> None:
        self._image = image
        # With what the request has changed so far, all of it of this tenant.
        self._credentials = credentials
        self._tenant = tenant
        self._count_before: int | None = None

    def why_none(self, name: str) -> Refusal | None:
        """Why the tenant may not have this user as a further one."""
        known = self._image.tenant(self._tenant)
        if known is None or login_of(self._tenant, name) in self._credentials:
            return None
        users_max = known.quotas.users
        if users_max is None:
            users_max = USERS_MAX
        if len(self._credentials) < users_max or (count := self._count()) < users_max:
            return None
        return Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"The tenant has {count} users, and may have {users_max}.",
        )

    def _count(self) -> int:
        before = self._image.credentials
        if self._count_before is None:
            self._count_before = sum(one.tenant == self._tenant for one in before.values())
        return self._count_before + len(self._credentials) - len(before)


def _why_not(image: MetadataImage, tenant: str, alteration: _Alteration) -> Refusal | None:
    name, mechanism, upsertion = alteration
    if image.metadata_level < TENANCY_LEVEL:
        return Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The current metadata version does not support SCRAM: it needs {METADATA_VERSION} "
            f"{TENANCY_LEVEL}",
        )
    if not name:
        return _unacceptable("Username must not be empty")
    if mechanism not in MECHANISMS:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if upsertion is None:
        known = _of_user(image.credentials, tenant, name)
        if known is None or alteration.mechanism_name not in known.verifiers:
            return Refusal(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return None
    if tenant == DEFAULT_TENANT and "@" in name:
        return _unacceptable("Username must not contain '@'")
    if upsertion.iterations < ITERATIONS_MIN:
        return _unacceptable("Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        return _unacceptable("Too many iterations")
    size = KEY_BYTES[alteration.mechanism_name]
    if len(upsertion.salted_password) != size:
        return _unacceptable(f"A salted password of {alteration.mechanism_name} has {size} bytes")
    return None


def _why_managed(
    image: MetadataImage, tenant: str, name: str, of_user: Mapping[int, _Alteration]
) -> Refusal | None:
    """Why a control plane's credential is not altered like this."""
    login = login_of(tenant, name)
    owned = image.declarations.owner_of(CREDENTIAL_KIND, tenant, login)
    if owned is None:
        return None
    if declares_verifiers(owned):
        return managed(owned.resource_id, f"User '{name}'", "altered")
    left = set(image.credentials[login].verifiers)
    for alteration in of_user.values():
        change = left.discard if alteration.upsertion is None else left.add
        change(alteration.mechanism_name)
    return None if left else managed(owned.resource_id, f"User '{name}'", "deleted")


def _alter(
    credentials: dict[str, Credential],
    tenant: str,
    name: str,
    alterations: Iterable[_Alteration],
    add: Callable[[Change], object],
) -> Refusal | None:
    login = login_of(tenant, name)
    known = _of_user(credentials, tenant, name)
    if known is None and login in credentials:
        # Somebody else's key, whose tenant is nobody's business.
        return _unacceptable("Username is not available")
    credential = known or Credential(login, tenant, name)
    verifiers = dict(credential.verifiers)
    for alteration in alterations:
        upsertion = alteration.upsertion
        if upsertion is None:
            del verifiers[alteration.mechanism_name]
        else:
            verifiers[alteration.mechanism_name] = verifier_of(
                alteration.mechanism_name,
                upsertion.salted_password,
                upsertion.salt,
                upsertion.iterations,
            )
    if not verifiers:
        del credentials[login]
        add(DeleteCredential(login))
        return None
    credential = replace(credential, verifiers=verifiers)
    reason = why_invalid_credential(credentials, credential)
    if reason:
        return _unacceptable(reason)
    credentials[login] = credential
    add(PutCredential(credential))
    return None


def _of_user(credentials: Credentials, tenant: str, name: str) -> Credential | None:
    """The credential of a tenant's user, as this API knows it."""
    credential = credentials.get(login_of(tenant, name))
    if credential is None or (credential.tenant, credential.principal) != (tenant, name):
        return None
    return credential


def _unacceptable(reason: str) -> Refusal:
    return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)


def _response(outcomes: Mapping[str, Refusal | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name,
                error_code=0 if refusal is None else int(refusal.code),
                error_message=None if refusal is None else refusal.message,
            )
            for name, refusal in outcomes.items()
        ]
    )


def register(table: HandlerTable) -> None:
    table.register(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, MIN_VERSION, MAX_VERSION, handle_describe
    )
    table.register(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, MIN_VERSION, MAX_VERSION, handle_alter)
