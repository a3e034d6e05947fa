"""The section ``interface``: every value is read strictly, and what a claim may not set is an administrator's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver.claims.model import ConfigSource
from driver.parameters.errors import ParameterError
from driver.parameters.interface import PATHS, InterfaceParameters
from driver.parameters.interface_values import FEATURES
from kube.bodies import Json
from node.interfaces.features import SHORT_NAMES
from node.interfaces.model import Neighbor, Route, RoutingRule, VfSettings
from tests.making.interface_section import CLAIM, CLASS, MAC, problem, read

FOR_CLASS = "leave it out; an administrator writes it into a DeviceClass"


def test_every_setting_is_read() -> None:
    found = read(
        {
            "name": "net1",
            "addresses": ["10.0.0.2/24", "2001:DB8:0::2/64"],
            "routes": [
                {"destination": "10.1.0.0/16", "gateway": "10.0.0.1", "source": "10.0.0.2", "table": 100},
                {"destination": "10.2.0.0/16", "scope": "link"},
                {"destination": "::/0", "gateway": "fe80::1", "scope": "global"},
            ],
            "rules": [{"table": 100, "source": "10.0.0.2/32", "destination": "0.0.0.0/0", "priority": 32000}],
            "neighbors": [{"destination": "10.0.0.9", "hardwareAddress": "AA:BB:CC:00:00:09"}],
            "mtu": 9000,
            "hardwareAddress": "02:AB:00:00:00:01",
            "vf": {"trust": False, "spoofCheck": True},
            "features": {"tcp-segmentation-offload": False, "rx-gro": True},
            "sysctls": {"ipv4.arp_ignore": 8, "ipv6.accept_ra": 0},
            "keepEbpf": True,
        }
    )
    assert found == InterfaceParameters(
        "config",
        name="net1",
        addresses=("10.0.0.2/24", "2001:db8::2/64"),
        routes=(
            Route("10.1.0.0/16", "10.0.0.1", "10.0.0.2", "", 100),
            Route("10.2.0.0/16", scope="link"),
            Route("::/0", "fe80::1", scope="global"),
        ),
        rules=(RoutingRule(100, "10.0.0.2/32", "0.0.0.0/0", 32000),),
        neighbors=(Neighbor("10.0.0.9", "aa:bb:cc:00:00:09"),),
        mtu=9000,
        hardware_address="02:ab:00:00:00:01",
        vf=VfSettings(trust=False, spoof_check=True),
        features=(("tso", False), ("rx-gro", True)),
        sysctls=(("ipv4/arp_ignore", "8"), ("ipv6/accept_ra", "0")),
        keep_ebpf=True,
    )
    assert found.given == tuple(PATHS)


def test_a_class_may_set_what_a_claim_may_not() -> None:
    vf: dict[str, Json] = {"hardwareAddress": "0a:00:00:00:00:01", "vlan": 100, "vlanQos": 5, "trust": True}
    found = read(
        {
            "vf": {**vf, "spoofCheck": False},
            "hardwareAddress": "00:11:22:33:44:55",
            "sysctls": {"ipv4.forwarding": 1},
            "features": {"rx-all": True},
            "keepEbpf": False,
        },
        CLASS,
    )
    assert found.vf == VfSettings("0a:00:00:00:00:01", 100, 5, True, False)
    assert found.hardware_address == "00:11:22:33:44:55"
    assert found.sysctls == (("ipv4/forwarding", "1"),)
    assert found.features == (("rx-all", True),)
    assert found.keep_ebpf is False


BEYOND: list[tuple[Any, str]] = [
    *(
        ({"vf": {name: each}}, f"vf.{name}: a claim may not set it; {FOR_CLASS}")
        for name, each in (
            ("hardwareAddress", MAC),
            ("vlan", 5),
            ("vlanQos", 5),
            ("trust", True),
            ("spoofCheck", False),
        )
    ),
    *(
        ({"sysctls": {name: 1}}, f"sysctls.{name}: a claim may not set it; {FOR_CLASS}")
        for name in ("ipv4.forwarding", "ipv4.proxy_arp", "ipv6.forwarding", "ipv6.proxy_ndp")
    ),
    *(
        (
            {"features": {name: on}},
            (
                f'features."{name}": a claim may not set it; leave it out; an administrator writes features that '
                "are not offloads into a DeviceClass"
            ),
        )
        for name, on in (
            ("rx-all", True),
            ("rx-fcs", True),
            ("rx-vlan-filter", False),
            ("hw-tc-offload", True),
            ("l2-fwd-offload", True),
        )
    ),
    (
        {"features": {"loopback": True}},
        (
            "features.loopback: a claim may not set it; leave it out; an administrator writes features that are "
            "not offloads into a DeviceClass"
        ),
    ),
    (
        {"keepEbpf": False},
        f"keepEbpf: a claim may not detach what others attached to the node's interface; {FOR_CLASS}",
    ),
    (
        {"hardwareAddress": "00:11:22:33:44:55"},
        (
            'hardwareAddress: "00:11:22:33:44:55" belongs to a manufacturer, and a claim may not take it; write '
            "one whose second digit is 2, 6, a or e, or have an administrator write it into a DeviceClass"
        ),
    ),
]
"""What a claim may not set, and the end of the error."""


@pytest.mark.parametrize(("content", "text"), BEYOND)
def test_a_claim_may_not_reach_beyond_its_pod(content: Json, text: str) -> None:
    assert problem(content) == f"config.interface.{text}"
    read(content, CLASS) if content != {"vf": {"vlanQos": 5}} else None


def test_every_short_name_of_an_offload_is_one_that_the_kernels_side_knows() -> None:
    assert {name for name in SHORT_NAMES if FEATURES.fullmatch(name)} == set(SHORT_NAMES) - {"ntuple"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
WORDS = ("destination", "gateway", "source", "scope", "table", "priority", "hardwareAddress", "vlan", "trust", "gro")
TEXTS = ("10.0.0.2/24", "10.0.0.0/8", "10.0.0.1", "fe80::1", "::/0", "link", "net1", MAC, "ipv4.arp_ignore")
near = st.recursive(
    json_values | st.sampled_from(TEXTS) | st.integers(0, 70000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=20)
@given(
    st.dictionaries(st.sampled_from([path.partition(".")[2] for path in PATHS.values()]), near),
    st.sampled_from([CLAIM, CLASS]),
)
def test_whatever_is_written_is_read_or_refused_in_words(content: dict[str, Json], source: ConfigSource) -> None:
    try:
        found = read(content, source)
    except ParameterError as error:
        text = str(error)
    else:
        text = "config"
        assert source is CLASS or found.vf is None or (found.vf.trust, found.vf.vlan) in {(None, None), (False, None)}
    assert text.startswith("config")
    assert len(text) < 700
