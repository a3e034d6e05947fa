"""The image's base by digest: a tag may name another image tomorrow, a digest never does.

``python -m deploy.image.pinning base [BASE]`` prints the base to build on: the given one, or the Dockerfile's. For one
without a digest it warns, and for a release (``--release``) it refuses it. ``... pin [NAME:TAG]`` asks the registry for
the digest and writes it into the Dockerfile, where every builder and every tool that updates digests finds it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

DOCKERFILE = Path(__file__).with_name("Dockerfile")
_DEFAULT = re.compile(r"(?m)^ARG BASE=(\S+)$")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class PinningError(Exception):
    """The image has no usable base, or the registry gives no digest of it."""


def default_base(dockerfile: str) -> str:
    """The base that a Dockerfile names; raises ``PinningError``."""
    found = _DEFAULT.findall(dockerfile)
    if len(found) != 1:
        raise PinningError(f"the Dockerfile has {len(found)} lines 'ARG BASE=...': it must have one")
    return str(found[0])


def is_pinned(base: str) -> bool:
    """True if the reference is by digest."""
    return bool(_DIGEST.fullmatch(base.partition("@")[2]))


def base_to_use(dockerfile: str, given: str, *, release: bool) -> tuple[str, str]:
    """The base, and a warning where it has no digest; raises ``PinningError`` for a release on such a base."""
    base = given or default_base(dockerfile)
    if is_pinned(base):
        return base, ""
    told = f"the base {base} has no digest, and its tag may name another image tomorrow: "
    remedy = "run 'make base-digest', or give BASE=NAME@sha256:..."
    if release:
        raise PinningError(f"{told}a release is not built on it; {remedy}")
    return base, f"{told}{remedy}"


def pinned(dockerfile: str, base: str, digest: str) -> str:
    """The Dockerfile with ``base`` at ``digest`` as its default; raises ``PinningError``."""
    if not _DIGEST.fullmatch(digest):
        raise PinningError(f"the registry's answer for {base} is not a digest: {digest!r}")
    default_base(dockerfile)
    return _DEFAULT.sub(f"ARG BASE={base.partition('@')[0]}@{digest}", dockerfile)


def digest_of(base: str) -> str:
    """The digest that the registry has for a name now, of all its platforms; raises ``PinningError``."""
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        raise PinningError("skopeo is missing, which asks registries for digests: install the package skopeo")
    command = [skopeo, "inspect", "--no-tags", "--format", "{{.Digest}}", f"docker://{base.partition('@')[0]}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PinningError(f"the registry does not tell the digest of {base}: {done.stderr.strip()}")
    return done.stdout.strip()


def main(words: Sequence[str] | None = None) -> int:
    """Run it; 1 when there is no base or no digest."""
    parser = argparse.ArgumentParser(prog="deploy.image.pinning", description="The image's base by digest.")
    parser.add_argument("action", choices=("base", "pin"))
    parser.add_argument("base", nargs="?", default="", help="default: the Dockerfile's")
    parser.add_argument("--release", action="store_true", help="refuse a base without a digest")
    parser.add_argument("--dockerfile", type=Path, default=DOCKERFILE, metavar="FILE")
    arguments = parser.parse_args(words)
    text = arguments.dockerfile.read_text(encoding="utf-8")
    try:
        if arguments.action == "base":
            base, warning = base_to_use(text, arguments.base, release=arguments.release)
            if warning:
                print(f"warning: {warning}", file=sys.stderr)
            print(base)
        else:
            base = arguments.base or default_base(text)
            changed = pinned(text, base, digest_of(base))
            arguments.dockerfile.write_text(changed, encoding="utf-8")
            print(f"{arguments.dockerfile} builds on {default_base(changed)}")
    except PinningError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
