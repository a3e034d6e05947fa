"""The tables of the configuration's pages are what the formats say, and all of what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ostler.config import nvidia, reference, schema, sriov
from ostler.config.document import parse_document
from ostler.config.errors import Origin
from ostler.config.section import ConfigList, Section
from tests.docs.markdown import ROOT, text_of
from tests.ostler.config.test_schema import every_field


@pytest.mark.parametrize("page", reference.PAGES, ids=str)
def test_a_pages_tables_are_what_the_formats_say(page: Path) -> None:
    text = (ROOT / page).read_text()
    assert reference.page(text) == text, "run 'python -m ostler.config.reference'"


def test_every_table_is_in_a_page() -> None:
    text = "".join(text_of(str(page)) for page in reference.PAGES)
    assert set(re.findall(r"<!-- table: ([a-z-]+) -->", text)) == set(reference.TABLES)


def test_every_key_is_in_the_reference() -> None:
    made = reference.keys()
    for field in every_field(schema.ROOT):
        assert f"| `{field.key}` |" in made, field.key


def test_every_example_is_read_as_it_stands() -> None:
    for field in every_field(schema.ROOT):
        kind: object = field.type
        if isinstance(kind, Section) or (isinstance(kind, ConfigList) and isinstance(kind.item, Section)):
            continue
        tree, _ = parse_document("example", field.type.example.encode())
        assert tree is not None
        field.type.read(tree, Origin("example"), [])


def test_every_key_of_a_foreign_format_has_its_line() -> None:
    assert {key.split(".")[-1] for key, _ in nvidia.correspondence()} >= {
        field.key for field in every_field(nvidia.ROOT) if not isinstance(field.type, Section)
    } - {"pattern", "name"}
    told = {key.split(".")[-1] for key, _ in sriov.correspondence()}
    assert told == {field.key for field in every_field(sriov.ROOT)} - {"resourceList"}


def test_an_old_page_is_written_anew_and_then_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("Words.\n\n<!-- table: flags -->\nold\n<!-- end -->\n\nMore words.\n")
    assert reference.main(["--check", str(page)]) == 1
    assert "is not what the formats say; run 'python -m ostler.config.reference'" in capsys.readouterr().out
    assert reference.main([str(page)]) == 0
    assert reference.main(["--check", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("Words.\n\n<!-- table: flags -->\n\n| Flag | Variable | Key |\n")
    assert text.endswith("| `defaults.hook` |\n\n<!-- end -->\n\nMore words.\n")


def test_a_table_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError, match="no-such"):
        reference.page("<!-- table: no-such -->\n<!-- end -->")
