"""The extender in the chart: off by default, few rights, and a configuration and flags that the extender takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from ostler.cli.commands import command_line
from scheduling.cells.configuration import read_configuration
from tests.deploy.chart.rendering import Document, Values, refusal, render

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm

CELLS: dict[str, Any] = {
    "physicalCluster": {
        "cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": 8, "isNodeLevel": True}},
        "physicalCells": [{"cellType": "NODE", "cellAddress": "node-1"}],
    },
    "virtualClusters": {"team": {"virtualCells": [{"cellType": "NODE", "cellNumber": 1}]}},
}
NAME = "ostler-extender"


def values(**more: Any) -> Values:
    return {"extender": {"enabled": True, "config": CELLS, "tlsSecret": "extender-tls", **more}}


def named(documents: list[Document], kind: str) -> Document:
    (found,) = [each for each in documents if each["kind"] == kind and each["metadata"]["name"] == NAME]
    return found


def rights(documents: list[Document]) -> set[tuple[str, str, str, str]]:
    return {
        (document["metadata"].get("namespace", ""), resource, name, verb)
        for document in documents
        if document["kind"] in ("ClusterRole", "Role") and document["metadata"]["name"] == NAME
        for rule in document["rules"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def test_nothing_of_it_is_there_by_default() -> None:
    assert NAME not in json.dumps(render())


def test_for_kueue_it_reads_workloads_and_checks_and_writes_their_status() -> None:
    documents = render(values(kueue={"enabled": True}))
    assert rights(documents) - rights(render(values())) == {
        *(("", kind, "", verb) for kind in ("admissionchecks", "workloads") for verb in ("get", "list", "watch")),
        *(("", f"{kind}/status", "", "update") for kind in ("admissionchecks", "workloads")),
    }
    arguments = named(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert command_line("extender").parse_args(arguments).kueue
    assert "--kueue" not in json.dumps(render(values()))


def test_its_account_has_these_rights_alone() -> None:
    documents = render(values())
    assert rights(documents) == {
        *(("", resource, "", verb) for resource in ("nodes", "pods", "resourceslices") for verb in ("list", "watch")),
        ("", "pods/binding", "", "create"),
        ("", "pods/status", "", "patch"),
        ("", "persistentvolumeclaims", "", "get"),
        *(("", "events", "", verb) for verb in ("create", "patch")),
        ("ostler-system", "leases", "", "create"),
        *(("ostler-system", "leases", NAME, verb) for verb in ("get", "update")),
    }
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        subject = {"kind": "ServiceAccount", "name": NAME, "namespace": "ostler-system"}
        assert named(documents, kind)["subjects"] == [subject]
    assert not rights(render({**values(), "rbac": {"create": False}}))
    # Without a policy that limits it the right to patch a status is none to give.
    without = rights(render({**values(), "admissionPolicy": {"enabled": False}}))
    assert rights(documents) - without == {("", "pods/status", "", "patch")}


def test_its_configuration_is_one_that_the_extender_reads() -> None:
    text = named(render(values(port=7000)), "ConfigMap")["data"]["cells.yaml"]
    found = read_configuration(text)
    assert found.extender.web_server_address == ":7000"
    assert set(found.virtual_clusters) == {"team"}
    assert yaml.safe_load(text)["physicalCluster"] == CELLS["physicalCluster"]


def test_its_flags_are_the_commands_own() -> None:
    spec = named(render(values()), "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    parsed = command_line("extender").parse_args(container["args"])
    assert str(parsed.config) == "/etc/ostler/cells.yaml"
    assert parsed.lease == "ostler-system/ostler-extender"
    assert parsed.tls_client_name == ["system:kube-scheduler"]
    assert {str(path.parent) for path in (parsed.tls_cert, parsed.tls_key, parsed.tls_client_ca)} == {"/etc/ostler-tls"}
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {"/etc/ostler": "config", "/etc/ostler-tls": "tls"}
    assert spec["securityContext"]["runAsNonRoot"] is True


def test_an_update_does_not_wait_for_a_standby_to_become_ready() -> None:
    strategy = named(render(values()), "Deployment")["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": "100%"}


def test_its_service_selects_its_own_pods_and_the_agents_do_not() -> None:
    documents = render(values(clusterIP="10.96.0.50"))
    service = named(documents, "Service")
    labels = named(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["clusterIP"] == "10.96.0.50"
    (agents,) = [each for each in documents if each["kind"] == "DaemonSet"]
    assert not agents["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            values(tlsSecret=""),
            "extender.tlsSecret is empty: name a Secret with tls.crt, tls.key and",
        ),
        (
            values(config={**CELLS, "webServerAddress": ":1"}),
            "extender.config.webServerAddress: the chart decides it: remove it",
        ),
        (
            values(config={}),
            "extender.config has no physicalCluster or no virtualClusters: say which cells there are and who owns them",
        ),
        (values(replicas=0), "'/extender/replicas': minimum: got 0, want 1"),
        (values(port=0), "'/extender/port': minimum: got 0, want 1"),
        (values(clusterIP="x"), "'/extender/clusterIP': 'x' does not match pattern"),
    ],
    ids=["no-secret", "chart-decides", "no-cells", "no-replicas", "no-port", "no-address"],
)
def test_what_cannot_work_is_refused(given: Values, text: str) -> None:
    assert text in refusal(given)
