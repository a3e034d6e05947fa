"""The outputs on docs/fit.md are those of the command, asked about the page's own manifest."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ostler.cli.main import main
from tests.docs.markdown import blocks

PAGE = "docs/fit.md"
MANIFEST = next(block.text for block in blocks(PAGE) if block.language == "yaml")
SHOWN = [block.text for block in blocks(PAGE) if block.language == "text"]


def test_the_page_shows_every_question() -> None:
    assert len(SHOWN) == 4


@pytest.mark.parametrize("shown", SHOWN, ids=lambda text: str(text).partition("\n")[0])
def test_what_the_page_shows_is_what_is_printed(
    shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pods.yaml").write_text(MANIFEST)
    command, _, expected = shown.partition("\n")
    main(shlex.split(command.removeprefix("$ "))[1:])
    assert capsys.readouterr().out.strip() == expected.strip()
