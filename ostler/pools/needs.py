"""The needs that `ostler pools` is asked about: the options that name them, and the claims that they stand for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ostler.cli.exits import CommandFailed, Exit
from ostler.explain.access import add_filename
from ostler.pools.source import add_source

if TYPE_CHECKING:
    from ostler.pools.supply import PoolDocuments
    from scheduling.pools.claim_documents import DeviceClaim

_DOCUMENT = "DeviceClaim of devmgmtproto.k8s.io/v1alpha1; docs/pools.md has examples"


def add_need(parser: argparse.ArgumentParser, *, documents: str, node: str) -> None:
    """Add the need, ``-f`` and ``--node`` with what they are for, and the options of the source."""
    parser.add_argument("need", nargs="?", default="", metavar="NEED", help="a need in its short form, instead of -f")
    add_filename(parser, f"{documents}; - is stdin")
    parser.add_argument("--node", action="append", default=[], metavar="NAME", help=f"{node} (repeatable)")
    add_source(parser)


def short_need(text: str) -> DeviceClaim:
    """The claim that a short form stands for. Raises ``CommandFailed``."""
    # Here and not above: help needs none of it.
    from scheduling.pools.need import NeedError, need_of

    try:
        return need_of(text)
    except NeedError as error:
        raise CommandFailed(f"the need cannot be read: {error}", Exit.USAGE) from error


def claims_in(written: PoolDocuments, files: Sequence[str]) -> tuple[DeviceClaim, ...]:
    """The claims of files. Raises ``CommandFailed`` if there is none."""
    if not written.claims:
        raise CommandFailed(f"{', '.join(files)}: no DeviceClaim is in it; write one, a {_DOCUMENT}", Exit.USAGE)
    return written.claims


def check_nodes(asked: Sequence[str], known: Sequence[str]) -> None:
    """Raise ``CommandFailed`` for a node on which no pool is, with the names that look like it."""
    unknown = next((each for each in asked if each not in known), None)
    if unknown is None:
        return
    # Here and not above: only a wrong name needs them.
    from difflib import get_close_matches

    from ostler.explain.page import some

    near = get_close_matches(unknown, known, 3) or known
    raise CommandFailed(f"no pool is on a node {unknown}; there are: {some(near) or 'none'}", Exit.USAGE)
