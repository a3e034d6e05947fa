"""Rendering the chart with the real Helm, and finding things in what comes out.

What Helm answers depends on its build, the chart and the call alone. So the answers are kept in the cache folder, under
the digest of all three: a render is mostly Helm's own start, and three hundred tests ask for one.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate import CHART, KUBERNETES, NAMESPACE, ROOT
from tests.cluster.components.build import tools
from tests.cluster.components.toolchain import ToolchainMissing
from tests.making.cache import cache_folder, cached, digest, remove_old

Values = Mapping[str, Any]
Document = dict[str, Any]
KEPT = 5
"""Charts whose answers stay in the cache folder; those of older ones that nobody uses go when another is added."""


@functools.cache
def helm() -> Path:
    """The tests' own Helm; skips where it is not there and cannot be built."""
    try:
        return tools() / "helm"
    except (ToolchainMissing, subprocess.CalledProcessError) as error:
        pytest.skip(f"helm cannot be built: {error}")


def run_helm(*arguments: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
    """One call of Helm with values as a file."""
    # The chart's path from the root of the checkout: a checkout elsewhere gets the same answers.
    words = tuple(word.removeprefix(f"{ROOT}/") for word in arguments)
    # JSON is YAML, and Helm reads its words (on, off) as they are meant.
    return _run_helm(words, json.dumps(values or {}))


@functools.cache
def _run_helm(arguments: tuple[str, ...], values: str) -> subprocess.CompletedProcess[str]:
    """The kept answer; Helm is asked when there is none."""
    given = [path.read_bytes() for path in (ROOT / word for word in arguments) if path.is_file()]
    kept = _answers() / f"{digest(KUBERNETES, json.dumps(arguments), values, *given)}.json"
    if kept.exists():
        return subprocess.CompletedProcess(arguments, *json.loads(kept.read_text()))
    done = _ask_helm(arguments, values)
    # Neither a crash nor a signal is an answer.
    if done.returncode in (0, 1):
        # Whole or not at all: another worker may read it.
        with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as file:
            json.dump([done.returncode, done.stdout, done.stderr], file)
        Path(file.name).rename(kept)
    return done


def _ask_helm(arguments: tuple[str, ...], values: str) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "values.yaml"
        file.write_text(values)
        # The later of two wins, so that a test can name another version.
        command = [str(helm()), arguments[0], "--kube-version", KUBERNETES, *arguments[1:], "--values", str(file)]
        # Helm ends before its garbage is worth a collection.
        environment = {**os.environ, "GOGC": "off"}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=240
        )


@functools.cache
def _answers() -> Path:
    """The folder of the answers about the chart as it is, by the Helm of the tests."""
    files = sorted(path for path in CHART.rglob("*") if path.is_file())
    contents = [part for path in files for part in (str(path.relative_to(CHART)), path.read_bytes())]
    # The path of Helm has the digest of what it is built from.
    charts = cache_folder().glob("chart/[!.]*")
    return cached(f"chart/{digest(str(helm()), *contents)}", lambda _: remove_old(charts, KEPT))


def template(values: Values | None = None, *options: str) -> subprocess.CompletedProcess[str]:
    """The chart rendered as release ``ostler``, whatever comes of it."""
    return run_helm("template", "ostler", str(CHART), "--namespace", NAMESPACE, *options, values=values)


def render(values: Values | None = None, *options: str) -> list[Document]:
    """The objects that the chart makes of values; fails the test when it makes none."""
    answer = template(values, *options)
    assert answer.returncode == 0, answer.stderr
    return [document for document in yaml.load_all(answer.stdout, yaml.CSafeLoader) if document]


def refusal(values: Values) -> str:
    """Why the chart refuses values; fails the test when it does not."""
    answer = template(values)
    assert answer.returncode != 0, "the chart accepts this"
    return answer.stderr


def of_kind(documents: list[Document], kind: str) -> list[Document]:
    """The objects of one kind."""
    return [document for document in documents if document["kind"] == kind]


def only(documents: list[Document], kind: str) -> Document:
    """The one object of a kind."""
    (found,) = of_kind(documents, kind)
    return found


def pod_of(documents: list[Document]) -> Document:
    """The spec of the agents' pods."""
    spec: Document = only(documents, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def container_of(documents: list[Document]) -> Document:
    """The agent's container."""
    (container,) = pod_of(documents)["containers"]
    return dict(container)


def flags_of(documents: list[Document]) -> dict[str, str]:
    """The flags that the agent is started with, by their names."""
    command, *flags = container_of(documents)["args"]
    assert command == "run"
    return dict(flag.split("=", 1) for flag in flags)
