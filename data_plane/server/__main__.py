"""`python -m data_plane.server`: run one broker.

Exit status: 0 after a clean stop, 1 when the broker failed or had to make room for another process
with its number, 2 when its configuration is wrong, its data directory cannot be used or its number
is taken; the reason is on stderr.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from data_plane.cell.identity import IdentityMismatch
from data_plane.cell.metadata_store import StoreError
from data_plane.cell.registration import RegistrationRefused
from data_plane.log.errors import DirectoryLocked, DuplicateLog
from data_plane.server.configuration import ConfigurationError, load_configuration
from data_plane.server.features import topic_properties

if TYPE_CHECKING:
    from data_plane.server.features import Feature

EXIT_FAILED = 1
EXIT_CONFIGURATION = 2


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_plane.server",
        description="Run one Tidewheel broker. Properties have Kafka's names; see"
        " docs/configuration.md.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="a properties file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one property; stronger than the environment and the file; repeatable",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="short for log.dirs")
    parser.add_argument("--node-id", type=int, metavar="I", help="short for node.id")
    parser.add_argument("--cluster-id", metavar="ID", help="short for cluster.id")
    parser.add_argument("--listen", metavar="HOST:PORT", help="short for listeners")
    parser.add_argument("--advertised", metavar="HOST:PORT", help="short for advertised.listeners")
    parser.add_argument(
        "--metrics-listen", metavar="HOST:PORT", help="short for http.host and http.port"
    )
    parser.add_argument("--log-file", type=Path, metavar="FILE", help="log here, not to stderr")
    parser.add_argument(
        "--ready-fd",
        type=int,
        metavar="FD",
        help='write {"event": "ready", "port": …, "metrics_port": …} there once serving; '
        "a broker whose starter has closed the other end before stops",
    )
    parser.add_argument(
        "--check", action="store_true", help="look at the configuration only; start nothing"
    )
    return parser.parse_args(arguments)


def flags_of(options: argparse.Namespace) -> list[str]:
    """All flags as KEY=VALUE. Raises ConfigurationError."""
    flags: list[str] = list(options.set)
    if options.data_dir is not None:
        flags.append(f"log.dirs={options.data_dir}")
    if options.node_id is not None:
        flags.append(f"node.id={options.node_id}")
    if options.cluster_id is not None:
        flags.append(f"cluster.id={options.cluster_id}")
    if options.listen is not None:
        flags.append(f"listeners=PLAINTEXT://{options.listen}")
    if options.advertised is not None:
        flags.append(f"advertised.listeners=PLAINTEXT://{options.advertised}")
    if options.metrics_listen is not None:
        host, separator, port = options.metrics_listen.rpartition(":")
        if not separator or not port.isdigit():
            raise ConfigurationError([f"--metrics-listen {options.metrics_listen}: not HOST:PORT"])
        flags += [f"http.host={host.strip('[]')}", f"http.port={port}"]
    return flags


def main(arguments: Sequence[str], features: Sequence[Feature] = ()) -> int:
    """Run a broker, with what is plugged into it."""
    options = parse_arguments(arguments)
    try:
        settings = load_configuration(
            file=options.config,
            environment=os.environ,
            flags=flags_of(options),
            topics=topic_properties(features),
        )
    except ConfigurationError as error:
        return _refuse(error)
    if options.check:
        return 0
    from data_plane.server.broker_process import SupersededError, run_broker
    from data_plane.server.entry import NodeIdTaken
    from data_plane.server.logging_setup import make_logger

    log = make_logger(
        settings.logging_level,
        settings.logging_format,
        options.log_file,
        node_id=settings.node_id,
    )
    for name, reason in settings.moot_properties():
        log.warning("property_without_effect", property=name, reason=reason)
    try:
        run_broker(settings, options.ready_fd, log, features)
    except ConfigurationError as error:
        return _refuse(error)
    except (
        IdentityMismatch,
        StoreError,
        RegistrationRefused,
        DirectoryLocked,
        DuplicateLog,
    ) as error:
        print(f"data directory or metadata: {error}", file=sys.stderr)
        return EXIT_CONFIGURATION
    except NodeIdTaken as error:
        print(f"node.id: {error}", file=sys.stderr)
        return EXIT_CONFIGURATION
    except OSError as error:
        print(f"cannot start: {error}", file=sys.stderr)
        return EXIT_CONFIGURATION
    except SupersededError as error:
        print(error, file=sys.stderr)
        return EXIT_FAILED
    return 0


def _refuse(error: ConfigurationError) -> int:
    for problem in error.problems:
        print(f"configuration: {problem}", file=sys.stderr)
    return EXIT_CONFIGURATION


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
