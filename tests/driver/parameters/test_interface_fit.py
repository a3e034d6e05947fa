"""Which interfaces move, what their devices can have, and what the sum of all parameters is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from driver.claims.model import AllocatedConfig, AllocatedDevice, Allocation, ClaimError, ClaimReference, ConfigSource
from driver.devices.view import DoorView, DraDevice
from driver.names import Peer
from driver.parameters.decoding import API_VERSION
from driver.parameters.errors import ParameterError, UnservedParameter
from driver.parameters.options import device_parameters
from kube.bodies import Json
from node.edits.options import EditOptions
from node.interfaces.model import InterfaceSettings, Route, VfSettings
from node.inventory.model import Device, Host
from node.rules import Rule
from tests.making.devices import gpu, nic, rdma, vfio

CLAIM = ClaimReference("default", "claim", "uid")
CLASS = ConfigSource.CLASS
MOVING = Rule("example.com/nic", moves_interface=True)
STAYING = Rule("example.com/nic")
PORT = nic(3, ifName="ens3", linkType="ethernet", driver="mlx5_core")
OTHER = nic(4, ifName="ens4", linkType="ethernet", driver="mlx5_core")
FUNCTION = {"ifName": "ens3v0", "sriovFunction": "vf", "vfIndex": 0, "pfName": "ens3", "linkType": "ethernet"}
VF = nic(5, **FUNCTION)  # type: ignore[arg-type]
MAC = "02:00:00:00:00:01"

Asked = tuple[str, Device, Rule]


def config(
    interface: Json, *requests: str, source: ConfigSource = ConfigSource.CLAIM, place: str = "c"
) -> AllocatedConfig:
    parameters: dict[str, Json] = {"apiVersion": API_VERSION, "kind": "NicConfig", "interface": interface}
    return AllocatedConfig(source, requests, parameters, place)


def dranet(parameters: Mapping[str, Json], *requests: str, place: str = "d") -> AllocatedConfig:
    return AllocatedConfig(ConfigSource.CLAIM, requests, dict(parameters), place, Peer.DRANET)


def settings(
    devices: list[Asked],
    *configs: AllocatedConfig,
    admin: bool = False,
    host: Host | None = None,
    beside: tuple[Device, ...] = (),
) -> list[InterfaceSettings | None]:
    """What the interface of each device is to be, None if it does not move."""
    asked = tuple(AllocatedDevice(request, "node-a", device.name, admin_access=admin) for request, device, _ in devices)
    shown = [DraDevice(device, rule, True) for _, device, rule in devices]
    shown += [DraDevice(device, STAYING, True) for device in beside]
    found = device_parameters(Allocation(CLAIM, asked, configs), DoorView(tuple(shown), host or Host()), "ostler.dev")
    return [found.interfaces.get(each.key) for each in asked]


def problem(
    devices: list[Asked], *configs: AllocatedConfig, admin: bool = False, beside: tuple[Device, ...] = ()
) -> str:
    with pytest.raises(ClaimError) as raised:
        settings(devices, *configs, admin=admin, beside=beside)
    return str(raised.value)


def moved(device: Device = PORT) -> list[Asked]:
    return [("nic", device, MOVING)]


def test_an_interface_moves_if_its_rule_says_so() -> None:
    assert settings(moved()) == [InterfaceSettings()]
    assert settings([("nic", PORT, STAYING)]) == [None]
    assert settings(moved(), admin=True) == [None]
    assert settings(moved(vfio(7))) == [None]
    assert settings(moved(rdma(8))) == [None], "InfiniBand without an interface"
    assert settings([("gpu", gpu(0), MOVING)]) == [None]


def test_sections_add_up_field_by_field_and_the_claim_wins() -> None:
    of_class = config(
        {
            "mtu": 9000,
            "vf": {"vlan": 100, "trust": True},
            "features": {"gro": False, "tso": False},
            "sysctls": {"ipv4.forwarding": 1, "ipv4.arp_ignore": 1},
            "addresses": ["10.0.0.2/24"],
        },
        source=CLASS,
    )
    of_claim = config(
        {
            "name": "net1",
            "vf": {"trust": False},
            "features": {"gro": True},
            "sysctls": {"ipv4.arp_ignore": 2},
            "addresses": ["10.0.0.3/24"],
        }
    )
    assert settings(moved(VF), of_claim, of_class) == [
        InterfaceSettings(
            "net1",
            ("10.0.0.3/24",),
            mtu=9000,
            vf=VfSettings(vlan=100, trust=False),
            features=(("gro", True), ("tso", False)),
            sysctls=(("ipv4/arp_ignore", "2"), ("ipv4/forwarding", "1")),
        )
    ]


def test_an_empty_list_is_not_an_absent_one() -> None:
    assert settings(moved(), config({"addresses": []})) == [InterfaceSettings(addresses=())]
    assert settings(moved(), config({"routes": []})) == [InterfaceSettings(routes=())]
    assert settings(moved(), config({"addresses": ["10.0.0.2/24"]}, source=CLASS), config({"addresses": []})) == [
        InterfaceSettings(addresses=())
    ]


def test_a_section_for_all_requests_is_for_the_interfaces_that_move() -> None:
    both: list[Asked] = [("a", PORT, MOVING), ("b", OTHER, STAYING), ("gpu", gpu(0), STAYING)]
    assert settings(both, config({"mtu": 1500})) == [InterfaceSettings(mtu=1500), None, None]
    assert settings(both, config({"mtu": 1500}, "a"), config({"mtu": 9000})) == [
        InterfaceSettings(mtu=9000),
        None,
        None,
    ]


UNMOVED = (
    "device nic-0000-03-00-0 of request nic keeps its interface on the node: resource example.com/nic moves none; set "
    "moveInterface: true for the resource in ostler's configuration, or leave it out"
)


@pytest.mark.parametrize("requests", [(), ("nic",)], ids=["for all", "named"])
def test_a_section_needs_an_interface_that_moves(requests: tuple[str, ...]) -> None:
    staying: list[Asked] = [("nic", PORT, STAYING)]
    assert problem(staying, config({"mtu": 1500}, *requests)) == f"c.interface: {UNMOVED}"
    assert problem(staying, config({}, *requests)) == f"c.interface: {UNMOVED}"
    assert problem(moved(vfio(7)), config({"mtu": 1500}, *requests)) == (
        "c.interface: device nic-0000-07-00-0 of request nic has no network interface (it is bound to vfio-pci); name "
        "the requests of NICs that have one, or leave it out"
    )
    assert problem(moved(rdma(8)), config({"mtu": 1500}, *requests)) == (
        "c.interface: device nic-0000-08-00-0 of request nic has no network interface; name the requests of NICs that "
        "have one, or leave it out"
    )
    assert problem(moved(), config({"mtu": 1500}, *requests), admin=True) == (
        "c.interface: device nic-0000-03-00-0 of request nic is only monitored (adminAccess), so that its interface "
        "stays where it is; leave it out"
    )


def test_a_section_for_all_requests_of_a_claim_without_nics_is_refused() -> None:
    text = (
        "c.kind: NicConfig is for request gpu, whose device gpu-0000-0b-00-0 is of kind gpu; write GpuConfig, or name"
    )
    assert problem([("gpu", gpu(0), STAYING)], config({"mtu": 1500})).startswith(text)


def test_an_alternative_that_does_not_move_is_no_fault_of_the_request() -> None:
    alternative: list[Asked] = [("nic/second", PORT, STAYING)]
    assert settings(alternative, config({"mtu": 1500}, "nic")) == [None]
    assert "keeps its interface" in problem(alternative, config({"mtu": 1500}, "nic/second"))


@pytest.mark.parametrize(
    ("device", "content", "text"),
    [
        (
            PORT,
            {"vf": {"trust": False}},
            (
                "vf: device nic-0000-03-00-0 of request nic is not a virtual function; name the requests of virtual "
                "functions, or leave it out"
            ),
        ),
        (
            nic(5, **{**FUNCTION, "pfName": ""}),  # type: ignore[arg-type]
            {"vf": {"vlan": 5}},
            (
                "vf: the physical function of device nic-0000-05-00-0 of request nic has no interface on this node, "
                "and takes no settings; leave it out"
            ),
        ),
        (
            nic(5, **{**FUNCTION, "linkType": "infiniband"}),  # type: ignore[arg-type]
            {"vf": {"vlan": 5}},
            (
                "vf: device nic-0000-05-00-0 of request nic is InfiniBand, and these are settings of Ethernet; leave "
                "it out"
            ),
        ),
        (
            nic(5, **FUNCTION, eswitchMode="switchdev"),  # type: ignore[arg-type]
            {"vf": {"vlan": 5}},
            (
                "vf: ens3 is in switchdev mode, in which a virtual function has no VLAN and no spoof check; set them "
                "at the port representor of nic-0000-05-00-0 instead"
            ),
        ),
        *(
            (
                nic(3, ifName="ib0", linkType="infiniband"),
                {name: content},
                (
                    f"{name}: device nic-0000-03-00-0 of request nic is InfiniBand, whose hardware addresses have 20 "
                    "bytes; leave it out"
                ),
            )
            for name, content in (
                ("hardwareAddress", MAC),
                ("neighbors", [{"destination": "10.0.0.9", "hardwareAddress": MAC}]),
            )
        ),
        (
            nic(3, ifName="eth0"),
            {"mtu": 1500},
            (
                "name: device nic-0000-03-00-0 of request nic is called eth0 on the node, a name that the pod has "
                "already; write the name that it is to have in the pod, as net1"
            ),
        ),
    ],
)
def test_what_a_device_cannot_have_is_refused(device: Device, content: Json, text: str) -> None:
    assert (
        problem(moved(device), config(content, source=CLASS, place="c")) == f"c (from the DeviceClass).interface.{text}"
    )


def test_an_interface_that_needs_another_name_is_refused_without_parameters_as_well() -> None:
    assert problem(moved(nic(3, ifName="eth0"))) == (
        "NicConfig.interface.name: device nic-0000-03-00-0 of request nic is called eth0 on the node, a name that the "
        "pod has already; write the name that it is to have in the pod, as net1"
    )
    assert settings(moved(nic(3, ifName="eth0")), config({"name": "net1"})) == [InterfaceSettings("net1")]


def test_a_virtual_functions_mtu_is_at_most_that_of_its_physical_one() -> None:
    physical = nic(3, ifName="ens3", mtu=1500)
    assert problem(moved(VF), config({"mtu": 9000}), beside=(physical,)) == (
        "c.interface.mtu: 9000 is more than ens3, the physical function of device nic-0000-05-00-0 of request nic, "
        "has; write at most 1500, or raise the MTU of ens3 on the node"
    )
    assert settings(moved(VF), config({"mtu": 1500}), beside=(physical,)) == [InterfaceSettings(mtu=1500)]
    # A physical function that no rule offers is not known here; whoever moves the interface asks the kernel.
    assert settings(moved(VF), config({"mtu": 9000})) == [InterfaceSettings(mtu=9000)]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            {"addresses": ["10.0.0.2/24", "10.0.0.2/16"]},
            "addresses[1]: 10.0.0.2 is listed with two prefixes; write it once",
        ),
        (
            {"addresses": ["2001:db8::2/64"], "mtu": 1000},
            (
                "mtu: 1000 leaves no IPv6, and the interface has 2001:db8::2/64; write at least 1280, or IPv4 "
                "addresses alone"
            ),
        ),
        (
            {"addresses": ["2001:db8::2/64"], "sysctls": {"ipv6.disable_ipv6": 1}},
            (
                "sysctls.ipv6.disable_ipv6: 1 leaves no IPv6, and the interface has 2001:db8::2/64; write 0, or IPv4 "
                "addresses alone"
            ),
        ),
        (
            {"addresses": ["10.0.0.2/24"], "routes": [{"destination": "10.1.0.0/16", "source": "10.0.0.3"}]},
            (
                'routes[0].source: the route to 10.1.0.0/16: "10.0.0.3" is no address of the interface; write one of '
                "addresses"
            ),
        ),
        (
            {"addresses": ["10.0.0.2/24"], "routes": [{"destination": "10.1.0.0/16", "gateway": "10.0.0.2"}]},
            (
                "routes[0].gateway: the route to 10.1.0.0/16: 10.0.0.2 is an address of the interface itself; write "
                "that of the gateway, or leave it out"
            ),
        ),
        (
            {"addresses": ["10.0.0.2/24"], "routes": [{"destination": "0.0.0.0/0", "gateway": "10.0.1.1"}]},
            (
                "routes[0].gateway: the route to 0.0.0.0/0: 10.0.1.1 is in no network of the interface; write an "
                "address in its network, or a route to 10.0.1.1/32 with scope link"
            ),
        ),
        (
            {"addresses": [], "routes": [{"destination": "::/0", "gateway": "2001:db8::1"}]},
            (
                "routes[0].gateway: the route to ::/0: 2001:db8::1 is in no network of the interface; write an address "
                "in its network, or a route to 2001:db8::1/128 with scope link"
            ),
        ),
    ],
)
def test_what_the_kernel_would_refuse_is_refused_before(content: Json, text: str) -> None:
    assert problem(moved(), config(content)) == f"c.interface.{text}"


def test_a_gateway_may_be_reached_by_another_route_or_by_ipv6s_own_network() -> None:
    link: Json
    through: Json
    link, through = {"destination": "10.9.0.1/32", "scope": "link"}, {"destination": "0.0.0.0/0", "gateway": "10.9.0.1"}
    content: Json = {
        "addresses": ["10.0.0.2/32"],
        "routes": [through, link, {"destination": "::/0", "gateway": "fe80::1"}],
    }
    (found,) = settings(moved(), config(content))
    assert found is not None
    assert found.routes == (
        Route("0.0.0.0/0", "10.9.0.1"),
        Route("10.9.0.1/32", scope="link"),
        Route("::/0", "fe80::1"),
    )


def test_a_fault_of_the_sum_is_that_of_the_last_one_who_set_it() -> None:
    addresses = config({"addresses": ["2001:db8::2/64"]}, place="first")
    assert problem(moved(), addresses, config({"mtu": 1000}, place="second")).startswith("second.interface.mtu: 1000 ")


def test_interfaces_of_one_claim_have_names_of_their_own() -> None:
    two: list[Asked] = [("a", PORT, MOVING), ("b", OTHER, MOVING)]
    fix = "write a request for each NIC, and for each request parameters with name of its own"
    both = "device nic-0000-03-00-0 of request a and of device nic-0000-04-00-0 of request b"
    assert problem(two, config({"name": "net1"})) == f"c.interface.name: net1 would be the name of {both}; {fix}"
    assert problem(two, config({"name": "ens4"}, "a")) == f"c.interface.name: ens4 would be the name of {both}; {fix}"
    assert settings(two, config({"name": "net1"}, "a"), config({"name": "net2"}, "b")) == [
        InterfaceSettings("net1"),
        InterfaceSettings("net2"),
    ]


def test_interfaces_of_one_claim_have_addresses_of_their_own() -> None:
    two: list[Asked] = [("a", PORT, MOVING), ("b", OTHER, MOVING)]
    assert problem(two, config({"addresses": ["10.0.0.2/24"]})) == (
        "c.interface.addresses: 10.0.0.2 would be an address of device nic-0000-03-00-0 of request a and of device "
        "nic-0000-04-00-0 of request b; write a request for each NIC, and for each request parameters with addresses "
        "of its own"
    )


def test_rdma_in_exclusive_mode_goes_with_its_interface() -> None:
    exclusive = Host(rdma_exclusive=True)
    gives = Rule("example.com/nic", moves_interface=True, edits=EditOptions(rdma=True))
    assert settings([("nic", rdma(3, ifName="ens3"), gives)], host=exclusive) == [InterfaceSettings()]
    for device in (rdma(3), rdma(3, ifName="ens3")):
        rule = gives if device == rdma(3) else Rule("example.com/nic", edits=EditOptions(rdma=True))
        with pytest.raises(ClaimError, match="ostler moves one only with its network interface"):
            settings([("nic", device, rule)], host=exclusive)


def test_dranets_section_is_for_the_interfaces_that_move_as_well() -> None:
    asked = dranet({"interface": {"mtu": 1500}})
    assert settings(moved(), asked) == [InterfaceSettings(mtu=1500)]
    with pytest.raises(UnservedParameter) as raised:
        settings([("nic", PORT, STAYING)], asked)
    assert str(raised.value) == f"d.interface.mtu: {UNMOVED}"
    named = dranet({"interface": {"mtu": 1500}}, "gpu")
    assert problem([("gpu", gpu(0), STAYING)], named) == (
        "d.interface.mtu: device gpu-0000-0b-00-0 of request gpu has no network interface; name the requests of NICs "
        "that have one, or leave it out"
    )


def test_a_second_section_of_dranets_is_not_ignored() -> None:
    first, second = (
        dranet({"interface": {"mtu": 1500}}, place="d1"),
        dranet({"routes": [], "interface": {"name": "n"}}, place="d2"),
    )
    assert problem(moved(), first, second) == (
        "d2.interface.name: device nic-0000-03-00-0 of request nic has another section (d1), and that driver takes the "
        "first one alone; write one section for each request"
    )
    own = config({"name": "net1"})
    assert settings(moved(), first, own) == [InterfaceSettings("net1", mtu=1500)]


def test_the_name_of_the_sriov_drivers_is_served() -> None:
    vf: dict[str, Json] = {"apiVersion": f"{Peer.SRIOV}/v1alpha1", "kind": "VfConfig", "ifName": "net1"}
    asked = AllocatedConfig(ConfigSource.CLAIM, (), vf, "s", Peer.SRIOV)
    assert settings(moved(VF), asked) == [InterfaceSettings("net1")]
    with pytest.raises(ParameterError, match=r"^s\.ifName: device nic-0000-05-00-0 of request nic keeps its interface"):
        settings([("nic", VF, STAYING)], asked)
