"""The policy about claims' parameters, evaluated: it refuses what the agent would refuse, when the claim is created."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.decoding import API_VERSION, CLASS_ONLY, FIELDS, KINDS, NicConfig, decode
from driver.parameters.errors import ParameterError
from driver.parameters.interface import FIELDS as INTERFACE_FIELDS
from driver.parameters.interface_values import FEATURES, OF_NODES, SHORT_NAMES, SYSCTLS
from tests.deploy.chart.rendering import Document, Values, refusal, render
from tests.driver.parameters.test_interface import BEYOND
from tests.driver.parameters.test_interface_mistakes import MISTAKES
from tests.making.policies import PolicyAdmission

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm

NAME = "ostler-claim-parameters"
DRA: dict[str, Any] = {"dra": {"enabled": True}}
PLACE = "spec.devices.config[0].opaque.parameters"
FOR_CLASS = "a claim may not set it; leave it out; an administrator writes it into a DeviceClass"
MAC = "02:00:00:00:00:01"


GOOD: dict[str, Any] = {
    "name": "net1",
    "addresses": ["10.0.0.2/24", "2001:db8::2/64", "fe80::2/64", "169.254.1.2/32"],
    "routes": [
        {"destination": "0.0.0.0/0", "gateway": "10.0.0.1", "source": "10.0.0.2", "table": 100},
        {"destination": "::/0", "scope": "link"},
    ],
    "rules": [{"table": 100, "source": "10.0.0.2/32", "priority": 32000}],
    "neighbors": [{"destination": "10.0.0.9", "hardwareAddress": "00:AB:00:00:00:09"}],
    "mtu": 9000,
    "hardwareAddress": "0A:00:00:00:00:01",
    "vf": {"trust": False, "spoofCheck": True},
    "features": {"tcp-segmentation-offload": False, "rx-gro": True},
    "sysctls": {"ipv4.arp_ignore": 8},
    "keepEbpf": True,
}


def policy(given: Values = DRA) -> Document:
    (found,) = (
        each
        for each in render(given)
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == NAME
    )
    return found


def claim(*parameters: Any, driver: str = "ostler.dev") -> dict[str, Any]:
    configs = [{"opaque": {"driver": driver, "parameters": each}} for each in parameters]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "spec": {"devices": {"config": configs}}}


def own(kind: str = "NicConfig", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, **fields}


def refused(written: dict[str, Any], given: Values = DRA) -> list[str]:
    return PolicyAdmission(written).refusals(policy(given))


def test_it_is_there_with_claims_unless_it_is_turned_off() -> None:
    def names(given: Values) -> set[str]:
        return {each["metadata"]["name"] for each in render(given) if each["kind"].startswith("ValidatingAdmission")}

    assert NAME in names(DRA)
    assert NAME not in names({})
    assert NAME not in names({"dra": {"enabled": True, "claimParameters": {"checked": False}}})
    assert NAME not in names({**DRA, "admissionPolicy": {"enabled": False}})
    binding = next(
        each
        for each in render(DRA)
        if each["kind"] == "ValidatingAdmissionPolicyBinding" and each["metadata"]["name"] == NAME
    )
    assert binding["spec"] == {"policyName": NAME, "validationActions": ["Deny"]}
    assert policy()["spec"]["failurePolicy"] == "Fail"


def test_claims_that_say_nothing_wrong_are_created() -> None:
    claims: list[dict[str, Any]] = [
        claim(),
        {"spec": {"devices": {}}},
        {"spec": {}},
        {"spec": {"spec": {"devices": {"requests": []}}}},
        claim("text", {"kind": 7}, driver="another.example.com"),
        claim(own(), own("GpuConfig", gdrcopy=True, sharing={"strategy": "mps"}), own("MigConfig", gds=False)),
        claim(own(rdma=True, interface=GOOD)),
    ]
    for written in claims:
        assert refused(written) == []


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ("text", ": it must be an object; write apiVersion and kind"),
        ({"kind": "NicConfig"}, ".apiVersion: write ostler.dev/v1alpha1"),
        ({"apiVersion": API_VERSION}, ".kind: write one of GpuConfig, MigConfig, NicConfig"),
        ({"apiVersion": API_VERSION, "kind": []}, ".kind: write one of GpuConfig, MigConfig, NicConfig"),
        (own(rmda=True), ".rmda: NicConfig has no such field; it has rdma, vhostNet, nccl, interface"),
        (
            own("MigConfig", imexChannels=[0]),
            ".imexChannels: MigConfig has no such field; it has gdrcopy, gds, mofed, sharing",
        ),
        *((own("GpuConfig", **{name: True}), f".{name}: {FOR_CLASS}") for name in sorted(CLASS_ONLY)),
        (own(rdma="yes"), ".rdma: it must be true or false; write true or false"),
        (own("GpuConfig", sharing=[]), ".sharing: it must be an object; write its fields"),
        (own(interface=[]), ".interface: it must be an object; write its fields"),
        (own(interface={"mtu": 67}), ".interface.mtu: 67 cannot be used; write a whole number from 68 to 65535"),
        (
            own(interface={"name": "eth0"}),
            (
                '.interface.name: "eth0" cannot be used; write 1 to 15 letters, digits, -, _ and ., as net1, and no '
                "name of the network of nodes or pods, such as eth0"
            ),
        ),
        (
            own(interface={"addresses": ["10.0.0.2/24", "10.0.0.3"]}),
            ('.interface.addresses[1]: "10.0.0.3" cannot be used; write addresses with prefix length, as 10.0.0.2/24'),
        ),
        (
            own(interface={"routes": [{"destination": "10.0.0.0/8"}, {"destination": "10.0.0.0/8", "gateway": "x"}]}),
            (
                ".interface.routes[1]: the value cannot be used; write destination as 10.1.0.0/16, gateway and source "
                "as 10.0.0.1, scope global or link, and table as a number"
            ),
        ),
        (own(interface={"vf": {"vlan": 5}}), f".interface.vf.vlan: {FOR_CLASS}"),
        (
            own(interface={"features": {"rx-all": True}}),
            (
                ".interface.features.rx-all: it is no offload, and a claim may not set it; leave it out; an "
                "administrator writes it into a DeviceClass"
            ),
        ),
        (
            own(interface={"sysctls": {"ipv4.arp_ignore": 4}}),
            ".interface.sysctls.ipv4.arp_ignore: write one of 0, 1, 2, 3, 8",
        ),
    ],
)
def test_a_mistake_is_named_with_place_and_fix(parameters: Any, text: str) -> None:
    assert refused(claim(parameters)) == [f"{PLACE}{text}"]


def test_the_place_is_that_of_the_claim_or_of_the_template() -> None:
    body = claim(own(), own(rdma=1), own(rdma=2))
    text = "config[1].opaque.parameters.rdma: it must be true or false; write true or false"
    assert refused(body) == [f"spec.devices.{text}"]
    template = {"kind": "ResourceClaimTemplate", "spec": {"spec": body["spec"]}}
    assert refused(template) == [f"spec.spec.devices.{text}"]


def test_a_driver_with_another_name_has_parameters_of_its_own() -> None:
    other: Values = {"dra": {"enabled": True, "driverName": "devices.example.com"}}
    assert refused(claim(own(rdma=1)), other) == []
    assert refused(claim(own(rdma=1), driver="devices.example.com"), other) != []


NOT_SEEN = (
    "is reserved",
    "means this host",
    "itself, and no address in it",
    "broadcast address",
    "prefix length 0",
    "is listed twice",
    "has bits behind its prefix",
    "loopback network",
    "of different IP versions",
    "is a gateway",
    "is a multicast address; write an address without",
    "feature is listed twice",
)
"""Mistakes that need arithmetic with addresses, or two values at once: the agent finds them."""


@pytest.mark.parametrize(("content", "text"), [*BEYOND, *MISTAKES])
def test_what_the_agent_refuses_of_an_interface_is_refused_here(content: Any, text: str) -> None:
    if any(words in text for words in NOT_SEEN):
        return
    (said,) = refused(claim(own(interface=content)))
    assert said.startswith(f"{PLACE}.interface")
    assert "; " in said or ": write one of " in said


WORDS = (
    *INTERFACE_FIELDS, *SYSCTLS, "destination", "gateway", "source", "scope", "table", "priority", "vlan", "trust",
    "spoofCheck", "gro", "rx-all", "x",
)  # fmt: skip
VALUES = (
    None, True, False, 0, 1, 8, 68, 100, 255, 9000, 70000, 1.5, "", "link", "net1", "eth0", "10.0.0.2/24", "10.0.0.0/8",
    "10.0.0.1", "fe80::1", "::/0", "224.0.0.1/4", MAC, "00:11:22:33:44:55", "é\n",
)  # fmt: skip


def _any(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.random()
    if depth and kind < 0.25:
        return [_any(chance, depth - 1) for _ in range(chance.randrange(3))]
    if depth and kind < 0.6:
        return {chance.choice(WORDS): _any(chance, depth - 1) for _ in range(chance.randrange(4))}
    return chance.choice(VALUES)


def _nearly(found: Any, chance: random.Random) -> Any:
    """Something like it, of which a part may be another value."""
    if chance.random() < 0.1:
        return _any(chance)
    if isinstance(found, dict):
        return {key: _nearly(each, chance) for key, each in found.items() if chance.random() < 0.8}
    return [_nearly(each, chance) for each in found] if isinstance(found, list) else found


def test_nothing_is_refused_that_the_agent_would_serve() -> None:
    chance, served, both = random.Random(3), 0, 0
    for _ in range(150):
        content = {key: _nearly(each, chance) for key, each in GOOD.items() if chance.random() < 0.3}
        parameters = own(interface=content)
        said = refused(claim(parameters))
        try:
            decode(AllocatedConfig(ConfigSource.CLAIM, (), parameters, "c"))
        except ParameterError:
            both += bool(said)
        else:
            served += 1
            assert said == [], content
    assert served > 25
    assert both > 25


def test_the_largest_claim_costs_no_more_than_an_api_server_allows() -> None:
    routes = [{"destination": f"10.{n}.0.0/16", "gateway": "10.0.0.1"} for n in range(64)]
    addresses = [f"10.0.0.{n}/24" for n in range(1, 17)]
    neighbors = [{"destination": f"10.0.1.{n}", "hardwareAddress": MAC} for n in range(1, 65)]
    largest = own(interface={"addresses": addresses, "routes": routes, "neighbors": neighbors})
    # An API server allows 32 configurations, of 10 KiB each.
    assert len(json.dumps(largest)) < 10240
    assert refused(claim(*([largest] * 31), own(rdma=1)))[0].startswith("spec.devices.config[31].")


def test_an_administrator_may_forbid_further_fields() -> None:
    given: Values = {"dra": {"enabled": True, "claimParameters": {"classOnly": ["rdma", "interface.addresses"]}}}
    assert refused(claim(own(rdma=True)), given) == [f"{PLACE}.rdma: {FOR_CLASS}"]
    assert refused(claim(own(interface={"addresses": ["10.0.0.2/24"]})), given) == [
        f"{PLACE}.interface.addresses: {FOR_CLASS}"
    ]
    assert refused(claim(own(vhostNet=True, interface={"name": "net1"})), given) == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"claimParameters": {"classOnly": ["interface.adresses"]}}, "/dra/claimParameters/classOnly/0"),
        (
            {"claimParameters": {"checked": False, "classOnly": ["rdma"]}},
            "dra.claimParameters.classOnly is enforced by an admission policy: set dra.claimParameters.checked=true",
        ),
    ],
)
def test_what_cannot_be_forbidden_is_refused(given: Values, problem: str) -> None:
    assert problem in " ".join(refusal({"dra": {"enabled": True, **given}}).split())


RESERVED = {
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
}
RESERVED |= {"namespace", "return", "var", "void", "while", "true", "false", "null"}


def test_an_api_server_accepts_the_names_of_its_variables() -> None:
    """CEL keeps some words, and ostler's own lets a variable have them after a dot."""
    assert not RESERVED & {each["name"] for each in policy()["spec"]["variables"]}


def test_its_tables_are_those_of_the_agent() -> None:
    variables = {each["name"]: each["expression"] for each in policy()["spec"]["variables"]}
    fields = json.loads(variables["fields"])
    assert fields == {
        name: [key for key, attribute in FIELDS.items() if attribute in kind.__slots__] for name, kind in KINDS.items()
    }
    assert set(NicConfig.__slots__) == {FIELDS[key] for key in fields["NicConfig"]}
    assert json.dumps(list(INTERFACE_FIELDS)).replace(" ", "") in variables["unknown"]
    assert f"^({OF_NODES.pattern})" in variables["single"]
    values = json.loads(variables["sysctlValues"])
    assert values == {name: list(each.values) for name, each in SYSCTLS.items() if not each.class_only}
    for name in (*SHORT_NAMES, *SHORT_NAMES.values(), "tx-udp-segmentation", "rx-gro-list", "rx-all", "ntuple"):
        expected = FEATURES.fullmatch(SHORT_NAMES.get(name, name)) is not None
        assert (refused(claim(own(interface={"features": {name: True}}))) == []) is expected, name
