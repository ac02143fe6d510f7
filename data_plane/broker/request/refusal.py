"""An administrative request that is refused: Kafka's error code and words. An expected outcome, so
a value and not an exception, except where `raise` carries it out of a nested decision."""

from __future__ import annotations

from data_plane.wire.errors import ErrorCode


class Refusal(Exception):
    """Raised by pure decisions, turned into one element of a response by their handler."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


# A failed commit's outcome is unknown; Kafka's clients ask again after this code.
def commit_refusal(error: BaseException) -> Refusal:
    """What to answer when the metadata store could not commit, or was not asked at all."""
    if isinstance(error, Refusal):
        return error
    return Refusal(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store did not commit: {error}")
