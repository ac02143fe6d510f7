"""What a process of the control plane says to whoever has started it and wants to know.

`--ready-fd N` names the end of a pipe, to which goes one line of JSON when the process serves, as
brokers do it. Whoever started it may have ended before; then nobody knows of this process, and it
ends, too.
"""

from __future__ import annotations

import json
import os


def say(ready_fd: int | None, event: str, **values: object) -> bool:
    """Say it, once, where anybody asked. False when nobody reads it any more."""
    if ready_fd is None:
        return True
    try:
        os.write(ready_fd, json.dumps({"event": event, **values}).encode() + b"\n")
    except BrokenPipeError:
        return False
    finally:
        os.close(ready_fd)
    return True
