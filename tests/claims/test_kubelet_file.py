"""The kubelet's file as a container sees it that was given the file alone: the one that was there when it began."""

from __future__ import annotations

from pathlib import Path

from driver.claims.kubelet import read_kubelet_claims
from node.dra_state import FILE_NAME, DraState, encode


def test_a_file_that_the_kubelet_has_replaced_proves_nothing(tmp_path: Path) -> None:
    root, file = tmp_path / "kubelet", tmp_path / FILE_NAME
    root.mkdir()
    file.write_bytes(encode(DraState(())))
    descriptor = file.open("rb")
    with descriptor:
        # What a bind mount is to a container, this link is here: the way to a file that has no name any more.
        (root / FILE_NAME).symlink_to(f"/proc/self/fd/{descriptor.fileno()}")
        assert read_kubelet_claims(root).lacks("any")
        file.unlink()
        found = read_kubelet_claims(root)
    assert not found.lacks("any")
    assert (found.stale, found.fault) == (True, f"{root / FILE_NAME} was replaced since this container began")
