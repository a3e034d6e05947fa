"""What claims may have been given is on the disk before it is published, and until its withdrawal is confirmed."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.publishing.shown import NAME, ShownDevices
from node.files import FileError, WriteFailed


class Full(ShownDevices):
    """On a disk that takes nothing while ``full``; a file can be renamed and removed there."""

    full = True

    def _write(self, names: frozenset[str], *, everything: bool) -> None:
        if self.full and (names or everything):
            raise WriteFailed(self._path, "No space left on device")
        super()._write(names, everything=everything)


def loaded(folder: Path) -> ShownDevices:
    shown = ShownDevices(folder)
    assert shown.load() == ""
    return shown


def test_what_is_covered_is_known_to_the_next_process(tmp_path: Path) -> None:
    assert not (tmp_path / NAME).exists()
    assert loaded(tmp_path).cover(["b", "a"]) == {"a", "b"}
    assert (tmp_path / NAME).exists()
    assert loaded(tmp_path).among(["a", "b", "c"]) == {"a", "b"}


def test_what_is_covered_again_is_not_written_again(tmp_path: Path) -> None:
    shown = loaded(tmp_path)
    shown.cover(["a"])
    before = (tmp_path / NAME).stat()
    assert shown.cover(["a"]) == frozenset()
    assert (tmp_path / NAME).stat().st_ino == before.st_ino


def test_a_confirmed_withdrawal_is_forgotten_and_with_the_last_one_the_file(tmp_path: Path) -> None:
    shown = loaded(tmp_path)
    shown.cover(["a", "b"])
    assert shown.forget(["a"], shown.serial) == (frozenset({"a"}), "")
    assert loaded(tmp_path).among([]) == {"b"}
    shown.forget(["b"], shown.serial)
    assert not (tmp_path / NAME).exists()


def test_a_device_that_is_published_again_while_its_withdrawal_is_confirmed_stays(tmp_path: Path) -> None:
    shown = loaded(tmp_path)
    shown.cover(["a", "b"])
    began = shown.serial
    shown.cover(["a"])
    assert shown.forget(["a", "b"], began) == (frozenset({"b"}), "")
    assert loaded(tmp_path).among([]) == {"a"}


def test_a_device_of_an_earlier_process_can_be_confirmed_at_once(tmp_path: Path) -> None:
    loaded(tmp_path).cover(["a"])
    shown = loaded(tmp_path)
    assert shown.forget(["a"], shown.serial) == (frozenset({"a"}), "")


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"garbage", b'{"schema":"dra-door/v9","sha256":"x","data":{}}'],
)
def test_with_a_record_that_cannot_be_read_every_device_counts_as_shown_also_after_a_restart(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / NAME).write_bytes(content)
    shown = ShownDevices(tmp_path)
    problem = shown.load()
    assert NAME in problem
    assert problem.endswith("every device counts as shown to claims until its withdrawal is confirmed")
    assert "left as it is" not in problem
    assert shown.among(["a", "b"]) == {"a", "b"}
    again = loaded(tmp_path)
    again.cover(["a"])
    assert loaded(tmp_path).among(["a", "b"]) == {"a", "b"}
    assert again.forget(["b"], again.serial, ["a", "b", "c"]) == (frozenset({"b"}), "")
    assert loaded(tmp_path).among(["a", "b", "c", "d"]) == {"a", "c"}


def test_a_record_that_cannot_be_read_stays_where_the_next_process_cannot_read_it_either(tmp_path: Path) -> None:
    shown = ShownDevices(tmp_path / "file")
    (tmp_path / "file").write_text("")
    problem = shown.load()
    assert problem == (
        f"{tmp_path}/file/{NAME} cannot be read: Not a directory; every device counts as shown to claims until its "
        "withdrawal is confirmed"
    )
    assert shown.among(["a"]) == {"a"}


def test_a_damaged_record_on_a_full_disk_is_damaged_for_the_next_process_as_well(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / NAME).write_text("garbage") if not (tmp_path / NAME).exists() else None
        shown = Full(tmp_path)
        problem = shown.load()
        assert problem.endswith("every device counts as shown to claims until its withdrawal is confirmed")
        assert shown.among(["a"]) == {"a"}
        assert (tmp_path / NAME).exists(), "a start without rules for claims asks for this file"


def test_a_damaged_record_that_is_lost_says_so(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("garbage")

    class Gone(Full):
        def _is_back(self, aside: Path) -> bool:
            aside.unlink()
            return super()._is_back(aside)

    problem = Gone(tmp_path).load()
    assert problem.endswith(
        f"and a restart would not know that: {tmp_path / NAME} cannot be written: No space left on device"
    )


def test_what_cannot_be_written_is_not_on_the_disk_and_written_the_next_time(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    shown = ShownDevices(folder)
    shown.load()
    with pytest.raises(FileError, match=f"{NAME} cannot be written: No such file or directory"):
        shown.cover(["a"])
    assert not shown.on_disk("a")
    assert shown.among([]) == {"a"}, "on the safe side"
    folder.mkdir()
    assert shown.cover(["a"]) == {"a"}
    assert shown.on_disk("a")


def test_what_cannot_be_forgotten_on_the_disk_is_only_known_to_the_next_process(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    shown = loaded(folder)
    shown.cover(["a", "b"])
    folder.rename(tmp_path / "away")
    problem = f"{folder / NAME} cannot be written: No such file or directory"
    assert shown.forget(["a"], shown.serial) == (frozenset({"a"}), problem)
    assert shown.among([]) == {"b"}
    (tmp_path / "away").rename(folder)
    assert loaded(folder).among([]) == {"a", "b"}
    assert shown.cover(["a"]) == frozenset(), "it is there already"
    assert shown.forget(["a"], shown.serial) == (frozenset({"a"}), "")
    assert loaded(folder).among([]) == {"b"}


def test_the_last_one_that_cannot_be_removed_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    shown = loaded(folder)
    shown.cover(["a"])
    folder.rename(tmp_path / "away")
    folder.write_text("")
    assert shown.forget(["a"], shown.serial) == (
        frozenset({"a"}),
        f"{folder / NAME} cannot be removed: Not a directory",
    )


def test_what_is_expected_counts_as_shown_before_anything_is_written(tmp_path: Path) -> None:
    shown = loaded(tmp_path)
    shown.expect(["a"])
    assert shown.among([]) == {"a"}
    assert not (tmp_path / NAME).exists()
    assert not shown.on_disk("a")
    assert shown.forget(["a"], shown.serial) == (frozenset({"a"}), "")
    assert shown.among([]) == frozenset()


def test_what_is_expected_while_its_withdrawal_is_written_stays_and_is_written_again(tmp_path: Path) -> None:
    class Slow(ShownDevices):
        def _write(self, names: frozenset[str], *, everything: bool) -> None:
            super()._write(names, everything=everything)
            if not names:
                self.expect(["a"])

    shown = Slow(tmp_path)
    shown.load()
    shown.cover(["a", "b"])
    assert shown.forget(["a", "b"], shown.serial) == (frozenset({"b"}), "")
    assert shown.among([]) == {"a"}
    assert not (tmp_path / NAME).exists()
    assert shown.cover(["a"]) == {"a"}
    assert loaded(tmp_path).among([]) == {"a"}


def test_what_is_expected_waits_for_no_disk(tmp_path: Path) -> None:
    writing, written = threading.Event(), threading.Event()

    class Stuck(ShownDevices):
        def _write(self, names: frozenset[str], *, everything: bool) -> None:
            writing.set()
            assert written.wait(60)
            super()._write(names, everything=everything)

    shown = Stuck(tmp_path)
    thread = threading.Thread(target=shown.cover, args=(["a"],))
    thread.start()
    assert writing.wait(60)
    shown.expect(["b"])
    assert shown.among([]) == {"a", "b"}
    written.set()
    thread.join()
    assert loaded(tmp_path).among([]) == {"a"}


NAMES = st.frozensets(st.sampled_from("abc"), min_size=1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["expect", "cover", "begin", "forget"]), NAMES),
        st.tuples(st.sampled_from(["full", "room", "restart"]), st.just(frozenset[str]())),
    ),
    max_size=30,
)


@given(STEPS)
def test_nothing_that_claims_may_get_is_ever_missing_whatever_the_disk_does(
    steps: list[tuple[str, frozenset[str]]],
) -> None:
    """``published``: what whoever publishes was allowed to, and nobody has confirmed since."""
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        shown, published, began, full = Full(folder), set[str](), 0, False
        shown.load()
        for step, names in steps:
            shown.full = full
            if step == "expect":
                shown.expect(names)
                assert names <= shown.among([])
            elif step == "cover":
                with contextlib.suppress(FileError):
                    shown.cover(names)
                published |= {name for name in names if shown.on_disk(name)}
            elif step == "begin":
                began = shown.serial
            elif step == "forget":
                ended, problem = shown.forget(names, began)
                assert bool(problem) <= full
                published -= ended
            elif step == "restart":
                shown, began = Full(folder), 0
                assert shown.load() == ""
            full = {"full": True, "room": False}.get(step, full)
            assert published <= shown.among([])
            assert published <= loaded(folder).among([])
