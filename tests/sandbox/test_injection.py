"""CDI as a runtime reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.injection import InjectionError, inject


def write(path: Path, kind: str, *devices: str, edits: dict[str, Any] | None = None) -> None:
    path.parent.mkdir(exist_ok=True)
    each = [{"name": name, "containerEdits": {"env": [f"{name}={path.parent.name}"]}} for name in devices]
    path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": each, "containerEdits": edits}))


def test_edits_of_a_spec_come_once_before_its_first_device(tmp_path: Path) -> None:
    write(tmp_path / "cdi" / "a.json", "v/c", "one", "two", edits={"env": ["ALL=1"], "mounts": [{"hostPath": "/m"}]})
    given = inject(["v/c=two", "v/c=one"], [tmp_path / "cdi"])
    assert given == {"env": ["ALL=1", "two=cdi", "one=cdi"], "mounts": [{"hostPath": "/m"}]}


def test_later_value_of_a_variable_counts(tmp_path: Path) -> None:
    spec = {"kind": "v/c", "devices": [{"name": "one", "containerEdits": {"env": ["A=1", "B=1", "A=2=3"]}}]}
    (tmp_path / "a.json").write_text(json.dumps(spec))
    assert inject(["v/c=one"], [tmp_path]) == {"env": ["A=2=3", "B=1"]}


def test_later_folder_beats_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path / "etc" / "a.json", "v/c", "one")
    write(tmp_path / "run" / "b.json", "v/c", "one")
    folders = [tmp_path / "etc", tmp_path / "run", tmp_path / "none"]
    assert inject(["v/c=one"], folders) == {"env": ["one=run"]}


def test_yaml_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: v/c\ndevices: [{name: one, containerEdits: {env: [A=1]}}]\n")
    assert inject(["v/c=one"], [tmp_path]) == {"env": ["A=1"]}


def test_name_that_two_files_define_is_nobodys(tmp_path: Path) -> None:
    write(tmp_path / "cdi" / "a.json", "v/c", "one", "two")
    write(tmp_path / "cdi" / "b.json", "v/c", "one")
    with pytest.raises(InjectionError) as raised:
        inject(["v/c=two", "v/c=one"], [tmp_path / "cdi"])
    assert str(raised.value) == (
        f"CDI device injection failed: unresolvable CDI devices v/c=one; v/c=one is defined twice in {tmp_path / 'cdi'}"
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "v/c"}', '{"kind": "v/c", "devices": [1]}'])
def test_file_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InjectionError) as raised:
        inject(["v/c=one"], [tmp_path])
    assert str(raised.value).startswith(
        f"CDI device injection failed: unresolvable CDI devices v/c=one; {tmp_path / 'bad.json'}: "
    )


def test_nothing_is_asked_and_nothing_given(tmp_path: Path) -> None:
    assert inject([], [tmp_path]) == {}
