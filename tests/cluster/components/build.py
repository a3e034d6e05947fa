"""Builds the cluster's components from their pinned Go modules, once per content.

Each set of binaries is a Go module of its own, because their dependencies disagree; ``go.sum`` pins all of it. The
binaries lie in the cache folder under the hash of what they are made from, so that no test ever builds anything that
was built before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.components.toolchain import go_command
from tests.cluster.components.versions import pinned
from tests.making.cache import cached, digest

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
"""Names under which the one binary of Kubernetes is called."""

SOURCES = Path(__file__).parent


def kubernetes(version: str = "") -> Path:
    """Folder with ``kubernetes`` and a link to it per component; about 4 minutes on 2 cores when it must be built."""
    version = pinned(version)
    source = SOURCES / "kubernetes"
    files = {
        "main.go": (source / "main.go").read_bytes(),
        "go.mod": (source / f"v{version}.mod").read_bytes(),
        "go.sum": (source / f"v{version}.sum").read_bytes(),
    }
    major, minor, _ = version.split(".")
    stamp = "k8s.io/component-base/version"
    # Without these the API server says v0.0.0-master, which no chart's kubeVersion accepts.
    flags = f"-s -w -X {stamp}.gitVersion=v{version} -X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"

    def make(folder: Path) -> None:
        build_module(f"Kubernetes {version}", files, folder, ["build", "-ldflags", flags, "-o", "bin/kubernetes", "."])
        for component in COMPONENTS:
            (folder / "bin" / component).symlink_to("kubernetes")

    return cached(f"components/kubernetes-{version}-{digest(*files.values())}", make) / "bin"


def containerd() -> Path:
    """Folder with ``containerd``, ``containerd-shim-runc-v2`` and ``ctr``."""
    return _tools_of("containerd")


def tools() -> Path:
    """Folder with ``helm`` and ``grpcurl``."""
    return _tools_of("tools")


def kueue() -> Path:
    """Folder with ``kueue``, Kueue's manager, and ``manifests``: its CRDs (``crd``) and its ``webhooks.yaml``."""
    files = {file: (SOURCES / "kueue" / file).read_bytes() for file in ("go.mod", "go.sum")}

    def make(folder: Path) -> None:
        build_module("Kueue", files, folder, ["install", "-ldflags", "-s -w", "tool"])
        module = "sigs.k8s.io/kueue"
        listed = subprocess.run(
            [go_command(), "list", "-m", "-f", "{{.Dir}}", module],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        source = Path(listed.stdout.strip()) / "config/components"
        shutil.copytree(source / "crd/bases", folder / "bin/manifests/crd")
        shutil.copyfile(source / "webhook/manifests.yaml", folder / "bin/manifests/webhooks.yaml")

    return cached(f"components/kueue-{digest(*files.values())}", make) / "bin"


def _tools_of(name: str) -> Path:
    files = {file: (SOURCES / name / file).read_bytes() for file in ("go.mod", "go.sum")}
    return (
        cached(
            f"components/{name}-{digest(*files.values())}",
            lambda folder: build_module(name, files, folder, ["install", "-ldflags", "-s -w", "tool"]),
        )
        / "bin"
    )


def build_module(what: str, files: dict[str, bytes], folder: Path, command: list[str]) -> None:
    """Run ``go command`` on a module of ``files`` in ``folder``; the binaries are in ``bin`` afterwards."""
    sys.stderr.write(f"building {what} (once; kept in {folder.parent}) ...\n")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "bin").mkdir()
    environment = {
        **os.environ,
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOBIN": str(folder / "bin"),
        "GOTOOLCHAIN": "local",
        "GO111MODULE": "on",
        "CGO_ENABLED": "0",
    }
    subprocess.run([go_command(), *command], cwd=folder, env=environment, check=True)
