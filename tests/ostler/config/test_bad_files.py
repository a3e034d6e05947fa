"""Every bad file gives exactly the messages that its leading comments expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from ostler.config.errors import MAX_SHOWN, ConfigErrors, Origin
from ostler.config.load import load, load_bytes
from tests.ostler.config.samples import BAD, remarks


def test_there_are_enough_bad_files() -> None:
    assert len(BAD) >= 200


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_file_gives_its_messages_in_order_on_one_line_each_with_a_fix(path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load(path, {}, {})
    assert [str(error).removeprefix(f"{path}:") for error in caught.value.errors] == remarks(path, "expect")
    errors = caught.value.errors
    assert [error.origin.line for error in errors] == sorted(error.origin.line or 0 for error in errors)
    assert str(caught.value).splitlines() == [str(error) for error in errors]
    for error in errors:
        assert str(error).isprintable()
        assert error.origin.source == str(path)
        assert error.problem
        assert error.fix
        assert error.origin.column is not None
        assert error.origin.column >= 1
        assert len(error.problem) < 300


def test_an_error_has_file_line_column_key_problem_and_fix() -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_bytes("a.yaml", b"apiVersion: ostler.dev/v1alpha1\nkind: Config\nlog: {level: loud}\n", {}, {})
    (error,) = caught.value.errors
    assert error.origin == Origin("a.yaml", 3, 7, "log.level")
    assert (error.problem, error.fix) == ('is "loud"', "allowed: debug, info, warning, error")
    assert str(error) == 'a.yaml:3: log.level: is "loud"; allowed: debug, info, warning, error'


def test_a_flood_of_problems_is_counted_and_not_printed() -> None:
    lines = "\n".join(f"key{number}: 1" for number in range(MAX_SHOWN + 7))
    with pytest.raises(ConfigErrors) as caught:
        load_bytes("a.yaml", f"apiVersion: ostler.dev/v1alpha1\nkind: Config\n{lines}\n".encode(), {}, {})
    assert len(caught.value.errors) == MAX_SHOWN + 7
    assert str(caught.value).splitlines()[MAX_SHOWN:] == ["and 7 more problems"]
