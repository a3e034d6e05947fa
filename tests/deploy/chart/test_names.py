"""Names and paths arrive as they were given, whatever they look like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.generate import CHART
from tests.deploy.chart.rendering import Values, render, run_helm

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm

TEXT = {"name", "namespace", "path", "value", "image", "serviceAccountName", "priorityClassName", "runtimeClassName"}
"""Keys of Kubernetes whose values are text."""
NUMBERS: Values = {
    "fullnameOverride": "123",
    "commonLabels": {"a": "1"},
    "podLabels": {"b": "true"},
    "podAnnotations": {"c": "null"},
    "nodeSelector": {"d": "1e3"},
    "imagePullSecrets": ["456"],
    "priorityClassName": "7",
    "runtimeClassName": "8",
    "nvidia": {"visibleDevices": "0"},
    "serviceAccount": {"name": "9", "annotations": {"e": "no"}},
    "dra": {"enabled": True, "driverName": "1.5"},
    "podMonitor": {"enabled": True, "labels": {"f": "0x1"}},
    "prometheusRule": {"enabled": True, "labels": {"g": "off"}},
}


def rendered(release: str, namespace: str, values: Values | None = None) -> list[Any]:
    answer = run_helm("template", release, str(CHART), "--namespace", namespace, values=values)
    assert answer.returncode == 0, answer.stderr
    return [document for document in yaml.safe_load_all(answer.stdout) if document]


def misread(value: Any, path: str = "") -> Iterator[str]:
    """Where something that has to be text is not."""
    if isinstance(value, dict):
        for key, inner in value.items():
            texts = key in TEXT or path.endswith(("/labels", "/matchLabels", "/annotations", "/nodeSelector"))
            if texts and not isinstance(inner, str | dict | list):
                yield f"{path}/{key}: {inner!r}"
            yield from misread(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            if path.endswith(("/args", "/resourceNames")) and not isinstance(inner, str):
                yield f"{path}[{place}]: {inner!r}"
            yield from misread(inner, f"{path}[{place}]")


@pytest.mark.parametrize(("release", "namespace"), [("123", "456"), ("true", "null"), ("1e3", "0x1")])
def test_names_that_look_like_something_else_stay_text(release: str, namespace: str) -> None:
    assert list(misread(rendered(release, namespace))) == []


def test_values_that_look_like_something_else_stay_text() -> None:
    assert list(misread(rendered("ostler", "default", NUMBERS))) == []


@pytest.mark.parametrize("character", ["'", '"', "{", "#", "&", "\\", ":"])
def test_paths_are_passed_on_as_they_are(character: str) -> None:
    root = f"/var/{character}x"
    folders = ("kubeletRoot", "devicePluginDir", "cdiRoot", "stateDir", "driverRoot", "machineIdFile")
    documents = render({**dict.fromkeys(folders, root), "cdiAccess": "always", "nvidia": {"access": "privileged"}})
    (pod,) = (document["spec"]["template"]["spec"] for document in documents if document["kind"] == "DaemonSet")
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}
    assert paths == {
        "device-plugins": root,
        "plugins-registry": f"{root}/plugins_registry",
        "pod-resources": f"{root}/pod-resources",
        "state": root,
        "cgroup": "/sys/fs/cgroup",
        "dev": f"{root}/dev",
        "machine-id": root,
        "cdi": root,
        "driver": root,
    }
    assert f"--nvidia-driver-root={root}" in pod["containers"][0]["args"]


@pytest.mark.parametrize("release", ["a" * 53, f"{'a' * 49}.bcd", f"ostler-{'a' * 42}-bcd"])
def test_long_names_are_cut_where_a_name_may_end(release: str) -> None:
    names = {document["metadata"]["name"] for document in rendered(release, "default")}
    assert all(name[-1].isalnum() and len(name) <= 63 for name in names)
    for document in rendered(release, "default"):
        assert all(len(value) <= 63 for value in document["metadata"]["labels"].values())


def test_two_releases_share_no_name() -> None:
    first, second = (
        {(document["kind"], document["metadata"]["name"]) for document in rendered(release, "devices")}
        for release in ("ostler", "ostler-nics")
    )
    assert not first & second
