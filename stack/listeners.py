"""What a stack's brokers listen on besides the port that everybody may use.

    BASE + i           anybody, as the tenant `default`; with --secure, SASL
    BASE + 4,000 + i   SASL: users with a password, on loopback
    BASE + 5,000 + i   SASL within TLS
    BASE + 6,000 + i   CellAdmin, for the operator's certificate

A person who sets `listeners` or `cell.admin.listener` has said what is listened on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from stack.ports import CELL_ADMIN_PORT_DISTANCE, SASL_PORT_DISTANCE, TLS_PORT_DISTANCE, port_beside

if TYPE_CHECKING:
    from stack.certificates import StackCertificates

ANYBODY: Final = "PLAINTEXT"
SASL: Final = "SASL_PLAINTEXT"
SASL_TLS: Final = "SASL_SSL"
MECHANISMS: Final = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"


def listener_settings(
    port: int, given: Iterable[str], certificates: StackCertificates, *, is_secure: bool
) -> tuple[str, ...]:
    """The properties of one broker whose first listener is to have `port`, 0 for any; `given` are
    those of the person."""
    names = {setting.partition("=")[0].strip() for setting in given}
    settings: list[str] = []
    if "listeners" not in names:
        listeners = [] if is_secure else [(ANYBODY, port)]
        sasl_port = port if is_secure else port_beside(port, SASL_PORT_DISTANCE)
        listeners += [(SASL, sasl_port), (SASL_TLS, port_beside(port, TLS_PORT_DISTANCE))]
        addresses = ",".join(f"{name}://127.0.0.1:{each}" for name, each in listeners)
        settings += [
            f"listeners={addresses}",
            f"sasl.enabled.mechanisms={MECHANISMS}",
            f"ssl.keystore.location={certificates.keystore}",
        ]
    if "cell.admin.listener" not in names:
        certificate, key = certificates.cell_admin
        settings += [
            f"cell.admin.listener=127.0.0.1:{port_beside(port, CELL_ADMIN_PORT_DISTANCE)}",
            f"cell.admin.tls.certificate={certificate}",
            f"cell.admin.tls.key={key}",
            f"cell.admin.tls.ca={certificates.operators_authority}",
        ]
    return tuple(settings)
