"""``ostler extender``: the scheduler extender that places gangs on cells, until a signal ends it."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from ostler.cli.exits import CommandFailed, Exit

if TYPE_CHECKING:
    from ostler.extender.lease import LeaseName
    from ostler.extender.tls import TlsFiles


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Answer kube-scheduler's extender calls: place gangs of pods on cells, whole islands of GPUs that belong\n"
        "to virtual clusters. The configuration says which cells there are and who owns them; it is read again\n"
        "when it changes, and running pods keep their devices. After a restart the pods' own annotations say what\n"
        "is used.\n\n"
        "Without TLS only this machine's loopback addresses are served. In a pod one replica is active by a\n"
        "Lease, and others wait as standby.\n\n"
        "exit codes: 1 the extender failed or lost its lease, 3 the configuration cannot be used"
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="the cells, and who owns them")
    group = parser.add_argument_group("TLS", "all three together; the files are read again when they change")
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate of the port, PEM")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, PEM")
    group.add_argument("--tls-client-ca", type=Path, metavar="FILE", help="CA of the clients' certificates, PEM")
    group.add_argument(
        "--tls-client-name",
        action="append",
        default=[],
        metavar="NAME",
        help="serve only clients whose certificate has this common name, such as system:kube-scheduler",
    )
    parser.add_argument(
        "--lease",
        default="auto",
        metavar="NAMESPACE/NAME",
        help="the Lease by which one replica is active, or off (default: in a pod, its namespace/ostler-extender)",
    )
    parser.add_argument(
        "--http",
        default="off",
        metavar="HOST:PORT",
        help="address of /livez, /readyz and /metrics, or off (default: off)",
    )
    parser.add_argument(
        "--kueue",
        action="store_true",
        help="also answer the AdmissionChecks of Kueue's Workloads whose controllerName is ostler.dev/cells",
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="format of the log")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info", help="its level")


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal; raises ``CommandFailed``."""
    # Here and not above: help needs none of it.
    from kube.errors import ConfigurationError
    from ostler.config.settings import LogFormat, LogSettings
    from ostler.extender.process import ExtenderFailed, ExtenderOptions, ExtenderProcess
    from ostler.extender.tls import TlsError
    from ostler.logs import configure
    from scheduling.cells.configuration import CellsConfigurationError
    from scheduling.cells.scheduler import CellScheduler

    configure(LogSettings(level=arguments.log_level, format=LogFormat(arguments.log_format)))
    identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    try:
        options = ExtenderOptions(
            arguments.config,
            _tls_of(arguments),
            "" if arguments.http == "off" else arguments.http,
            _lease_of(arguments.lease),
            identity=identity,
            is_for_kueue=arguments.kueue,
        )
        process = ExtenderProcess(options, os.environ, CellScheduler)
    except (CellsConfigurationError, TlsError, ExtenderFailed, ConfigurationError) as error:
        raise CommandFailed(f"the configuration is not usable\n{error}", Exit.CONFIG) from error
    signal.signal(signal.SIGTERM, lambda *_: process.stop())
    signal.signal(signal.SIGINT, lambda *_: process.stop())
    signal.signal(signal.SIGHUP, lambda *_: process.reload())
    try:
        process.run()
    except ExtenderFailed as error:
        raise CommandFailed(f"the extender failed: {error}") from error
    return Exit.OK


def _tls_of(arguments: argparse.Namespace) -> TlsFiles | None:
    from ostler.extender.tls import TlsFiles

    given = {
        "--tls-cert": arguments.tls_cert,
        "--tls-key": arguments.tls_key,
        "--tls-client-ca": arguments.tls_client_ca,
    }
    missing = [option for option, path in given.items() if path is None]
    if len(missing) == len(given):
        if arguments.tls_client_name:
            raise CommandFailed("--tls-client-name needs --tls-cert, --tls-key and --tls-client-ca", Exit.USAGE)
        return None
    if missing:
        raise CommandFailed(f"TLS needs {' and '.join(missing)} as well", Exit.USAGE)
    names = frozenset(arguments.tls_client_name)
    return TlsFiles(arguments.tls_cert, arguments.tls_key, arguments.tls_client_ca, names)


def _lease_of(text: str) -> LeaseName | None:
    from ostler.extender.lease import LeaseName
    from ostler.extender.process import default_lease

    if text == "off":
        return None
    if text == "auto":
        return default_lease(os.environ)
    namespace, separator, name = text.partition("/")
    if not (separator and namespace and name) or "/" in name:
        raise CommandFailed(f"--lease: {text!r} is not NAMESPACE/NAME, auto or off", Exit.USAGE)
    return LeaseName(namespace, name)
