"""What a cluster needs of the machine, checked before anything is started."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PACKAGES = {
    "runc": "runc",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "findmnt": "util-linux",
    "ip": "iproute2",
    "openssl": "openssl",
}
"""Commands by the Debian package that has them."""
SYSTEM_FOLDERS = "/usr/sbin:/sbin"
"""Where Debian has commands that an ordinary user's path lacks."""
FILES = {"/usr/lib/cni/ptp": "containernetworking-plugins", "/bin/busybox": "busybox-static"}


class Missing(Exception):
    """The machine cannot run a cluster; the message names all that is missing."""


def check() -> None:
    """Raise ``Missing`` unless a cluster can be started here."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}"
    packages = {package for command, package in PACKAGES.items() if not shutil.which(command, path=path)}
    packages |= {package for file, package in FILES.items() if not Path(file).exists()}
    faults = []
    if os.geteuid() != 0:
        faults.append("root: namespaces, addresses and mounts are made; run it as root")
    if packages:
        faults.append(f"Debian packages: apt-get install {' '.join(sorted(packages))}")
    if faults:
        raise Missing("a cluster cannot be started here; missing are\n" + "\n".join(f"  {fault}" for fault in faults))
