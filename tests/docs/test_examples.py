"""Examples are what they say: files are usable, and what is typed gives the output that stands below it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
import yaml

from ostler.checkpoint.state_file import StateKind, recognised
from ostler.cli.main import main
from ostler.config.load import load_bytes
from ostler.config.topology import parse_overrides
from ostler.extender import api
from ostler.extender.workloads import CONTROLLER
from scheduling.cells.configuration import read_configuration
from scheduling.cells.pod import RESOURCE_ENABLE, read_pod_spec
from tests.docs.chart import values_fault
from tests.docs.markdown import PAGES, ROOT, CodeBlock, blocks
from tests.docs.workplace import put_files, workplace

DATA = ("yaml", "json")


def data_blocks(document: str) -> list[CodeBlock]:
    return [block for block in blocks(document) if block.language in DATA]


@pytest.mark.parametrize("document", PAGES)
def test_every_file_shown_is_usable(document: str) -> None:
    for block in data_blocks(document):
        for part in yaml.safe_load_all(block.text):
            assert isinstance(part, dict), str(block)
            judge(block, part)


def judge(block: CodeBlock, part: dict[str, Any]) -> None:
    """Hold a file against whatever reads it: told apart by its keys, as the agent and Kubernetes do."""
    version = str(part.get("apiVersion", ""))
    if part.get("kind") == "Topology":
        assert parse_overrides(str(block), block.text.encode()), str(block)
    elif part.get("kind") == "KubeSchedulerConfiguration":
        judge_scheduler(block, part)
    elif version.startswith("config.kueue.x-k8s.io/"):
        # The limit that opts in is no device, and no queue has quota for it.
        assert any(RESOURCE_ENABLE.startswith(each) for each in part["resources"]["excludeResourcePrefixes"]), str(
            block
        )
    elif part.get("kind") == "AdmissionCheck":
        assert part["spec"]["controllerName"] == CONTROLLER, str(block)
    elif part.get("kind") == "Job" and (found := part["spec"]["template"].get("metadata", {}).get("annotations")):
        assert read_pod_spec(found, "a", "b").virtual_cluster, str(block)
    elif "physicalCluster" in part:
        assert read_configuration(block.text, str(block)).virtual_clusters, str(block)
    elif "kind" in part and not version.startswith("ostler.dev/"):
        assert re.fullmatch(r"([a-z0-9.-]+/)?v[0-9]+((alpha|beta)[0-9]+)?", version), str(block)
        metadata = part["metadata"]
        assert isinstance(metadata, dict), str(block)
        assert metadata["name"], str(block)
    elif {"apiVersion", "version", "resourceList"} & part.keys():
        assert load_bytes(str(block), block.text.encode(), {}, {}).settings.rules, str(block)
    elif isinstance(items := part.get("items"), list):
        assert [read_pod_spec(each["metadata"]["annotations"], "a", "b").virtual_cluster for each in items], str(block)
    elif "checksum" in part:
        assert recognised(Path(str(block)), block.text.encode()) in StateKind, str(block)
    else:
        assert values_fault(part) == "", str(block)


def judge_scheduler(block: CodeBlock, part: dict[str, Any]) -> None:
    """kube-scheduler's configuration asks paths that the extender answers, for the resource that pods opt in by."""
    assert part["apiVersion"] == "kubescheduler.config.k8s.io/v1", str(block)
    (found,) = part["extenders"]
    prefix = urlsplit(found["urlPrefix"]).path
    paths = {f"{prefix}/{found[verb]}" for verb in ("filterVerb", "preemptVerb", "prioritizeVerb", "bindVerb")}
    assert paths == {api.FILTER, api.PREEMPT, api.PRIORITIZE, api.BIND}, str(block)
    assert [each["name"] for each in found["managedResources"]] == [RESOURCE_ENABLE], str(block)
    assert found["enableHTTPS"] == found["urlPrefix"].startswith("https:"), str(block)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("noSuchValue: 1\n", "has no noSuchValue"),
        ("apiVersion: ostler.dev/v1alpha1\nkind: Config\nresource: []\n", "resource: is not a known key"),
        ("version: v1\nflags: {migStrategie: mixed}\n", "flags.migStrategie: is not a known key"),
        ("apiVersion: v one\nkind: Pod\nmetadata: {name: a}\n", "assert"),
    ],
)
def test_a_file_that_is_not_usable_is_seen(text: str, said: str) -> None:
    block = CodeBlock("page.md", 1, ("yaml",), text)
    with pytest.raises(Exception, match=re.escape(said)):
        judge(block, yaml.safe_load(text))


CONSOLES = [document for document in PAGES if any(block.language == "console" for block in blocks(document))]


@pytest.mark.parametrize("document", CONSOLES)
def test_what_is_typed_gives_the_output_that_stands_below_it(document: str, tmp_path: Path) -> None:
    work = workplace(tmp_path)
    put_files(document, work)
    for block in blocks(document):
        if block.language == "console":
            for line, expected in sessions(block.text):
                assert matches(expected, typed(line, work)), f"{block}: {line}\n{typed(line, work)}"


def typed(line: str, work: Path) -> str:
    """Everything that a line prints."""
    path = f"{work.parent / 'bin'}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(work), "OSTLER_SOCKET": str(work / "none.sock")}
    if _PLAIN.fullmatch(line):
        return _called(shlex.split(line)[1:], work, environment)
    run = subprocess.run(
        ["bash", "-c", line],
        cwd=work,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return run.stdout


_PLAIN = re.compile(r"ostler (?!kubelet |run )[\w ./:=,-]+")
"""A line that needs no shell, and no interpreter of its own, which costs a third of a second."""


def _called(words: Sequence[str], work: Path, environment: Mapping[str, str]) -> str:
    with (
        patch.dict(os.environ, environment, clear=True),
        contextlib.chdir(work),
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.redirect_stderr(printed),
        contextlib.suppress(SystemExit),
    ):
        main(words)
    return printed.getvalue()


def sessions(text: str) -> list[tuple[str, list[str]]]:
    """The lines typed behind ``$``, each with the lines of output that follow it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif found:
            found[-1][1].append(line)
    return found


def matches(expected: list[str], output: str) -> bool:
    """Whether the output is as shown; a line ``...`` stands for any lines, and blanks between columns do not count."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else rf"{re.escape(' '.join(line.split()))}\n" for line in expected
    )
    actual = "".join(f"{' '.join(line.split())}\n" for line in output.splitlines())
    return re.fullmatch(pattern, actual) is not None


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        (["a  b", "c"], "a b\nc\n", True),
        (["a", "...", "c"], "a\nb\nb\nc\n", True),
        (["a", "..."], "a\n", True),
        (["a"], "a\nb\n", False),
        (["a", "...", "c"], "a\nb\n", False),
        ([], "a\n", False),
    ],
)
def test_output_is_compared_line_by_line(expected: list[str], output: str, same: bool) -> None:
    assert matches(expected, output) is same
