"""Metadata files on the disk: their names, their size and their ends, without a claim service."""

from __future__ import annotations

import json
from pathlib import Path

from driver.claims.model import ClaimReference
from driver.metadata.files import MetadataFiles
from driver.metadata.model import ClaimMetadata, DescribedDevice, DescribedRequest
from node.cdi.spec import LARGEST
from tests.making.claim_service import DRIVER, GPU0, reference


def one_request(*names: str, attributes: str = "{}") -> ClaimMetadata:
    devices = tuple(DescribedDevice("node-1", name, attributes) for name in names)
    return ClaimMetadata("", ("v1beta1",), (DescribedRequest("gpu", devices),))


def test_the_end_of_a_claim_costs_a_later_one_of_its_name_nothing(tmp_path: Path) -> None:
    files = MetadataFiles(tmp_path / "data", tmp_path / "cdi", DRIVER)
    earlier, later = ClaimReference("team", "net", "uid-1"), ClaimReference("team", "net", "uid-2")
    described = one_request(GPU0)
    files.ensure(earlier, described)
    (path,) = files.paths(earlier, described)
    with path.open() as mounted:
        files.ensure(later, described)
        assert '"uid-1"' in mounted.read()
    files.remove(earlier, described)
    files.remove_any("uid-1")
    assert files.is_whole(later, described)
    assert files.uids() == {"uid-2"}


def test_the_longest_names_have_a_file(tmp_path: Path) -> None:
    files = MetadataFiles(tmp_path / "data", tmp_path / "cdi", DRIVER)
    longest = ClaimReference("n" * 63, "c" * 253, "uid-1")
    files.ensure(longest, one_request(GPU0))
    assert files.is_whole(longest, one_request(GPU0))
    files.remove(longest, one_request(GPU0))
    assert files.uids() == frozenset()


def test_the_largest_claim_fits(tmp_path: Path) -> None:
    files = MetadataFiles(tmp_path / "data", tmp_path / "cdi", DRIVER)
    most = {f"{'d' * 59}.{number:03}/{'a' * 32}": {"string": "é" * 32} for number in range(32)}
    described = one_request(*(f"{number:063}" for number in range(128)), attributes=json.dumps(most))
    files.ensure(reference(), described)
    files.set_networks(reference(), described, {f"{number:063}": {"interfaceName": "net1"} for number in range(128)})
    (path,) = files.paths(reference(), described)
    assert '"generation":2}' in path.read_text()
    assert path.stat().st_size < LARGEST


def test_a_service_without_the_folder_recovers(tmp_path: Path) -> None:
    files = MetadataFiles(tmp_path / "none", tmp_path / "cdi", DRIVER)
    files.sweep_unfinished()
    assert files.uids() == frozenset()
    files.remove_any("uid-1")


def test_what_a_killed_process_left_unfinished_is_swept(tmp_path: Path) -> None:
    files = MetadataFiles(tmp_path / "data", tmp_path / "cdi", DRIVER)
    files.ensure(reference(), one_request(GPU0))
    (path,) = files.paths(reference(), one_request(GPU0))
    left = path.with_name(".metadata.json.0.tmp")
    left.write_text("half")
    files.sweep_unfinished()
    assert not left.exists()
    assert path.exists()
