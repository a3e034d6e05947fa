"""Where objects are read from: a cluster, by options and environment as kubectl names and ranks them, or files."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scheduling.explain.state import ExplainError

if TYPE_CHECKING:
    from kube.access import Access
    from kube.client import Client

DEFAULT_KUBECONFIG = Path(".kube/config")
"""Below the home folder."""


@dataclass(frozen=True, slots=True)
class AccessChoice:
    """The options of the command line; None if they were not given."""

    kubeconfig: Path | None = None
    context: str | None = None


def add_access(parser: argparse.ArgumentParser, *, namespace: bool = True) -> None:
    """Add ``--kubeconfig``, ``--context`` and, with ``namespace``, ``-n``."""
    group = parser.add_argument_group("the cluster")
    group.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="how to reach it (default: $KUBECONFIG, else ~/.kube/config, else a pod's service account)",
    )
    group.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    if namespace:
        group.add_argument("-n", "--namespace", default="", metavar="NAME", help="namespace (default: the context's)")


def add_filename(parser: argparse.ArgumentParser, text: str) -> None:
    """Add ``-f``, which may be repeated; ``text``: what the files hold."""
    parser.add_argument("-f", "--filename", action="append", default=[], metavar="FILE", help=text)


def add_origin(parser: argparse.ArgumentParser, text: str = "read this file or folder instead of a cluster") -> None:
    """Add ``--from``, which may be repeated, as ``origin``."""
    parser.add_argument("--from", dest="origin", action="append", default=[], metavar="FILE", help=text)


def find_access(choice: AccessChoice, environment: Mapping[str, str], account: Path | None = None) -> Access:
    """How to reach the cluster; raises ``kube.errors.ConfigurationError``, and ``ExplainError`` if nothing says.

    Of several files in $KUBECONFIG it takes the first that exists; kubectl would merge them.
    """
    from kube.access import SERVICE_ACCOUNT, in_cluster, runs_in_cluster
    from kube.kubeconfig import from_kubeconfig

    if choice.kubeconfig is not None:
        return from_kubeconfig(choice.kubeconfig, choice.context)
    named = [Path(name) for name in environment.get("KUBECONFIG", "").split(":") if name]
    home = [Path(environment["HOME"]) / DEFAULT_KUBECONFIG] if environment.get("HOME") else []
    found = next((path for path in (named or home) if path.exists()), None)
    if found is None and named:
        # Not the home folder's: whoever sets the variable does not mean that cluster.
        found = named[0]
    if found is not None:
        return from_kubeconfig(found, choice.context)
    folder = account or SERVICE_ACCOUNT
    if runs_in_cluster(environment, folder):
        return in_cluster(environment, folder)
    raise ExplainError(
        "no cluster is known: there is no kubeconfig; give one with --kubeconfig or $KUBECONFIG, or files with --from"
    )


@dataclass(frozen=True, slots=True)
class OpenCluster:
    """A cluster that can be asked. ``namespace``: the one of the options, else the context's, else ``default``."""

    client: Client
    server: str
    namespace: str
    default: str
    """The namespace without the options."""


@contextmanager
def open_cluster(arguments: argparse.Namespace) -> Iterator[OpenCluster]:
    """The cluster that ``add_access``'s options name, for reading much: pages of slices take their time on a slow line.

    Raises as ``find_access`` does.
    """
    from kube.client import Client, RequestLimits
    from node.clocks import chance

    access = find_access(AccessChoice(arguments.kubeconfig, arguments.context), os.environ)
    default = access.namespace or "default"
    limits = RequestLimits(5.0, 60.0, 3)
    with closing(Client(access, random=chance, user_agent="ostler-explain", limits=limits)) as client:
        yield OpenCluster(client, access.server, arguments.namespace or default, default)
