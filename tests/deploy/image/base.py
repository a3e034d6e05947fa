"""A Python base made from this machine's own interpreter, for building the image where no registry can be reached.

It has what the Dockerfile asks of a base: the interpreter behind the tests' virtual environment with its libraries,
pip, ldconfig, libudev, and busybox as the shell. That the finished image has none of pip and shell is then a proof.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from deploy.image import debian, runtime

TOOLS = {"buildah": "buildah", "busybox": "busybox-static", "ldconfig": "libc-bin", "chroot": "coreutils"}
"""Programs that making a base and an image, and running it, needs, and the Debian packages that have them."""
_SHELL = ("sh", "mkdir", "cat", "ls", "cp", "rm")


class ToolMissing(Exception):
    """A program or module is not on this machine; the message names what to install."""


def interpreter() -> Path:
    """The interpreter that the virtual environment of the tests was made with."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def program(name: str) -> Path:
    """A program's path; raises ``ToolMissing``."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise ToolMissing(f"{name} is missing: install the package {TOOLS[name]}")
    return Path(found)


def fill_base(target: Path) -> str:
    """Put a base into the empty folder ``target`` and return the ``PATH`` that it needs; raises ``ToolMissing``."""
    pip = importlib.util.find_spec("pip")
    if pip is None or pip.origin is None:
        raise ToolMissing("pip is missing in the virtual environment of the tests: make it anew with 'make setup'")
    python = interpreter()
    subprocess.run([str(python), runtime.__file__, str(target)], check=True)
    debian.record(target)
    query = "import site, sys; print(site.getsitepackages()[0]); print(sys.base_exec_prefix)"
    packages, prefix = subprocess.run(
        [str(python), "-c", query], check=True, capture_output=True, text=True
    ).stdout.split()
    kept_out = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(pip.origin).parent, target / packages.lstrip("/") / "pip", ignore=kept_out)
    for tool in ("ldconfig", "busybox"):
        for source in _versions(program(tool)):
            (target / "usr/sbin").mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / "usr/sbin" / source.name)
    for applet in _SHELL:
        (target / "usr/sbin" / applet).symlink_to("busybox")
    shell = target / "bin/sh"
    if not shell.exists():
        shell.parent.resolve().mkdir(parents=True, exist_ok=True)
        shell.symlink_to("/usr/sbin/busybox")
    (target / "tmp").mkdir(mode=0o1777)
    return f"{prefix}/bin:/usr/sbin:/usr/bin:/bin"


def _versions(path: Path) -> Iterator[Path]:
    """A program, and what it is a script in front of (Ubuntu's ldconfig)."""
    yield path
    real = path.with_name(f"{path.name}.real")
    if real.exists():
        yield real
