"""What a machine of the tests is made of: a small Debian with systemd, and the wheels of the lock file.

Both are made once and kept in the cache folder, the Debian by the list of its packages, the wheels by the lock file.
The Debian's interpreter is the one that the service runs with.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from deploy.image.lock import runtime_subset
from systemd.release import SOURCE
from tests.making.cache import cached, digest

SUITE = "bookworm"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "libudev1",
    "python3-minimal",
    "libpython3-stdlib",
    "python3-venv",
)
PYTHON = "/usr/bin/python3.11"
"""The interpreter of that suite."""


def made(command: list[str], what: str, environment: dict[str, str] | None = None) -> None:
    """Run a command that makes something; raises RuntimeError with what it wrote."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise RuntimeError(f"{what} could not be made: {done.stderr.strip()[-2000:] or done.stdout.strip()[-2000:]}")


def debian() -> Path:
    """The root of a Debian that boots; takes about a minute when it is not there yet."""

    def make(folder: Path) -> None:
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(folder)]
        made(command, "the Debian root")
        shutil.rmtree(folder / "var/cache/apt", ignore_errors=True)
        # Empty: each machine gives itself an identity of its own.
        (folder / "etc/machine-id").write_text("")

    return cached(f"systemd-root-{digest(SUITE, *PACKAGES)}", make)


def wheels() -> Path:
    """The wheels that an installation downloads, so that installing again needs no network."""
    subset = runtime_subset((SOURCE / "requirements.lock").read_text())

    def make(folder: Path) -> None:
        wanted = folder / "requirements.txt"
        wanted.write_text(subset)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pip += ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--require-hashes"]
        made([*pip, "--dest", str(folder), "--requirement", str(wanted)], "the folder of wheels")

    return cached(f"systemd-wheels-{digest(subset)}", make)
