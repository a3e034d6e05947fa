"""Agents are replaced exactly when something changes that they would have to be restarted for."""

from __future__ import annotations

import pytest

from tests.deploy.chart.rendering import Values, container_of, flags_of, render

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm


def instance(values: Values | None = None) -> str:
    """The name of the agents that values make."""
    return flags_of(render(values))["--instance"]


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"log": {"level": "debug"}}},
        {"config": {"resources": [{"name": "nvidia.com/gpu"}]}},
        {"configText": "version: v1"},
        {"topology": "<system/>"},
        {"recording": "x"},
        {"image": {"tag": "2"}},
        {"nics": {"enabled": True}},
        {"nvidia": {"access": "privileged"}},
        {"podAnnotations": {"restarted": "1"}},
        {"resources": {"limits": {"memory": "1Gi"}}},
        {"events": {"enabled": False}},
        {"tolerations": []},
        {"http": {"port": 9411}},
    ],
    ids=str,
)
def test_a_change_of_pod_or_configuration_gives_a_new_name(values: Values) -> None:
    assert instance(values) != instance()


@pytest.mark.parametrize(
    "values",
    [
        {"podMonitor": {"enabled": True}},
        {"prometheusRule": {"enabled": True}},
        {"commonLabels": {"team": "a"}},
        {"maxSurge": "10%"},
        {"admissionPolicy": {"enabled": False}},
    ],
    ids=str,
)
def test_a_change_of_anything_else_restarts_nobody(values: Values) -> None:
    assert _template(values) == _template(None)


def test_rendering_again_gives_the_same_name() -> None:
    assert instance() == instance()


def test_probes_ask_for_this_instance_by_http_on_the_pods_address() -> None:
    documents = render({"http": {"port": 9999}})
    container, name = container_of(documents), flags_of(documents)["--instance"]
    for probe, path in (("startupProbe", "livez"), ("livenessProbe", "livez"), ("readinessProbe", "readyz")):
        assert container[probe]["httpGet"] == {"path": f"/{path}/{name}", "port": 9999}
    assert flags_of(documents)["--http"] == "0.0.0.0:9999"


def test_on_the_nodes_network_the_agent_listens_on_the_nodes_own_address_alone() -> None:
    documents = render({"nics": {"enabled": True}})
    assert flags_of(documents)["--http"] == "$(POD_IP):9410"
    assert {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in container_of(documents)[
        "env"
    ]
    assert flags_of(render({"http": {"address": "[$(POD_IP)]"}}))["--http"] == "[$(POD_IP)]:9410"


def _template(values: Values | None) -> object:
    (found,) = (document for document in render(values) if document["kind"] == "DaemonSet")
    return found["spec"]["template"]
