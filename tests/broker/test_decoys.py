"""Who does not exist looks like somebody who does, and always the same."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from data_plane.broker.authentication.decoys import CENSUS_MAX, LOOKS_MAX, Decoys
from data_plane.cell.credentials import KEY_BYTES, Credential, ScramVerifier

KEY = b"k" * 32
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = st.sampled_from([SHA_256, SHA_512])


def verifier(mechanism: str, salt_bytes: int, iterations: int) -> ScramVerifier:
    size = KEY_BYTES[mechanism]
    return ScramVerifier(b"s" * salt_bytes, b"k" * size, b"k" * size, iterations)


def users(
    *looks: tuple[str, int, int], start: int = 0, tenant: str = "default"
) -> dict[str, Credential]:
    return {
        f"u{number}": Credential(f"u{number}", tenant, f"u{number}", {look[0]: verifier(*look)})
        for number, look in enumerate(looks, start)
    }


def decoys(credentials: dict[str, Credential], key: bytes = KEY) -> Decoys:
    return Decoys(lambda: key, lambda: credentials)


def look_of(made: ScramVerifier) -> tuple[int, int]:
    return len(made.salt), made.iterations


@given(MECHANISMS, st.text(max_size=20))
def test_a_login_is_answered_alike_by_all_brokers(mechanism: str, login: str) -> None:
    many = users((SHA_256, 20, 4096), (SHA_512, 64, 8192), (SHA_256, 26, 4096))
    first, second = decoys(many), decoys(dict(many))
    assert first.for_mechanism(mechanism, login) == second.for_mechanism(mechanism, login)
    assert first.for_password(login) == second.for_password(login)
    other = decoys(many, b"o" * 32).for_mechanism(mechanism, login)
    assert other.salt != first.for_mechanism(mechanism, login).salt


def test_decoys_have_what_real_users_have_as_often() -> None:
    looks = [(SHA_256, 20, 4096)] * 300 + [(SHA_256, 26, 8192)] * 100 + [(SHA_256, 64, 16384)] * 20
    made = decoys(users(*looks))
    seen = Counter(look_of(made.for_mechanism(SHA_256, f"n{number}")) for number in range(2_000))
    assert set(seen) == {(20, 4096), (26, 8192), (64, 16384)}
    # By powers of two: 256, 64 and 16.
    assert 1_400 < seen[20, 4096] < 1_650
    assert 280 < seen[26, 8192] < 480
    assert 40 < seen[64, 16384] < 150
    passwords = Counter(made.for_password(f"n{number}")[1].iterations for number in range(500))
    assert set(passwords) == {4096, 8192, 16384}


def test_a_password_of_nobody_costs_what_one_of_a_user_does() -> None:
    """The mechanism with which it is checked, and its iterations."""
    mechanism, made = decoys(users((SHA_512, 30, 16384))).for_password("nobody")
    assert (mechanism, look_of(made)) == (SHA_512, (30, 16384))


def test_without_users_decoys_are_what_clients_make() -> None:
    assert look_of(decoys({}).for_mechanism(SHA_512, "nobody")) == (20, 4096)
    certificate = Credential("x509:…", "default", "c")
    assert decoys({"x509:…": certificate}).for_password("nobody")[0] == SHA_256


def test_few_decoys_change_when_users_come() -> None:
    before = users(*[(SHA_256, 20, 4096)] * 40, *[(SHA_256, 26, 8192)] * 40)
    made = decoys(before)
    salts = {f"n{n}": made.for_mechanism(SHA_256, f"n{n}") for n in range(500)}
    more = {**before, **users(*[(SHA_256, 20, 4096)] * 20, start=1_000)}
    later = decoys(more)
    assert all(later.for_mechanism(SHA_256, login) == old for login, old in salts.items())
    many = {**before, **users(*[(SHA_256, 20, 4096)] * 30, start=1_000)}
    later = decoys(many)
    changed = sum(later.for_mechanism(SHA_256, login) != old for login, old in salts.items())
    assert 0 < changed < 150, "from one in two to two in three"


def test_the_census_is_bounded() -> None:
    many = users(*[(SHA_256, 20, 4096)] * CENSUS_MAX, *[(SHA_256, 99, 9999)] * 5_000)
    made = decoys(many)
    assert {len(made.for_mechanism(SHA_256, f"n{n}").salt) for n in range(300)} == {20}


def seen(made: Decoys, mechanism: str, logins: int = 2_000) -> set[tuple[int, int]]:
    return {look_of(made.for_mechanism(mechanism, f"n{n}")) for n in range(logins)}


def test_a_tenant_does_not_make_logins_dear_by_what_it_gives_its_users() -> None:
    """Each look in the draw costs every attempt an HMAC."""
    odd = users(*[(SHA_256, 16 + n % 100, 4096 + n) for n in range(900)], tenant="odd")
    made = decoys(odd)
    assert len(seen(made, SHA_256)) <= LOOKS_MAX
    assert len({look_of(made.for_password(f"n{n}")[1]) for n in range(2_000)}) <= LOOKS_MAX


def test_a_tenant_does_not_crowd_out_what_others_have() -> None:
    """Else whoever has what no decoy has is known to exist."""
    # What two tenants have comes before what one of them has, and many users before one.
    odd = users(*[(SHA_256, 16 + n % 90, 5000 + n % 90) for n in range(720)], tenant="odd")
    first = users((SHA_256, 20, 4096), start=1_000, tenant="first")
    second = users((SHA_256, 20, 4096), start=2_000, tenant="second")
    many = users(*[(SHA_256, 30, 4200)] * 100, start=3_000, tenant="third")
    looks = seen(decoys({**odd, **first, **second, **many}), SHA_256)
    assert {(20, 4096), (30, 4200)} <= looks
    assert len(looks) <= LOOKS_MAX
