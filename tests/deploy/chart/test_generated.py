"""What is made from other files is what those files make."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deploy.generate import (
    CHART,
    MANIFESTS,
    NAMESPACE,
    RULES,
    VARIANTS,
    chart_files,
    differing,
    main,
    manifests,
    settle,
)
from deploy.values_table import Undescribed, described, tables, with_tables
from ostler import __version__
from tests.deploy.chart.rendering import helm

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm


def test_schema_readme_and_rules_of_the_chart_are_what_they_are_made_from() -> None:
    assert differing(chart_files()) == []
    assert (CHART / "rules" / RULES.name).read_bytes() == RULES.read_bytes()


def test_manifests_are_what_the_chart_renders() -> None:
    assert differing(manifests(helm())) == []
    assert {path.stem for path in MANIFESTS.iterdir()} == set(VARIANTS)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_manifest_brings_its_namespace_and_says_nothing_of_helm(name: str) -> None:
    text = (MANIFESTS / f"{name}.yaml").read_text()
    first, *rest = (document for document in yaml.safe_load_all(text) if document)
    assert (first["kind"], first["metadata"]["name"]) == ("Namespace", NAMESPACE)
    assert {document["kind"] for document in rest} >= {"DaemonSet", "ConfigMap", "ServiceAccount", "ClusterRole"}
    assert {document["metadata"].get("namespace") for document in rest} <= {NAMESPACE, "default", None}
    assert "managed-by" not in text


def test_the_chart_is_of_ostlers_own_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def test_a_difference_is_named_or_written(tmp_path: Path) -> None:
    changed = tmp_path / "changed.yaml"
    words = f"{changed} is not what it is made from; run 'python -m deploy.generate'"
    assert settle({changed: "new"}, write=False) == [words]
    assert not changed.exists()
    assert settle({changed: "new"}, write=True) == [f"{changed} written"]
    assert changed.read_text() == "new"
    assert settle({changed: "new"}, write=False) == []


def test_the_command_says_that_nothing_differs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--helm", str(helm())]) == 0
    assert capsys.readouterr().out == ""


def test_a_value_without_a_description_is_refused() -> None:
    with pytest.raises(Undescribed, match=r"values\.yaml: a\.c has no description; write '# -- \.\.\.' above it"):
        described("a:\n  # -- said\n  b: 1\n  c: 2\n")


def test_what_is_in_a_described_value_needs_no_description() -> None:
    (found,) = described("## Title\n# -- One\n# and more.\na:\n  b: 1\n")
    assert (found.title, found.key, found.description) == ("Title", "a", "One and more.")


def test_a_table_shows_defaults_and_keeps_its_columns() -> None:
    assert tables('## T\n# -- a | b\na: "x|y"\n').splitlines()[-1] == "| `a` | `x\\|y` | a \\| b |"


def test_a_readme_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match=r"README\.md: the lines .* are missing"):
        with_tables("# Chart\n", "# -- x\na: 1\n")
