"""Which cluster to ask: options and environment as kubectl names and ranks them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
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
    """The options of the command line; None and "" if they were not given."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str = ""


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


def choice_of(arguments: argparse.Namespace) -> AccessChoice:
    """The values of ``add_access``'s options."""
    return AccessChoice(arguments.kubeconfig, arguments.context, getattr(arguments, "namespace", ""))


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


def connect(access: Access, random: Callable[[], float]) -> Client:
    """A client for reading much: pages of slices take their time on a slow line."""
    from kube.client import Client, RequestLimits

    return Client(access, random=random, user_agent="ostler-explain", limits=RequestLimits(5.0, 60.0, 3))
