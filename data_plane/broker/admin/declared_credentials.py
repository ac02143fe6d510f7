"""Declared credentials: how one becomes what its resource says (declarations.py).

A resource remembers a hash of the verifiers that were declared, which tells equal ones from others;
the verifiers are kept once, in the credential. Where none were declared those that are there stay,
and Kafka's clients change them (AlterUserScramCredentials).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from data_plane.broker.admin.declared import Denied, Outcome, Resource
from data_plane.broker.request.refusal import Refusal
from data_plane.broker.services import Services
from data_plane.cell.changes import Change
from data_plane.cell.credentials import (
    DECOY_KEY_BYTES,
    Credential,
    DeleteCredential,
    PutCredential,
    PutDecoyKey,
    ScramVerifier,
    encode_key,
    is_certificate_login,
    why_invalid_credential,
)
from data_plane.cell.declarations import CREDENTIAL_KIND, Declaration
from data_plane.cell.metadata import MetadataImage
from data_plane.cell.tenants import DEFAULT_TENANT
from data_plane.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class CredentialSpecification:
    """What is declared of a credential. No `verifiers`: those that there are."""

    KIND: ClassVar[str] = CREDENTIAL_KIND

    principal: str
    verifiers: Mapping[str, ScramVerifier] = field(default_factory=dict)
    networks: tuple[str, ...] = ()
    is_disabled: bool = False
    expires_at_ms: int = 0

    def to_text(self) -> str:
        document = {
            "principal": self.principal,
            "iterations": {name: one.iterations for name, one in self.verifiers.items()},
            "verifiers_sha256": _hash_of(self.verifiers) if self.verifiers else None,
            "networks": self.networks,
            "is_disabled": self.is_disabled,
            "expires_at_ms": self.expires_at_ms,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))


def declares_verifiers(owned: Declaration) -> bool:
    """Whether the verifiers of this credential are the control plane's, too."""
    document: dict[str, Any] = json.loads(owned.specification)
    return document["verifiers_sha256"] is not None


def _hash_of(verifiers: Mapping[str, ScramVerifier]) -> str:
    texts = [
        [mechanism, encode_key(salt), encode_key(stored), encode_key(server), iterations]
        for mechanism, (salt, stored, server, iterations) in sorted(verifiers.items())
    ]
    return hashlib.sha256(json.dumps(texts, separators=(",", ":")).encode()).hexdigest()


class CredentialDecision:
    """See `KindDecision`."""

    def __init__(self, services: Services, image: MetadataImage) -> None:
        self._credentials = dict(image.credentials)
        self._needs_decoy_key = not image.decoy_key
        self._random = services.random

    def put(self, resource: Resource, owned: Declaration | None) -> Sequence[Change]:
        specification = resource.specification
        assert isinstance(specification, CredentialSpecification)
        login = resource.name
        _check_login(resource.tenant, login)
        old = self._credentials.get(login)
        new = Credential(login, resource.tenant, specification.principal)
        if old is not None:
            if old.tenant == resource.tenant and owned is None and not resource.take_over:
                reason = "a Kafka client has made the login; take it over to manage it"
                raise Denied(Outcome.CONFLICT, reason)
            new = replace(old, tenant=resource.tenant, principal=specification.principal)
        new = replace(
            new,
            verifiers=specification.verifiers or new.verifiers,
            networks=specification.networks,
            is_disabled=specification.is_disabled,
            expires_at_ms=specification.expires_at_ms,
        )
        reason = why_invalid_credential(self._credentials, new)
        if reason:
            raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
        if new == old:
            return []
        self._credentials[login] = new
        return [PutCredential(new)]

    def remove(self, owned: Declaration) -> Sequence[Change]:
        old = self._credentials.pop(owned.declared.name, None)
        return [] if old is None else [DeleteCredential(old.login)]

    def follow_ups(self, changes: Sequence[Change]) -> Sequence[Change]:
        if self._needs_decoy_key and any(isinstance(change, PutCredential) for change in changes):
            return [PutDecoyKey(self._random.randbytes(DECOY_KEY_BYTES))]
        return ()


def _check_login(tenant: str, login: str) -> None:
    """That a login does not look like one of another tenant's users. Raises Refusal."""
    if is_certificate_login(login):
        # Its name may be an address of mail. Whoever registers it first has it.
        return
    _, at, named = login.rpartition("@")
    if at and (named != tenant or tenant == DEFAULT_TENANT):
        message = f"'{login}' is no login of the tenant {tenant}: it ends with @{named}"
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
