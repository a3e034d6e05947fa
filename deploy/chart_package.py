"""The chart as a package, signed by the person who releases it: ``python -m deploy.chart_package``.

What only the releasing person knows is put into a copy of the chart's metadata: where the sources are (``--source``),
and where the public key is that verifies packages (``--key-url``). Signing is Helm's own, by a key of that person's
keyring; for a release (``--release``) a package without a signature is refused.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from deploy.generate import CHART, ROOT, tests_helm

KEYRING = Path.home() / ".gnupg" / "secring.gpg"
"""Where Helm looks for secret keys: the format of GnuPG 1, which newer versions export."""
EXPORT = f"gpg --export-secret-keys >{KEYRING}"


class PackageError(Exception):
    """The chart cannot be packaged."""


@dataclass(frozen=True, slots=True)
class Signer:
    """A key by its user id, in a keyring; ``passphrase``: a file with the key's, where it has one."""

    key: str
    keyring: Path
    passphrase: Path | None = None

    def options(self) -> list[str]:
        """For ``helm package``; raises ``PackageError`` where there is no keyring."""
        if not self.keyring.is_file():
            raise PackageError(
                f"the keyring {self.keyring} is not there, so nothing can be signed as {self.key}: "
                f"make it with '{EXPORT}', or name another one with KEYRING=FILE"
            )
        secret = ["--passphrase-file", str(self.passphrase)] if self.passphrase is not None else []
        return ["--sign", "--key", self.key, "--keyring", str(self.keyring), *secret]


def stage(folder: Path, source: str = "", key_url: str = "", fingerprint: str = "") -> Path:
    """A copy of the chart with what the releasing person adds to its metadata."""
    copy = folder / CHART.name
    shutil.copytree(CHART, copy)
    metadata = yaml.safe_load((copy / "Chart.yaml").read_text(encoding="utf-8"))
    if source:
        metadata |= {"home": source, "sources": [source]}
    if key_url:
        key = {"fingerprint": fingerprint, "url": key_url}
        metadata["annotations"] |= {"artifacthub.io/signKey": yaml.safe_dump(key)}
    (copy / "Chart.yaml").write_text(yaml.safe_dump(metadata, sort_keys=False, width=10_000), encoding="utf-8")
    return copy


def package(chart: Path, target: Path, helm: Path, signer: Signer | None) -> list[Path]:
    """Make the package in ``target``, with its signature beside it; raises ``PackageError``.

    Helm leaves a package that it could not sign, so nothing comes into ``target`` before all is made.
    """
    options = signer.options() if signer is not None else []
    with tempfile.TemporaryDirectory() as folder:
        command = [str(helm), "package", str(chart), "--destination", folder, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PackageError(f"helm makes no package: {done.stderr.strip()}")
        target.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.move(made, target / made.name)) for made in sorted(Path(folder).iterdir())]


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 1 when there is no package."""
    parser = argparse.ArgumentParser(prog="deploy.chart_package", description="The chart as a package.")
    parser.add_argument("--key", default="", help="user id of the key that signs, or a part of it")
    parser.add_argument("--keyring", type=Path, default=KEYRING, metavar="FILE", help=f"default: {KEYRING}")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="with the key's; else Helm asks for it")
    parser.add_argument("--source", default="", metavar="URL", help="where the sources are")
    parser.add_argument("--key-url", default="", metavar="URL", help="where the public key is, for Artifact Hub")
    parser.add_argument("--fingerprint", default="", help="of the public key")
    parser.add_argument("--release", action="store_true", help="refuse to make a package that is not signed")
    parser.add_argument("--helm", type=Path, metavar="PATH", help="default: the tests' own")
    parser.add_argument(
        "--to", type=Path, default=ROOT / "build" / "chart", metavar="FOLDER", help="default: build/chart"
    )
    arguments = parser.parse_args(words)
    signer = Signer(arguments.key, arguments.keyring, arguments.passphrase_file) if arguments.key else None
    if bool(arguments.key_url) != bool(arguments.fingerprint):
        parser.error("--key-url and --fingerprint describe one key: give both or neither")
    try:
        if signer is None and arguments.release:
            raise PackageError("no key is given, and a release is signed: give KEY=USER-ID (and KEYRING=FILE)")
        with tempfile.TemporaryDirectory() as folder:
            chart = stage(Path(folder), arguments.source, arguments.key_url, arguments.fingerprint)
            for made in package(chart, arguments.to, arguments.helm or tests_helm(), signer):
                print(f"{made} written")
    except PackageError as error:
        print(f"deploy.chart_package: {error}", file=sys.stderr)
        return 1
    if signer is None:
        print("the package is not signed, because no key is given: KEY=USER-ID signs it", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
