"""A version of Kubernetes is named in one file, and what is pinned, shown and followed agrees with it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from deploy.generate import KUBERNETES
from scheduling.explain.cluster import FOLLOWED
from tests.cluster.components.__main__ import main
from tests.cluster.components.build import SOURCES, kubernetes
from tests.cluster.components.versions import (
    CLUSTERS,
    JUDGE,
    RECORDED,
    UnknownVersion,
    evicts_by_name,
    has_dra_gates,
    minor_release,
    newest,
    pinned,
)

ROOT = Path(__file__).resolve().parents[2]
MINORS = range(int(CLUSTERS[0].split(".")[1]), int(JUDGE.split(".")[1]) + 10)
"""From the oldest that is pinned to those of the next years: 1.29 is nobody's pin, and 1.85 is a version of gRPC."""
EXACT = re.compile(r"(?<![\w.=])v?1\.(\d\d)\.[1-9]\d*(?![\w.]*\d)")
PLACES = {"tests/cluster/components/versions.py", "docs/compatibility.md", "CHANGELOG.md"}
"""Where one stands: the file itself, the table that is compared with it below, and what was once released."""
RECORDINGS = ("tests/vectors/", "sandbox/nodes/", "tests/cluster/components/kubernetes/v")
"""What others wrote; ``components/kubernetes`` has a module per version, whose name is compared below."""
PINS = (".mod", ".sum", ".lock", ".jsonl", ".json", ".svg")


def exact_versions(text: str) -> list[str]:
    return [found.group().removeprefix("v") for found in EXACT.finditer(text) if int(found.group(1)) in MINORS]


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    return [name for name in listed if name and not name.startswith(RECORDINGS) and not name.endswith(PINS)]


def test_no_other_file_names_a_version() -> None:
    files = [ROOT / name for name in tracked() if name not in PLACES]
    assert len(files) > 500
    named = {
        str(file.relative_to(ROOT)): found
        for file in files
        if file.is_file() and (found := exact_versions(file.read_text(errors="replace")))
    }
    assert named == {}, "import it from tests/cluster/components/versions.py, or write the minor release"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"on {RECORDED}.", [RECORDED]),
        (f"v{JUDGE}+k3s1", [JUDGE]),
        ("Kubernetes 1.36, 1.36.0", []),
        ("1.29.9", []),
        (f"hatchling=={RECORDED}", []),
        (f"libcuda.so.{RECORDED}", []),
    ],
)
def test_a_version_is_seen_by_its_form(text: str, found: list[str]) -> None:
    assert exact_versions(text) == found


def test_the_table_of_what_was_run_has_every_version_of_a_cluster() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text()
    assert re.findall(r"^\| (1\.\S+) \|", text, re.MULTILINE) == list(reversed(CLUSTERS))
    assert exact_versions(text) == list(reversed(CLUSTERS))


@pytest.mark.parametrize("version", CLUSTERS)
def test_a_cluster_is_built_from_the_modules_of_its_version(version: str) -> None:
    for kind in (".mod", ".sum"):
        assert f"k8s.io/kubernetes v{version}" in (SOURCES / "kubernetes" / f"v{version}{kind}").read_text()


def test_there_are_no_modules_of_another_version() -> None:
    assert {file.stem.removeprefix("v") for file in (SOURCES / "kubernetes").glob("v*")} == set(CLUSTERS)


def test_the_judges_are_built_from_the_modules_of_theirs() -> None:
    assert (
        f"k8s.io/dynamic-resource-allocation v{JUDGE.replace('1', '0', 1)}" in (ROOT / "tests/judge/go.mod").read_text()
    )
    modules = (ROOT / "tests/judge/slices/go.mod").read_text()
    assert f"k8s.io/dynamic-resource-allocation v{RECORDED.replace('1', '0', 1)}" in modules
    assert RECORDED in CLUSTERS, "its API server is the judge's"


def test_the_go_driver_of_the_benchmarks_is_built_from_the_modules_of_the_newest() -> None:
    modules = (ROOT / "bench/cluster/go/go.mod").read_text()
    assert f"k8s.io/dynamic-resource-allocation v{newest().replace('1', '0', 1)}" in modules


def test_explanations_follow_what_the_vectors_and_the_judge_are_of() -> None:
    assert [f"1.{minor}" for minor in FOLLOWED] == [minor_release(RECORDED), minor_release(JUDGE)]


def test_manifests_are_rendered_for_the_oldest_version() -> None:
    assert minor_release(KUBERNETES) == minor_release(CLUSTERS[0])


def test_a_version_is_chosen_by_its_number_or_by_its_minor_release() -> None:
    assert [pinned(version) for version in CLUSTERS] == list(CLUSTERS)
    assert [pinned(minor_release(version)) for version in CLUSTERS] == list(CLUSTERS)
    assert pinned("") == newest() == CLUSTERS[-1]


def test_the_older_versions_are_those_that_the_long_run_adds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["older"]) == 0
    assert capsys.readouterr().out.split() == list(reversed(CLUSTERS))[1:]


@pytest.mark.parametrize(
    ("version", "gates", "by_name"),
    [("1.34.0", False, False), ("1.36.0", True, False), ("1.37.0", True, True), ("1.40.0", True, True)],
)
def test_what_a_version_does_follows_from_its_minor_release(version: str, gates: bool, by_name: bool) -> None:
    assert (has_dra_gates(version), evicts_by_name(version)) == (gates, by_name)


@pytest.mark.parametrize("wanted", ["1.30.0", "1.3", "1"])
def test_a_version_that_is_not_pinned_is_refused_with_those_that_are(wanted: str) -> None:
    with pytest.raises(UnknownVersion, match=f"K8S='{wanted}' is not one of {', '.join(CLUSTERS)}"):
        kubernetes(wanted)
