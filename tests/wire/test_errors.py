"""The error codes: complete, named and classed as Kafka has them."""

from __future__ import annotations

import kio.schema.errors
import pytest

from data_plane.wire.errors import (
    ErrorCode,
    InvalidMessage,
    InvalidRecords,
    MalformedFrame,
    UnsupportedVersion,
    WireError,
)

KNOWN_BY_KIO = {int(code): code for code in kio.schema.errors.ErrorCode}


def test_codes_are_without_gaps() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))
    assert set(KNOWN_BY_KIO) <= {int(code) for code in ErrorCode}


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_its_name_and_whether_it_is_retriable(code: ErrorCode) -> None:
    known = KNOWN_BY_KIO[code]
    assert known.name.upper() == code.name
    assert known.retriable == code.retriable


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_sentence(code: ErrorCode) -> None:
    assert code.message.endswith(".")
    assert 8 < len(code.message) < 100


def test_sentences_tell_codes_apart() -> None:
    assert len({code.message for code in ErrorCode}) == len(ErrorCode)


def test_faults_have_one_base() -> None:
    for fault in (MalformedFrame, UnsupportedVersion, InvalidMessage, InvalidRecords):
        assert issubclass(fault, WireError)
    refused = InvalidRecords(ErrorCode.CORRUPT_MESSAGE, "CRC differs")
    assert (refused.error_code, str(refused)) == (ErrorCode.CORRUPT_MESSAGE, "CRC differs")
