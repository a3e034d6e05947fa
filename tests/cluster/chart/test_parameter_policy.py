"""The policy about claims' parameters on a real API server: what is refused when a claim is created, and how.

``tests/deploy/chart/test_parameter_policy.py`` has all its cases, evaluated by ostler's own CEL.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.chart.account import CLAIMS, DRA
from tests.cluster.rig.api import ApiRefused, Object, RigApi
from tests.cluster.rig.processes import wait_until
from tests.deploy.chart.rendering import render
from tests.deploy.chart.test_parameter_policy import GOOD, MAC, NAME, own

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
COLLECTIONS = {
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
TEMPLATES = f"{DRA}/namespaces/default/resourceclaimtemplates"
WRONG = own(rdma=1)


def claim(*parameters: Any) -> Object:
    configs = [{"opaque": {"driver": "ostler.dev", "parameters": each}} for each in parameters]
    requests = [{"name": "nic", "exactly": {"deviceClassName": "nic.ostler.dev"}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "tried", "namespace": "default"},
        "spec": {"devices": {"requests": requests, "config": configs}},
    }


def said(api: RigApi, path: str, body: Object) -> str:
    """Why the API server refuses it, empty if it does not; nothing is created."""
    try:
        api.request("POST", f"{path}?dryRun=All", body)
    except ApiRefused as refused:
        return str(refused)
    return ""


@pytest.fixture
def policy(api: RigApi) -> Iterator[str]:
    """The policy in force; its path."""
    documents = render({"dra": {"enabled": True}})
    made = [each for each in documents if each["kind"] in COLLECTIONS and each["metadata"]["name"] == NAME]
    for each in made:
        # A release on the same cluster may have left its own, which is in force for a second or two when it is gone.
        api.delete(f"{COLLECTIONS[each['kind']]}/{NAME}")
    wait_until("no policy is in force", lambda: said(api, CLAIMS, claim(WRONG)) == "")
    for each in made:
        api.create(COLLECTIONS[each["kind"]], each)
    try:
        wait_until("the policy is in force", lambda: said(api, CLAIMS, claim(WRONG)) != "")
        yield f"{COLLECTIONS['ValidatingAdmissionPolicy']}/{NAME}"
    finally:
        for each in made:
            api.delete(f"{COLLECTIONS[each['kind']]}/{NAME}")


def test_a_claim_with_a_mistake_is_not_created(api: RigApi, policy: str) -> None:
    text = "devices.config[0].opaque.parameters.rdma: it must be true or false; write true or false"
    assert f"spec.{text}" in said(api, CLAIMS, claim(WRONG))
    body = claim(WRONG)
    template = {**body, "kind": "ResourceClaimTemplate", "spec": {"spec": body["spec"]}}
    assert f"spec.spec.{text}" in said(api, TEMPLATES, template)
    for content, fault in (
        ({"mtu": 67}, "interface.mtu: 67 cannot be used; write a whole number from 68 to 65535"),
        ({"addresses": ["10.0.0.2"]}, 'interface.addresses[0]: "10.0.0.2" cannot be used; write addresses'),
        ({"vf": {"vlan": 5}}, "interface.vf.vlan: a claim may not set it; leave it out; an administrator writes it"),
        ({"sysctls": {"ipv4.forwarding": 1}}, "interface.sysctls.ipv4.forwarding: a claim may not set it"),
    ):
        assert fault in said(api, CLAIMS, claim(own(), own(interface=content)))


def test_a_claim_without_a_mistake_is_created(api: RigApi, policy: str) -> None:
    routes = [{"destination": f"10.{number}.0.0/16", "gateway": "10.0.0.1"} for number in range(64)]
    neighbors = [{"destination": f"10.0.1.{number}", "hardwareAddress": MAC} for number in range(1, 65)]
    largest = own(interface={"routes": routes, "neighbors": neighbors})
    for body in (
        claim(own(rdma=True, interface=GOOD)),
        claim(*([largest] * 32)),
        claim(own("GpuConfig", gdrcopy=True)),
    ):
        assert said(api, CLAIMS, body) == ""


def test_the_policy_has_no_mistake_of_types(api: RigApi, policy: str) -> None:
    """The API server checks every expression against the types of what it is about, and says so in the status."""
    found = api.wait(policy, "its types are checked", lambda one: "typeChecking" in one.get("status", {}))
    assert found["status"]["typeChecking"] == {}
