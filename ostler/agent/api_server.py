"""How this agent reaches the API server: the one place that turns settings into access.

Loaded only where the API server is to be spoken to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kube.access import SERVICE_ACCOUNT, Access, in_cluster
from kube.kubeconfig import from_kubeconfig


def api_access(kubeconfig: Path | None, environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Access:
    """By the kubeconfig that is given, else by the pod's account; raises ``kube.errors.ConfigurationError``."""
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig)
    return in_cluster(environment, account)
