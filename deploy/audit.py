"""Known vulnerabilities of the packages that run on nodes, as an index lists them: ``python -m deploy.audit``.

pip-audit asks for each package of the lock file's runtime part at its locked version; nothing is installed or resolved.
The exit code tells three answers apart: 0 none is known, 1 some are known, 2 the index could not be asked. Not having
been able to ask is never shown as being free of vulnerabilities.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.image.lock import LockFileError, runtime_subset

ROOT = Path(__file__).resolve().parent.parent
NONE_KNOWN, KNOWN, NOT_ASKED = 0, 1, 2
"""Exit codes."""
SERVICES = ("osv", "pypi")
"""Indexes by name."""
SECONDS = 15
"""For which an answer of the index is waited."""


class NotAsked(Exception):
    """The index could not be asked, or not for all packages."""


def asked(requirements: Path, index: str) -> list[dict[str, Any]]:
    """The index's answer for each package; raises ``NotAsked``."""
    options = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")
    where = ("--vulnerability-service", index) if index in SERVICES else ("-s", "osv", "--osv-url", index)
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(requirements), *options]
    command += ["--timeout", str(SECONDS), *where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError) as error:
        # Its exit code is 1 for vulnerabilities and for faults alike.
        lines = done.stderr.strip().splitlines() or [f"pip-audit ended with {done.returncode} and said nothing"]
        raise NotAsked(lines[-1]) from error
    skipped = [each["skip_reason"] for each in packages if "skip_reason" in each]
    if skipped or not packages:
        first = f", the first: {skipped[0]}" if skipped else ""
        raise NotAsked(f"no answer for {len(skipped)} of {len(packages)} packages{first}")
    return packages


def report(packages: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each known vulnerability."""
    return [
        f"{package['name']} {package['version']}: {found['id']}"
        f"{' (' + ', '.join(found['aliases']) + ')' if found['aliases'] else ''}, "
        f"fixed in {', '.join(found['fix_versions']) or 'no version yet'}"
        for package in packages
        for found in package["vulns"]
    ]


def main(words: Sequence[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(
        prog="deploy.audit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    help_ = "osv (the default), pypi, or the URL of a mirror that answers as OSV's query does"
    parser.add_argument("--index", default="osv", help=help_)
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements.lock", metavar="FILE")
    arguments = parser.parse_args(words)
    where = arguments.index
    if where not in SERVICES and not where.startswith(("http://", "https://")):
        parser.error(f"the index {where} must be one of {', '.join(SERVICES)}, or a URL")
    try:
        with tempfile.TemporaryDirectory() as folder:
            requirements = Path(folder, "runtime.lock")
            requirements.write_text(runtime_subset(arguments.lock.read_text(encoding="utf-8")), encoding="utf-8")
            packages = asked(requirements, where)
    except (NotAsked, LockFileError, OSError) as error:
        print(
            f"deploy.audit: it is not known whether the packages have vulnerabilities: {where} could not be asked: "
            f"{error}; try again with network access, or name a mirror with INDEX=URL",
            file=sys.stderr,
        )
        return NOT_ASKED
    lines = report(packages)
    for line in lines:
        print(line)
    print(f"known vulnerabilities in {len(packages)} packages, by {where}: {len(lines)}")
    return KNOWN if lines else NONE_KNOWN


if __name__ == "__main__":
    sys.exit(main())
