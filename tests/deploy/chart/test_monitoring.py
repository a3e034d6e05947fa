"""Metrics and probes of the chart's pods: the PodMonitor, the alert rules, and who may reach them."""

from __future__ import annotations

import re

import pytest

from tests.deploy.chart.rendering import (
    container_of,
    flags_of,
    of_kind,
    only,
    pod_of,
    render,
)


def test_the_monitor_finds_pods_without_a_declared_port() -> None:
    documents = render({"podMonitor": {"enabled": True, "labels": {"release": "x"}}, "http": {"port": 9999}})
    monitor = only(documents, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert monitor["metadata"]["labels"]["release"] == "x"
    pod = only(documents, "DaemonSet")["spec"]["template"]["metadata"]
    assert pod["labels"][monitor["spec"]["jobLabel"]] == "ostler", "the alerts know agents by their job"

    def address(of: str) -> str:
        found = of
        for rule in endpoint["relabelings"]:
            match = re.fullmatch(rule.get("regex", "(.*)"), of)
            if rule["targetLabel"] == "__address__" and match:
                found = rule["replacement"].replace("$1", match[1])
        return found

    assert address("10.1.2.3") == "10.1.2.3:9999"
    assert address("fd00::3") == "[fd00::3]:9999"


def test_the_alert_rules_are_a_prometheus_rule() -> None:
    rule = only(render({"prometheusRule": {"enabled": True}}), "PrometheusRule")
    assert rule["spec"]["groups"]
    assert not of_kind(render(), "PrometheusRule")
    assert not of_kind(render(), "PodMonitor")


def test_who_may_scrape_is_said_by_a_network_policy_that_is_made_when_asked_for() -> None:
    assert of_kind(render(), "NetworkPolicy") == []
    prometheus = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    documents = render({"networkPolicy": {"enabled": True, "from": [prometheus]}, "http": {"port": 9999}})
    spec = only(documents, "NetworkPolicy")["spec"]
    assert spec["ingress"] == [{"from": [prometheus], "ports": [{"protocol": "TCP", "port": 9999}]}]
    assert spec["policyTypes"] == ["Ingress"]
    pod = only(documents, "DaemonSet")["spec"]["template"]["metadata"]
    assert spec["podSelector"]["matchLabels"].items() <= pod["labels"].items()


def test_a_network_policy_that_names_nobody_lets_nobody_in() -> None:
    spec = only(render({"networkPolicy": {"enabled": True}}), "NetworkPolicy")["spec"]
    assert spec["ingress"] == []


@pytest.mark.parametrize(("address", "host"), [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1")])
def test_on_the_nodes_network_probes_and_metrics_can_be_on_the_loopback_alone(address: str, host: str) -> None:
    documents = render({"nics": {"enabled": True}, "http": {"address": address}})
    container = container_of(documents)
    assert {container[f"{kind}Probe"]["httpGet"]["host"] for kind in ("startup", "liveness", "readiness")} == {host}
    assert flags_of(documents)["--http"] == f"{address}:9410"
    assert pod_of(documents)["hostNetwork"] is True
