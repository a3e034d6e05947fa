from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.cdi.directory import SCHEMA, CdiDirectory, SpecFileChange
from node.cdi.spec import CdiError, Spec, encode
from node.edits.model import ContainerEdits
from node.files import write_record
from tests.making.cdi_specs import device, padded, spec

GPU, OTHER = "k8s.device-plugin.nvidia.com-gpu.json", "k8s.device-plugin.nvidia.com-gdrcopy.json"
OLD, NEW = spec(device("GPU-0")), spec(device("GPU-1"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "cdi"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "state" / "cdi-files.json"


@pytest.fixture
def private() -> Iterator[None]:
    """The umask under which the agent runs."""
    old = os.umask(0o077)
    yield
    os.umask(old)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def traces(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


@pytest.mark.usefixtures("private")
def test_files_and_folders_can_be_read_by_every_runtime_whatever_the_umask(folder: Path, record: Path) -> None:
    changes = CdiDirectory(folder, record).sync({GPU: OLD})
    assert changes == (SpecFileChange(GPU, "written"),)
    assert str(changes[0]) == f"{GPU} written"
    assert files(folder) == {GPU: encode(OLD)}
    assert (folder / GPU).stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o755
    assert folder.parent.stat().st_mode & 0o777 == 0o755
    assert record.stat().st_mode & 0o777 == 0o600
    assert record.parent.stat().st_mode & 0o777 == 0o700


def test_folder_that_is_there_keeps_its_mode(folder: Path, record: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o750)
    CdiDirectory(folder, record).sync({GPU: OLD})
    assert folder.stat().st_mode & 0o777 == 0o750


def test_equal_files_and_record_are_not_written_again(folder: Path, record: Path) -> None:
    CdiDirectory(folder, record).sync({GPU: OLD, OTHER: NEW})
    before = traces(folder), traces(record.parent)
    again = CdiDirectory(folder, record)
    assert again.sync({GPU: OLD, OTHER: NEW}) == ()
    assert again.sync({OTHER: NEW, GPU: OLD}) == ()
    assert (traces(folder), traces(record.parent)) == before


def test_only_what_changed_is_written(folder: Path, record: Path) -> None:
    directory = CdiDirectory(folder, record)
    directory.sync({GPU: OLD, OTHER: OLD})
    before = traces(folder)
    assert directory.sync({GPU: NEW, OTHER: OLD}) == (SpecFileChange(GPU, "written"),)
    assert files(folder) == {GPU: encode(NEW), OTHER: encode(OLD)}
    assert traces(folder)[OTHER] == before[OTHER]


def test_lost_file_is_written_again_and_so_is_a_lost_folder(folder: Path, record: Path) -> None:
    directory = CdiDirectory(folder, record)
    directory.sync({GPU: OLD})
    (folder / GPU).unlink()
    assert directory.sync({GPU: OLD}) == (SpecFileChange(GPU, "written"),)
    (folder / GPU).unlink()
    folder.rmdir()
    assert CdiDirectory(folder, record).sync({GPU: OLD}) == (SpecFileChange(GPU, "written"),)
    assert files(folder) == {GPU: encode(OLD)}


def test_wanted_file_that_somebody_changed_is_put_right(folder: Path, record: Path) -> None:
    directory = CdiDirectory(folder, record)
    directory.sync({GPU: OLD})
    (folder / GPU).write_text("{}")
    assert directory.sync({GPU: OLD}) == (SpecFileChange(GPU, "written"),)
    assert files(folder) == {GPU: encode(OLD)}


def test_file_that_is_not_wanted_is_swept_also_by_the_next_process(folder: Path, record: Path) -> None:
    CdiDirectory(folder, record).sync({GPU: OLD, OTHER: NEW})
    again = CdiDirectory(folder, record)
    assert CdiDirectory(folder, record).owns_files
    assert again.sync({OTHER: NEW}) == (SpecFileChange(GPU, "removed"),)
    assert again.sync({}) == (SpecFileChange(OTHER, "removed"),)
    assert files(folder) == {}
    assert not again.owns_files
    assert not CdiDirectory(folder, record).owns_files


def test_file_that_somebody_changed_is_left_and_reported_once(folder: Path, record: Path) -> None:
    directory = CdiDirectory(folder, record)
    directory.sync({GPU: OLD})
    (folder / GPU).write_text("theirs")
    assert directory.sync({}) == (SpecFileChange(GPU, "left in place, because another program changed it"),)
    assert directory.sync({}) == ()
    assert files(folder) == {GPU: b"theirs"}


def test_file_that_is_gone_when_it_is_swept_is_said_to_be(folder: Path, record: Path) -> None:
    directory = CdiDirectory(folder, record)
    directory.sync({GPU: OLD})
    (folder / GPU).unlink()
    assert directory.sync({}) == (SpecFileChange(GPU, "was gone already"),)


def test_files_of_others_are_never_touched(folder: Path, record: Path) -> None:
    folder.mkdir(parents=True)
    theirs = {
        "nvidia.yaml": b"cdiVersion: 0.5.0",
        "k8s.device-plugin.nvidia.com-mofed.json": encode(OLD),
        "k8s.device-plugin.nvidia.com-gpu.json.bak": b"",
        ".hidden.tmp": b"half",
    }
    for name, content in theirs.items():
        (folder / name).write_bytes(content)
    before = traces(folder)
    directory = CdiDirectory(folder, record)
    directory.sync({GPU: OLD})
    directory.sync({GPU: NEW})
    directory.sync({})
    assert files(folder) == theirs
    assert traces(folder) == before


def test_without_anything_to_do_nothing_is_made(folder: Path, record: Path) -> None:
    directory = CdiDirectory(folder, record)
    assert not directory.owns_files
    assert directory.sync({}) == ()
    assert not folder.exists()
    assert not record.parent.exists()


def test_spec_that_is_not_valid_stops_before_anything_is_written(folder: Path, record: Path) -> None:
    CdiDirectory(folder, record).sync({GPU: OLD})
    before = traces(folder), traces(record.parent)
    with pytest.raises(CdiError, match="a spec has no devices; write no file for it"):
        CdiDirectory(folder, record).sync({GPU: NEW, OTHER: Spec("a/b", ())})
    assert (traces(folder), traces(record.parent)) == before


def test_missing_record_leaves_files_that_may_be_others_and_takes_up_what_is_wanted(folder: Path, record: Path) -> None:
    CdiDirectory(folder, record).sync({GPU: OLD, OTHER: OLD})
    record.unlink()
    again = CdiDirectory(folder, record)
    assert not again.owns_files
    assert again.sync({GPU: OLD}) == ()
    assert set(files(folder)) == {GPU, OTHER}
    assert CdiDirectory(folder, record).sync({}) == (SpecFileChange(GPU, "removed"),)
    assert set(files(folder)) == {OTHER}


def test_damaged_record_is_set_aside_reported_and_made_anew(
    folder: Path, record: Path, caplog: pytest.LogCaptureFixture
) -> None:
    CdiDirectory(folder, record).sync({GPU: OLD})
    record.write_bytes(record.read_bytes()[:-9])
    with caplog.at_level(logging.WARNING, "ostler.cdi"):
        assert CdiDirectory(folder, record).sync({GPU: OLD}) == ()
    (said,) = caplog.records
    assert said.getMessage() == "the record of CDI files is unusable"
    assert "cdi-files.json is damaged" in str(said.__dict__["reason"])
    assert {path.name for path in record.parent.iterdir()} == {"cdi-files.json", "cdi-files.json.damaged-1"}
    assert CdiDirectory(folder, record).sync({}) == (SpecFileChange(GPU, "removed"),)


def test_record_of_a_newer_version_survives(folder: Path, record: Path) -> None:
    record.parent.mkdir()
    write_record(record, SCHEMA.replace("v1", "v2"), {"new": "things"})
    before = record.read_bytes()
    directory = CdiDirectory(folder, record)
    assert directory.sync({GPU: OLD}) == (SpecFileChange(GPU, "written"),)
    assert directory.sync({}) == (SpecFileChange(GPU, "removed"),)
    assert record.read_bytes() == before


@pytest.mark.parametrize("data", [[], {"files": []}, {"files": {GPU: "digest"}}, {"files": {GPU: [1]}}, None])
def test_record_of_another_shape_makes_nothing_ours(folder: Path, record: Path, data: object) -> None:
    record.parent.mkdir()
    write_record(record, SCHEMA, data)  # type: ignore[arg-type]
    folder.mkdir(parents=True)
    (folder / GPU).write_text("theirs")
    CdiDirectory(folder, record).sync({})
    assert files(folder) == {GPU: b"theirs"}


def test_file_in_place_of_the_folder_is_named(folder: Path, record: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("")
    with pytest.raises(CdiError) as caught:
        CdiDirectory(folder, record).sync({GPU: OLD})
    assert str(caught.value) == (
        f"CDI file {folder / GPU}: cannot be written (File exists); check the folder and the disk"
    )
    assert isinstance(caught.value.__cause__, FileExistsError)


def test_folder_in_place_of_the_file_is_named_when_it_is_swept(folder: Path, record: Path) -> None:
    directory = CdiDirectory(folder, record)
    directory.sync({GPU: OLD})
    (folder / GPU).unlink()
    (folder / GPU).mkdir()
    with pytest.raises(CdiError) as caught:
        directory.sync({})
    assert (
        str(caught.value)
        == f"CDI file {folder / GPU}: cannot be removed (it is a folder, not a regular file); check the folder"
    )
    (folder / GPU).rmdir()
    assert directory.sync({}) == (SpecFileChange(GPU, "was gone already"),)


def test_record_that_cannot_be_written_stops_before_a_file_that_nobody_would_sweep(folder: Path, record: Path) -> None:
    record.parent.write_text("")
    with pytest.raises(CdiError) as caught:
        CdiDirectory(folder, record).sync({GPU: OLD})
    assert str(caught.value) == (
        f"CDI record {record}: cannot be written (File exists); check the state folder and the disk"
    )
    assert not folder.exists()


POOR = """
import os, resource, sys
from pathlib import Path
from node.cdi.directory import CdiDirectory
from node.cdi.spec import CdiError
from tests.making.cdi_specs import padded
folder, record, name, limit = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
elif os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    CdiDirectory(folder, record).sync({name: padded(100_000)})
except CdiError as error:
    print(error)
"""


def sync_in_need(folder: Path, record: Path, limit: int) -> str:
    """What a process says that may write no more than ``limit`` bytes, or with 0 not into root's folders."""
    command = [sys.executable, "-c", POOR, str(folder), str(record), GPU, str(limit)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_full_disk_is_named_and_leaves_the_old_file_whole(folder: Path, record: Path) -> None:
    CdiDirectory(folder, record).sync({GPU: OLD})
    assert sync_in_need(folder, record, 4096) == (
        f"CDI file {folder / GPU}: cannot be written (File too large); check the folder and the disk\n"
    )
    assert files(folder) == {GPU: encode(OLD)}
    # The old content is still known as ours.
    assert CdiDirectory(folder, record).sync({}) == (SpecFileChange(GPU, "removed"),)


def test_read_only_folder_is_named_and_leaves_the_old_file_whole(short_dir: Path) -> None:
    short_dir.chmod(0o755)
    folder, record = short_dir / "cdi", short_dir / "state" / "record"
    CdiDirectory(folder, record).sync({GPU: OLD})
    folder.chmod(0o555)
    # Anybody may write the state here, so that the folder alone is what fails.
    record.parent.chmod(0o777)
    record.chmod(0o666)
    assert sync_in_need(folder, record, 0) == (
        f"CDI file {folder / GPU}: cannot be written (Permission denied); check the folder and the disk\n"
    )
    assert files(folder) == {GPU: encode(OLD)}
    record.chmod(0o600)
    folder.chmod(0o755)
    assert CdiDirectory(folder, record).sync({GPU: padded(10)}) == (SpecFileChange(GPU, "written"),)


def test_failed_replacement_is_still_ours_when_it_is_not_wanted_any_more(folder: Path, record: Path) -> None:
    directory = CdiDirectory(folder, record)
    directory.sync({GPU: OLD})
    blocker = {OTHER: NEW, GPU: NEW}
    (folder / OTHER).mkdir()
    with pytest.raises(CdiError, match="Is a directory"):
        directory.sync(blocker)
    assert (folder / GPU).read_bytes() == encode(OLD)
    (folder / OTHER).rmdir()
    assert SpecFileChange(GPU, "removed") in directory.sync({})
    assert files(folder) == {}


names = st.sampled_from([GPU, OTHER, "a.json"])
contents = st.sampled_from([OLD, NEW, spec(edits=ContainerEdits(env=(("A", "1"),)))])
plans = st.lists(st.tuples(st.dictionaries(names, contents), st.booleans()), min_size=1, max_size=6)


@given(plans)
def test_after_every_sync_exactly_the_wanted_files_are_there_restarted_or_not(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[Mapping[str, Spec], bool]]
) -> None:
    root = tmp_path_factory.mktemp("cdi")
    folder, record = root / "cdi", root / "record"
    directory = CdiDirectory(folder, record)
    for desired, restart in plan:
        if restart:
            directory = CdiDirectory(folder, record)
        directory.sync(desired)
        wanted = {name: encode(each) for name, each in desired.items()}
        assert (files(folder) if folder.exists() else {}) == wanted
        assert directory.owns_files is bool(desired)
        if record.exists():
            assert set(json.loads(record.read_bytes())["data"]["files"]) == set(desired)
