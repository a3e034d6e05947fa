"""What containers get with NICs: the golden table of variables and device nodes, and what is missing."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.edits.allocation import container_edits, lacking
from node.edits.model import ContainerEdits, NodeEdit
from node.edits.nic import variable
from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.inventory.model import Device, NodeRole
from node.inventory.vendors import vendor_id
from node.offer import OfferedDevice, ResourceOffer
from node.rules import Rule, is_extended_resource_name
from plugin.servicer import renderer
from tests.making.devices import further_port, nic, rdma, subfunction, uio, vfio, without
from tests.making.devices import lacking as without_files

ENVVAR, MOUNTS, ANNOTATIONS, CRI = ListStrategy
PLAIN = EditOptions()
RDMA = EditOptions(rdma=True)
VHOST = EditOptions(vhost_net=True)
RESOURCE = "intel.com/sriov-net.dpdk"
NAME = "PCIDEVICE_INTEL_COM_SRIOV_NET_DPDK"


def edits(options: EditOptions, *devices: Device, resource: str = RESOURCE) -> ContainerEdits:
    return container_edits(resource, [(vendor_id(device), device) for device in devices], options, "1-2-3")


def same(*paths: str) -> tuple[NodeEdit, ...]:
    return tuple(NodeEdit(path, path, "rw") for path in paths)


VFIO_DETAILS = '"vfio":{"dev-mount":"/dev/vfio/%d","mount":"/dev/vfio/vfio"}'
TABLE = {
    "a kernel's NIC gets its name only": (
        PLAIN,
        (nic(3),),
        "0000:03:00.0",
        '{"0000:03:00.0":{"generic":{"deviceID":"0000:03:00.0"}}}',
        (),
    ),
    "two with VFIO in the order of the request": (
        PLAIN,
        (vfio(7), vfio(3)),
        "0000:07:00.0,0000:03:00.0",
        '{"0000:03:00.0":{"generic":{"deviceID":"0000:03:00.0"},' + VFIO_DETAILS % 3 + "},"
        '"0000:07:00.0":{"generic":{"deviceID":"0000:07:00.0"},' + VFIO_DETAILS % 7 + "}}",
        same("/dev/vfio/vfio", "/dev/vfio/7", "/dev/vfio/3"),
    ),
    "VFIO without an IOMMU": (
        PLAIN,
        (vfio(7, group="noiommu-7"),),
        "0000:07:00.0",
        '{"0000:07:00.0":{"generic":{"deviceID":"0000:07:00.0"},' + VFIO_DETAILS % 7 + "}}",
        (*same("/dev/vfio/vfio"), NodeEdit("/dev/vfio/7", "/dev/vfio/noiommu-7", "rw")),
    ),
    "UIO": (
        PLAIN,
        (uio(4),),
        "0000:04:00.0",
        '{"0000:04:00.0":{"generic":{"deviceID":"0000:04:00.0"},"uio":{"mount":"/dev/uio4"}}}',
        same("/dev/uio4"),
    ),
    "RDMA nodes are given where the rule says so": (
        RDMA,
        (rdma(5),),
        "0000:05:00.0",
        (
            '{"0000:05:00.0":{"generic":{"deviceID":"0000:05:00.0"},"rdma":{"issm":"/dev/infiniband/issm5",'
            '"rdma_cm":"/dev/infiniband/rdma_cm","rdma_dev":"mlx5_5","umad":"/dev/infiniband/umad5",'
            '"uverbs":"/dev/infiniband/uverbs5"}}}'
        ),
        same("/dev/infiniband/uverbs5", "/dev/infiniband/umad5", "/dev/infiniband/issm5", "/dev/infiniband/rdma_cm"),
    ),
    "RDMA nodes are not given unasked": (
        PLAIN,
        (rdma(5),),
        "0000:05:00.0",
        '{"0000:05:00.0":{"generic":{"deviceID":"0000:05:00.0"}}}',
        (),
    ),
    "RDMA in Ethernet mode needs neither umad nor issm": (
        RDMA,
        (rdma(5, "uverbs"), rdma(6, "uverbs")),
        "0000:05:00.0,0000:06:00.0",
        (
            '{"0000:05:00.0":{"generic":{"deviceID":"0000:05:00.0"},"rdma":{"rdma_cm":"/dev/infiniband/rdma_cm",'
            '"rdma_dev":"mlx5_5","uverbs":"/dev/infiniband/uverbs5"}},'
            '"0000:06:00.0":{"generic":{"deviceID":"0000:06:00.0"},"rdma":{"rdma_cm":"/dev/infiniband/rdma_cm",'
            '"rdma_dev":"mlx5_6","uverbs":"/dev/infiniband/uverbs6"}}}'
        ),
        same("/dev/infiniband/uverbs5", "/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs6"),
    ),
    "vhost-net": (
        VHOST,
        (nic(3),),
        "0000:03:00.0",
        (
            '{"0000:03:00.0":{"generic":{"deviceID":"0000:03:00.0"},'
            '"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"}}}'
        ),
        same("/dev/vhost-net", "/dev/net/tun"),
    ),
    "a subfunction goes by its auxiliary device, a further port by its own name": (
        PLAIN,
        (subfunction(88), further_port(9, 1)),
        "mlx5_core.sf.88,nic-0000-09-00-0-p1",
        (
            '{"mlx5_core.sf.88":{"generic":{"deviceID":"mlx5_core.sf.88"}},'
            '"nic-0000-09-00-0-p1":{"generic":{"deviceID":"nic-0000-09-00-0-p1"}}}'
        ),
        (),
    ),
}


@pytest.mark.parametrize("row", TABLE)
def test_variables_and_nodes_are_exactly_those_of_the_table(row: str) -> None:
    options, devices, ids, details, nodes = TABLE[row]
    assert edits(options, *devices) == ContainerEdits(env=((NAME, ids), (f"{NAME}_INFO", details)), nodes=nodes)
    assert [lacking(device, options) for device in devices] == [""] * len(devices)


@pytest.mark.parametrize(
    ("strategies", "nodes", "annotated", "cri"),
    [
        ((ENVVAR,), True, False, False),
        ((MOUNTS,), True, False, False),
        ((CRI,), False, False, True),
        ((ANNOTATIONS,), False, True, False),
        ((ENVVAR, CRI), True, False, True),
        ((ENVVAR, MOUNTS, ANNOTATIONS, CRI), True, True, True),
    ],
)
@pytest.mark.parametrize("mode", CdiMode)
def test_strategies_say_whether_nodes_come_in_the_answer_or_by_cdi(
    strategies: tuple[ListStrategy, ...], nodes: bool, annotated: bool, cri: bool, mode: CdiMode
) -> None:
    options = EditOptions(strategies=strategies, cdi_mode=mode, dev_root="/run/nvidia/driver")
    found = edits(options, vfio(7), nic(3))
    names = ("ostler.dev/nic=nic-0000-07-00-0",)
    assert dict(found.env)[NAME] == "0000:07:00.0,0000:03:00.0"
    assert found.nodes == (same("/dev/vfio/vfio", "/dev/vfio/7") if nodes else ())
    assert found.mounts == ()
    # A NIC without device nodes needs no CDI device, and none could be written: CDI has no empty ones.
    assert found.cdi_devices == (names if cri else ())
    assert found.annotations == ((("cdi.k8s.io/ostler_1-2-3", names[0]),) if annotated else ())


def test_answers_without_device_nodes_have_the_variables_all_the_same() -> None:
    found = edits(EditOptions(device_specs=False), vfio(7))
    assert (found.nodes, len(found.env)) == ((), 2)


def test_nics_without_device_nodes_have_no_annotation_because_an_empty_name_is_no_name() -> None:
    found = edits(EditOptions(strategies=(ANNOTATIONS, CRI)), nic(3))
    assert (found.annotations, found.cdi_devices) == ((), ())


def test_device_asked_for_twice_is_given_once() -> None:
    assert edits(RDMA, rdma(5), rdma(5)) == edits(RDMA, rdma(5))


def test_annotation_keys_of_two_resources_differ_in_one_container() -> None:
    options = EditOptions(strategies=(ANNOTATIONS,))
    renders = [renderer(ResourceOffer(name, Rule(name, edits=options), ())) for name in ("a.com/x", "a.com/y")]
    keys = [key for render in renders for key in render([OfferedDevice("0000:07:00.0", vfio(7), True)]).annotations]
    assert len(set(keys)) == 2
    assert all(re.fullmatch(r"cdi\.k8s\.io/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", key) for key in keys)


def test_answer_names_the_resource_it_is_for() -> None:
    render = renderer(ResourceOffer("ostler.dev/rdma", Rule("ostler.dev/rdma", edits=RDMA), ()))
    message = render([OfferedDevice("0000:05:00.0", rdma(5, "uverbs"), True)])
    assert message.envs["PCIDEVICE_OSTLER_DEV_RDMA"] == "0000:05:00.0"
    assert [spec.host_path for spec in message.devices] == ["/dev/infiniband/uverbs5", "/dev/infiniband/rdma_cm"]


def test_a_device_with_options_of_its_own_brings_its_own_nodes() -> None:
    own = OfferedDevice("0000:05:00.0", rdma(5, "uverbs"), True, edits=RDMA)
    offer = ResourceOffer("a.com/nics", Rule("a.com/nics"), (OfferedDevice("0000:07:00.0", vfio(7), True), own))
    message = renderer(offer)(offer.devices)
    assert {spec.host_path for spec in message.devices} == {
        "/dev/vfio/vfio",
        "/dev/vfio/7",
        "/dev/infiniband/uverbs5",
        "/dev/infiniband/rdma_cm",
    }
    details = json.loads(message.envs["PCIDEVICE_A_COM_NICS_INFO"])
    assert sorted(details["0000:05:00.0"]) == ["generic", "rdma"]
    (plain,) = [OfferedDevice("0000:06:00.0", rdma(6, "uverbs"), True)]
    alone = renderer(replace(offer, devices=(plain, own)))([plain])
    assert not alone.devices, "the other device's options are its own"


@pytest.mark.parametrize(
    ("device", "options", "text"),
    [
        (vfio(7, group="noiommu-7", present=False), PLAIN, "its device nodes are missing: /dev/vfio/noiommu-7"),
        (vfio(7, present=False), PLAIN, "its device nodes are missing: /dev/vfio/7"),
        (
            without_files(vfio(7), "/dev/vfio/vfio", "/dev/vfio/7"),
            PLAIN,
            "its device nodes are missing: /dev/vfio/7, /dev/vfio/vfio",
        ),
        (nic(3), RDMA, "its rule gives RDMA, and it has no RDMA device"),
        (
            without_files(rdma(5), "/dev/infiniband/uverbs5"),
            RDMA,
            "its rule gives RDMA, and these RDMA device nodes are missing: uverbs",
        ),
        (
            without_files(rdma(5), "/dev/infiniband/uverbs5", "/dev/infiniband/rdma_cm"),
            RDMA,
            "its rule gives RDMA, and these RDMA device nodes are missing: uverbs, rdma_cm",
        ),
        (
            without_files(nic(3), "/dev/net/tun"),
            VHOST,
            "its rule gives vhost-net, and these device nodes are missing: /dev/net/tun",
        ),
        (
            without(nic(3), NodeRole.AUXILIARY),
            VHOST,
            "its rule gives vhost-net, and these device nodes are missing: /dev/vhost-net, /dev/net/tun",
        ),
    ],
)
def test_what_a_container_would_miss_is_said_by_name(device: Device, options: EditOptions, text: str) -> None:
    assert lacking(device, options) == text


@pytest.mark.parametrize("paths", [("/dev/infiniband/umad5",), ("/dev/infiniband/umad5", "/dev/infiniband/issm5")])
def test_umad_and_issm_may_be_missing_and_are_not_given_then(paths: tuple[str, ...]) -> None:
    device = without_files(rdma(5), *paths)
    assert lacking(device, RDMA) == ""
    assert not set(paths) & {each.path for each in edits(RDMA, device).nodes}
    assert not any(path in edits(RDMA, device).env[1][1] for path in paths)


def test_nic_in_a_pod_lacks_nothing_whatever_the_host_sees_of_it() -> None:
    hidden = replace(nic(3), attributes=rdma(3, inPod=True).attributes)
    assert lacking(hidden, RDMA) == ""


@given(st.text(min_size=1))
def test_any_resource_gives_a_name_that_every_shell_takes(resource: str) -> None:
    assert re.fullmatch("[A-Z_][A-Z0-9_]*", variable(resource))


@given(st.from_regex(r"[a-z][a-z0-9.-]{0,6}\.com/[A-Za-z0-9][A-Za-z0-9_.-]{0,6}", fullmatch=True))
def test_names_without_hyphens_are_those_of_the_sriov_plugin(resource: str) -> None:
    if is_extended_resource_name(resource) and "-" not in resource:
        assert variable(resource) == f"PCIDEVICE_{resource.replace('/', '_').replace('.', '_').upper()}"


makers = st.sampled_from([nic, vfio, uio, rdma, subfunction])
every_nic = st.builds(lambda make, number: make(number), makers, st.integers(1, 9))
option_sets = st.builds(
    EditOptions,
    strategies=st.lists(st.sampled_from(ListStrategy), min_size=1, unique=True).map(tuple),
    rdma=st.booleans(),
    vhost_net=st.booleans(),
)


@given(st.lists(every_nic, min_size=1, max_size=8, unique_by=lambda device: device.name), option_sets)
def test_every_nic_is_named_once_in_order_and_no_node_is_given_twice(
    devices: list[Device], options: EditOptions
) -> None:
    found = edits(options, *devices)
    wanted = list(dict.fromkeys(vendor_id(device) for device in devices))
    assert dict(found.env)[NAME].split(",") == wanted
    assert list(json.loads(dict(found.env)[f"{NAME}_INFO"])) == sorted(wanted)
    assert len({each.host_path for each in found.nodes}) == len(found.nodes)
    assert all(each.permissions == "rw" for each in found.nodes)
    assert len(set(found.cdi_devices)) == len(found.cdi_devices)
