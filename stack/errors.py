"""The stack's one fault: a message for the person at the terminal, and an exit status."""

from __future__ import annotations

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class StackError(Exception):
    """Something the user can act on. `exit_status` is what the command ends with."""

    def __init__(self, message: str, exit_status: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def describe_os_error(error: OSError) -> str:
    """`/data/stack.json: No space left on device`, for a person."""
    words = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {words}" if error.filename else words
