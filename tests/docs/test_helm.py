"""Helm renders the chart with what documents tell people to give it, in the folder that they stand in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.generate import KUBERNETES
from tests.deploy.chart.rendering import helm
from tests.docs.markdown import PAGES, blocks
from tests.docs.shell import ShellCommand, commands
from tests.docs.test_commands import SHELLS
from tests.docs.vocabulary import HELM_VALUES
from tests.docs.workplace import put_files, workplace

RENDERED = HELM_VALUES - {"--timeout", "--history-max", "-o", "--output"}
"""Options of an installation that mean the same to 'helm template'."""


def installations() -> list[tuple[str, ShellCommand]]:
    return [
        (document, command)
        for document in PAGES
        for block in blocks(document)
        if block.language in SHELLS
        for command in commands(block.text)
        if command.words[:1] == ("helm",) and command.words[1] in ("install", "upgrade", "template")
    ]


def options(words: tuple[str, ...]) -> list[str]:
    """The options with values, for 'helm template'."""
    found: list[str] = []
    for name, given in zip(words, (*words[1:], ""), strict=True):
        if name in RENDERED:
            found += [name, given]
    return found


@pytest.mark.parametrize(("document", "command"), installations(), ids=str)
def test_an_installation_renders(document: str, command: ShellCommand, tmp_path: Path) -> None:
    work = workplace(tmp_path)
    put_files(document, work)
    call = [str(helm()), "template", "ostler", "deploy/helm/ostler", "--kube-version", KUBERNETES]
    run = subprocess.run(
        [*call, *options(command.words)], cwd=work, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "kind: DaemonSet" in run.stdout
