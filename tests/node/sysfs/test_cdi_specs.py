from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from node.inventory.cdi_specs import CdiSpecSource
from node.inventory.facts import CdiFacts
from node.inventory.source import Source


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "cdi"
    path.mkdir()
    return path


def spec(kind: str, *names: object) -> str:
    devices = [{"name": name, "containerEdits": {"env": ["A=1"]}} for name in names]
    return json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices})


def read(*directories: Path) -> CdiFacts:
    facts = CdiSpecSource(directories).read().cdi
    assert facts is not None
    return facts


def test_names_of_json_and_yaml_specs_are_qualified_and_sorted(directory: Path) -> None:
    (directory / "nvidia.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: '1'\n- name: all\n"
    )
    (directory / "amd.json").write_text(spec("amd.com/gpu", "0", "0000:3b:00.0"))

    assert read(directory) == CdiFacts(
        ("amd.com/gpu=0", "amd.com/gpu=0000:3b:00.0", "nvidia.com/gpu=1", "nvidia.com/gpu=all")
    )


def test_other_files_and_folders_below_are_not_read(directory: Path) -> None:
    (directory / "notes.txt").write_text("nothing")
    (directory / "half.json.tmp").write_text("{")
    (directory / "below").mkdir()
    (directory / "below" / "spec.json").write_text(spec("a.com/b", "c"))

    assert read(directory) == CdiFacts()


def test_own_files_are_left_out(directory: Path) -> None:
    (directory / "ours.json").write_text(spec("ostler.dev/gpu", "a"))
    (directory / "theirs.json").write_text(spec("nvidia.com/gpu", "0"))
    source: Source = CdiSpecSource([directory], frozenset({"ours.json"}))

    assert source.read().cdi == CdiFacts(("nvidia.com/gpu=0",))


def test_a_directory_that_does_not_exist_has_no_specs(tmp_path: Path) -> None:
    assert read(tmp_path / "absent") == CdiFacts()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", "{", "not valid JSON: Expecting property name"),
        ("a.yaml", "a: [", "not valid YAML: "),
        ("a.json", "[]", "not a CDI spec: not a mapping"),
        ("a.json", '{"kind": "gpu"}', "kind is 'gpu'; it must be vendor/class, such as nvidia.com/gpu"),
        ("a.json", '{"kind": "nvidia.com/gpu"}', "devices must be a list with at least one device"),
        (
            "a.json",
            spec("nvidia.com/gpu", "0", 1),
            "devices[1].name is 1; it must be letters, digits and _ - . : inside",
        ),
        ("a.json", spec("nvidia.com/gpu", "-a"), "devices[0].name is '-a'; it must be"),
        ("a.json", spec("nvidia.com/gpu", "a", "a"), "two devices have one name"),
        ("a.json", "[" * 100_000, "nested deeper than 64 levels"),
    ],
)
def test_a_bad_file_is_named_with_its_reason_and_others_go_on(
    directory: Path, name: str, text: str, reason: str
) -> None:
    (directory / name).write_text(text)
    (directory / "good.json").write_text(spec("amd.com/gpu", "0"))

    facts = read(directory)

    assert facts.devices == ("amd.com/gpu=0",)
    assert len(facts.errors) == 1
    assert facts.errors[0].startswith(f"{directory}/{name}: {reason}")


def test_bytes_that_are_no_text_are_an_error(directory: Path) -> None:
    (directory / "a.json").write_bytes(b"\xff\xfe\x00{")
    (directory / "b.yaml").write_bytes(b"\x00\x01")

    assert len(read(directory).errors) == 2


def test_a_file_that_is_a_link_to_itself_is_an_error(directory: Path) -> None:
    (directory / "a.json").symlink_to("a.json")

    assert read(directory).errors == (f"{directory}/a.json: it is a symbolic link, not a regular file",)


def test_a_folder_with_the_name_of_a_spec_is_an_error(directory: Path) -> None:
    (directory / "a.json").mkdir()

    assert read(directory).errors == (f"{directory}/a.json: it is a folder, not a regular file",)


def test_a_name_that_two_files_of_a_directory_define_belongs_to_neither(directory: Path) -> None:
    (directory / "a.json").write_text(spec("nvidia.com/gpu", "0", "1"))
    (directory / "b.json").write_text(spec("nvidia.com/gpu", "1", "2"))

    facts = read(directory)

    assert facts.devices == ("nvidia.com/gpu=0", "nvidia.com/gpu=2")
    assert facts.errors == (
        f"{directory}/b.json: nvidia.com/gpu=1 also defined in {directory}/a.json; runtimes use neither",
    )


def test_a_name_in_two_directories_is_the_later_ones(tmp_path: Path) -> None:
    first, second = tmp_path / "etc", tmp_path / "run"
    for path in (first, second):
        path.mkdir()
        (path / "nvidia.json").write_text(spec("nvidia.com/gpu", "0"))

    assert read(first, second) == CdiFacts(("nvidia.com/gpu=0",))


def test_a_file_is_read_again_only_when_it_changed(directory: Path) -> None:
    file = directory / "a.json"
    file.write_text(spec("nvidia.com/gpu", "0"))
    source = CdiSpecSource([directory])
    first = source.read()
    status = file.stat()

    # The same inode, size and time, as of a file that nobody touched.
    with file.open("r+") as handle:
        handle.write(spec("nvidia.com/gpu", "9"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.read() == first

    file.write_text(spec("nvidia.com/gpu", "0", "1"))
    assert source.read().cdi == CdiFacts(("nvidia.com/gpu=0", "nvidia.com/gpu=1"))

    file.unlink()
    assert source.read().cdi == CdiFacts()


def test_a_pipe_is_named_and_not_waited_for(directory: Path) -> None:
    os.mkfifo(directory / "pipe.json")
    (directory / "nvidia.json").write_text(spec("nvidia.com/gpu", "0"))

    problem = f"{directory}/pipe.json: it is a FIFO, not a regular file"
    assert read(directory) == CdiFacts(("nvidia.com/gpu=0",), (problem,))


def test_files_with_a_prefix_of_ours_are_left_out(directory: Path) -> None:
    (directory / "ostler.dev-claim_uid-1.json").write_text(spec("ostler.dev/claim", "uid-1-gpu-0"))
    (directory / "ostler.dev-claims.json").write_text(spec("ostler.dev/claims", "a"))
    facts = CdiSpecSource([directory], own_prefixes=("ostler.dev-claim_",)).read().cdi
    assert facts == CdiFacts(("ostler.dev/claims=a",))
