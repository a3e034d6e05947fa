"""The golden table of Allocate answers: list strategy, id strategy, kind of device, device specs, extras."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.edits.allocation import prepare
from node.edits.model import ContainerEdits, MountEdit, NodeEdit
from node.edits.nvidia import allocate_edits
from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.inventory.model import Device, DeviceKind, NodeRole
from node.offer import OfferedDevice, ResourceOffer
from node.rules import DeviceIds, Rule, offered_id
from plugin.servicer import REMEMBERED, answer, renderer
from protos.deviceplugin.v1beta1 import api_pb2
from tests.making.devices import gpu, lacking, mig, node, without

ENVVAR, MOUNTS, ANNOTATIONS, CRI = ListStrategy

KEY = "cdi.k8s.io/nvidia-device-plugin_1-2-3"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
FOLDER = "/var/run/nvidia-container-devices"

DEVICES: dict[DeviceKind, tuple[Device, ...]] = {
    DeviceKind.GPU: (gpu(1), gpu(0), gpu(1)),
    DeviceKind.MIG: (mig(1), mig(0), mig(1)),
}
"""What is asked for: out of order, and one of them twice. Strategy ``index`` sorts them, ``uuid`` does not."""
IDS = {
    (DeviceKind.GPU, IdStrategy.UUID): ("GPU-1", "GPU-0"),
    (DeviceKind.GPU, IdStrategy.INDEX): ("0", "1"),
    (DeviceKind.MIG, IdStrategy.UUID): ("MIG-1", "MIG-0"),
    (DeviceKind.MIG, IdStrategy.INDEX): ("0:0", "0:1"),
}
CAPABILITIES = tuple(f"/dev/nvidia-caps/nvidia-cap{number}" for number in (21, 22, 31, 32))
"""Those of the MIG devices 0:0 and 0:1."""
NODES = {
    (DeviceKind.GPU, IdStrategy.UUID): ("/dev/nvidia2", "/dev/nvidia1"),
    (DeviceKind.GPU, IdStrategy.INDEX): ("/dev/nvidia1", "/dev/nvidia2"),
    (DeviceKind.MIG, IdStrategy.UUID): ("/dev/nvidia1", *CAPABILITIES[2:], *CAPABILITIES[:2]),
    (DeviceKind.MIG, IdStrategy.INDEX): ("/dev/nvidia1", *CAPABILITIES),
}
STRATEGIES: dict[tuple[ListStrategy, ...], tuple[str, bool, bool, bool, bool]] = {
    # strategies: value of NVIDIA_VISIBLE_DEVICES, channels in env, mounts, annotation, CDI devices
    (ENVVAR,): ("ids", True, False, False, False),
    (MOUNTS,): ("folder", False, True, False, False),
    (ANNOTATIONS,): ("", False, False, True, False),
    (CRI,): ("", False, False, False, True),
    (ENVVAR, MOUNTS): ("folder", True, True, False, False),
    (ENVVAR, CRI): ("ids", True, False, False, True),
    (ANNOTATIONS, CRI): ("", False, False, True, True),
    (ENVVAR, MOUNTS, ANNOTATIONS, CRI): ("folder", True, True, True, True),
}
EXTRAS = {
    "plain": ((), (), (), (), ()),
    # features asked for, channels asked for (the host has no gds, no channel 1), channels given, CDI names, env
    "extras": (
        ("gdrcopy", "gds", "mofed"),
        (0, 1, 2),
        (0, 2),
        ("imex-channel=0", "imex-channel=2", "gdrcopy=all", "mofed=all"),
        (("NVIDIA_GDRCOPY", "enabled"), ("NVIDIA_GDS", "enabled"), ("NVIDIA_MOFED", "enabled")),
    ),
}
TABLE = list(product(STRATEGIES, IdStrategy, DEVICES, (True, False), EXTRAS))


def pairs(*devices: Device) -> list[tuple[str, Device]]:
    return [(device.uuid or "", device) for device in devices]


def resource(options: EditOptions) -> ResourceOffer:
    return ResourceOffer("nvidia.com/gpu", Rule("nvidia.com/gpu", edits=options), ())


def expected(
    strategies: tuple[ListStrategy, ...], ids: IdStrategy, kind: DeviceKind, specs: bool, extra: str
) -> ContainerEdits:
    visible, channel_env, mounts, annotation, cri = STRATEGIES[strategies]
    _, _, channels, extra_names, env = EXTRAS[extra]
    named = IDS[kind, ids]
    numbers = [str(channel) for channel in channels]
    values = {"ids": ",".join(named), "folder": FOLDER}
    variables = [("NVIDIA_VISIBLE_DEVICES", values[visible])] if visible else []
    variables += [("NVIDIA_IMEX_CHANNELS", ",".join(numbers))] if channel_env and numbers else []
    files = [*named, *(f"imex/{number}" for number in numbers)] if mounts else []
    names = [f"gpu={name}" for name in named] + list(extra_names)
    qualified = tuple(f"k8s.device-plugin.nvidia.com/{name}" for name in names)
    paths = (
        *CONTROL_NODES,
        *NODES[kind, ids],
        *(f"/dev/nvidia-caps-imex-channels/channel{number}" for number in numbers),
    )
    given_specs = specs and strategies not in ((ANNOTATIONS,), (CRI,), (ANNOTATIONS, CRI))
    return ContainerEdits(
        env=(*variables, *env),
        nodes=tuple(NodeEdit(path, f"/host{path}", "rw") for path in paths) if given_specs else (),
        mounts=tuple(MountEdit("/dev/null", f"{FOLDER}/{name}") for name in files),
        annotations=((KEY, ",".join(qualified)),) if annotation else (),
        cdi_devices=qualified if cri else (),
    )


def named(row: tuple[tuple[ListStrategy, ...], IdStrategy, DeviceKind, bool, str]) -> str:
    strategies, ids, kind, specs, extra = row
    return f"{'+'.join(strategies)}-{ids}-{kind}-{'specs' if specs else 'none'}-{extra}"


@pytest.mark.parametrize("row", TABLE, ids=named)
def test_edits_and_answer_are_exactly_those_of_the_table(
    row: tuple[tuple[ListStrategy, ...], IdStrategy, DeviceKind, bool, str],
) -> None:
    strategies, ids, kind, specs, extra = row
    options = EditOptions(
        strategies=strategies,
        ids=ids,
        device_specs=specs,
        dev_root="/host",
        features=EXTRAS[extra][0],
        imex_channels=EXTRAS[extra][1],
    )
    edits = allocate_edits(pairs(*DEVICES[kind]), options, "1-2-3")
    wanted = expected(*row)
    assert edits == wanted
    message = api_pb2.ContainerAllocateResponse(
        envs=dict(wanted.env),
        mounts=[
            api_pb2.Mount(container_path=each.container_path, host_path="/dev/null", read_only=False)
            for each in wanted.mounts
        ],
        devices=[
            api_pb2.DeviceSpec(container_path=each.path, host_path=each.host_path, permissions="rw")
            for each in wanted.nodes
        ],
        annotations=dict(wanted.annotations),
        cdi_devices=[api_pb2.CDIDevice(name=name) for name in wanted.cdi_devices],
    )
    assert answer(edits) == message
    offered = [OfferedDevice(device.uuid or "", device, healthy=True) for device in DEVICES[kind]]
    assert renderer(resource(options), lambda: "1-2-3")(offered) == message


def test_answer_of_the_defaults_word_for_word() -> None:
    assert str(renderer(resource(EditOptions()))([OfferedDevice("GPU-0", gpu(0), healthy=True)])) == (
        'envs {\n  key: "NVIDIA_VISIBLE_DEVICES"\n  value: "GPU-0"\n}\n'
        + "".join(
            f'devices {{\n  container_path: "{path}"\n  host_path: "{path}"\n  permissions: "rw"\n}}\n'
            for path in (*CONTROL_NODES, "/dev/nvidia1")
        )
    )


def test_an_answer_at_hand_is_that_of_the_same_devices_alone() -> None:
    render = renderer(resource(EditOptions()))
    one, two = (OfferedDevice(f"id-{number}", gpu(number), healthy=True) for number in range(2))
    first, both, turned = render([one]), render([one, two]), render([two, one])
    assert render([replace(one)]) is first
    assert render([two, one]) is turned
    assert both.envs["NVIDIA_VISIBLE_DEVICES"] != turned.envs["NVIDIA_VISIBLE_DEVICES"]
    changed = render([replace(one, device=gpu(1))])
    assert changed == renderer(resource(EditOptions()))([two])
    for number in range(REMEMBERED):
        render([replace(two, id=f"id-{number + 2}")])
    assert render([one, two]) == both
    assert render([one, two]) is not both


@pytest.mark.parametrize("root", ["/run/nvidia/driver", "/run/nvidia/driver/"])
def test_device_nodes_are_below_the_dev_root_on_the_host_only(root: str) -> None:
    edits = allocate_edits(pairs(gpu(0)), EditOptions(dev_root=root), "")
    assert NodeEdit("/dev/nvidia1", "/run/nvidia/driver/dev/nvidia1") in edits.nodes


def visible(devices: list[tuple[str, Device]], ids: IdStrategy) -> str:
    """The value of NVIDIA_VISIBLE_DEVICES."""
    return dict(allocate_edits(devices, EditOptions(ids=ids), "").env)["NVIDIA_VISIBLE_DEVICES"]


def test_indices_are_sorted_as_numbers_and_uuids_keep_the_order_of_the_request() -> None:
    devices = pairs(gpu(10), gpu(9), gpu(2), gpu(0))
    assert visible(devices, IdStrategy.INDEX) == "0,2,9,10"
    assert visible(devices, IdStrategy.UUID) == "GPU-10,GPU-9,GPU-2,GPU-0"


def test_indices_of_mig_devices_are_sorted_as_pairs_of_numbers() -> None:
    numbers = ("10:0", "2:1", "1:10", "1:9", "1")
    devices = [(number, mig(0, uuid=f"MIG-{number}", index=number)) for number in numbers]
    assert visible(devices, IdStrategy.INDEX) == "1,1:9,1:10,2:1,10:0"
    assert visible(devices, IdStrategy.UUID) == ",".join(f"MIG-{number}" for number in numbers)


def test_device_without_an_index_is_named_by_its_uuid() -> None:
    assert visible(pairs(gpu(1), gpu(0, index=None)), IdStrategy.INDEX) == "GPU-0,1"


@pytest.mark.parametrize(("ids", "named"), [(IdStrategy.UUID, ("GPU-1", "GPU-0")), (IdStrategy.INDEX, ("0", "1"))])
def test_container_is_told_the_vendors_ids_whatever_ids_the_kubelet_has(
    ids: IdStrategy, named: tuple[str, ...]
) -> None:
    rule = Rule("nvidia.com/gpu", ids=DeviceIds.NAME, edits=EditOptions(strategies=(ENVVAR, ANNOTATIONS, CRI), ids=ids))
    devices = [(offered_id(rule, device), device) for device in (gpu(1), gpu(0))]
    assert [id_ for id_, _ in devices] == ["gpu-0000-1b-00-0", "gpu-0000-0b-00-0"]
    edits = allocate_edits(devices, rule.edits, "1-2-3")
    names = tuple(f"k8s.device-plugin.nvidia.com/gpu={name}" for name in named)
    assert edits.env == (("NVIDIA_VISIBLE_DEVICES", ",".join(named)),)
    assert edits.cdi_devices == names
    assert edits.annotations == ((KEY, ",".join(names)),)
    mounts = allocate_edits(devices, replace(rule.edits, strategies=(MOUNTS,)), "").mounts
    assert [mount.container_path for mount in mounts] == [f"{FOLDER}/{name}" for name in named]


def test_device_without_uuid_and_index_keeps_its_id_towards_the_kubelet() -> None:
    bare = gpu(0, uuid=None, index=None)
    assert [visible([(bare.name, bare)], ids) for ids in IdStrategy] == [bare.name] * 2


def test_required_channels_are_given_even_when_the_host_lacks_them() -> None:
    options = EditOptions(strategies=(ENVVAR, CRI), imex_channels=(0, 1), imex_required=True)
    edits = allocate_edits(pairs(gpu(0)), options, "")
    assert ("NVIDIA_IMEX_CHANNELS", "0,1") in edits.env
    channel = "/dev/nvidia-caps-imex-channels/channel1"
    assert edits.nodes[-1] == NodeEdit(channel, channel)
    assert edits.cdi_devices[1:] == tuple(f"k8s.device-plugin.nvidia.com/imex-channel={number}" for number in (0, 1))


def test_mode_delegate_uses_the_names_of_nvidias_tool_and_trusts_them_for_features() -> None:
    options = EditOptions(
        strategies=(CRI,), cdi_mode=CdiMode.DELEGATE, features=("gdrcopy", "gds"), imex_channels=(0, 1)
    )
    assert allocate_edits(pairs(mig(0)), replace(options, ids=IdStrategy.INDEX), "").cdi_devices == (
        "nvidia.com/gpu=0:0",
        "nvidia.com/imex-channel=0",
        "nvidia.com/gdrcopy=all",
        "nvidia.com/gds=all",
    )


def test_control_nodes_are_given_only_where_the_host_has_them_and_own_nodes_always() -> None:
    bare = lacking(mig(0), *CONTROL_NODES, "/dev/nvidia-caps/nvidia-cap22")
    assert [node.path for node in allocate_edits(pairs(bare), EditOptions(), "").nodes] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
    ]


def test_control_and_auxiliary_nodes_are_those_of_the_first_device() -> None:
    bare = without(gpu(1), NodeRole.CONTROL, NodeRole.AUXILIARY)
    options = EditOptions(strategies=(ENVVAR, CRI), features=("gdrcopy",), imex_channels=(0,))
    edits = allocate_edits(pairs(gpu(0), bare), options, "")
    channel = "/dev/nvidia-caps-imex-channels/channel0"
    assert [node.path for node in edits.nodes] == [*CONTROL_NODES, "/dev/nvidia1", "/dev/nvidia2", channel]
    assert edits.cdi_devices[2:] == tuple(
        f"k8s.device-plugin.nvidia.com/{name}" for name in ("imex-channel=0", "gdrcopy=all")
    )
    edits = allocate_edits(pairs(bare, gpu(0)), options, "")
    assert [node.path for node in edits.nodes] == ["/dev/nvidia2", "/dev/nvidia1"]
    assert len(edits.cdi_devices) == 2


@pytest.mark.parametrize("ids", IdStrategy)
def test_host_with_thousands_of_channels_gives_those_asked_for_and_no_others(ids: IdStrategy) -> None:
    every = tuple(node(f"/dev/nvidia-caps-imex-channels/channel{number}", NodeRole.AUXILIARY) for number in range(2048))
    devices = [replace(one, nodes=(*without(one, NodeRole.AUXILIARY).nodes, *every)) for one in map(gpu, range(8))]
    options = EditOptions(strategies=(ENVVAR, CRI), ids=ids, imex_channels=(0, 2047, 2048))
    edits = allocate_edits(pairs(*devices), options, "")
    given = [f"/dev/nvidia-caps-imex-channels/channel{number}" for number in (0, 2047)]
    own = [f"/dev/nvidia{number + 1}" for number in range(8)]
    assert [each.path for each in edits.nodes] == [*CONTROL_NODES, *own, *given]
    assert ("NVIDIA_IMEX_CHANNELS", "0,2047") in edits.env
    assert edits.cdi_devices[8:] == tuple(f"k8s.device-plugin.nvidia.com/imex-channel={number}" for number in (0, 2047))


def test_no_devices_give_no_annotation_because_an_empty_name_is_no_name() -> None:
    edits = allocate_edits([], EditOptions(strategies=(ANNOTATIONS, CRI)), "1")
    assert edits.empty


@pytest.mark.parametrize("prefix", ["cdi.k8s.io/", "example.com/"])
def test_annotation_key_is_another_one_each_time_and_one_that_kubernetes_takes(prefix: str) -> None:
    render = renderer(resource(EditOptions(strategies=(ANNOTATIONS,), cdi_annotation_prefix=prefix)))
    offered = [OfferedDevice("GPU-0", gpu(0), healthy=True)]
    keys = {key for _ in range(20) for key in render(offered).annotations}
    assert len(keys) == 20
    for key in keys:
        name = key.removeprefix(prefix)
        assert name != key
        assert len(name) <= 63
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?", name)


every_device = st.sampled_from([gpu(number) for number in range(4)] + [mig(number) for number in range(4)])


@given(st.lists(every_device, min_size=1, max_size=12), st.sampled_from(IdStrategy))
def test_every_strategy_names_the_same_devices_once_in_one_order(devices: list[Device], ids: IdStrategy) -> None:
    wanted = list(dict.fromkeys((device.index if ids is IdStrategy.INDEX else device.uuid) or "" for device in devices))
    if ids is IdStrategy.INDEX:
        wanted.sort(key=lambda index: [int(part) for part in index.split(":")])
    edits = allocate_edits(pairs(*devices), EditOptions(strategies=(ANNOTATIONS, CRI), ids=ids), "1")
    names = [f"k8s.device-plugin.nvidia.com/gpu={name}" for name in wanted]
    assert list(edits.cdi_devices) == names
    assert edits.annotations[0][1].split(",") == names
    assert dict(allocate_edits(pairs(*devices), EditOptions(ids=ids), "").env)["NVIDIA_VISIBLE_DEVICES"] == ",".join(
        wanted
    )
    mounts = allocate_edits(pairs(*devices), EditOptions(strategies=(MOUNTS,), ids=ids), "").mounts
    assert [mount.container_path for mount in mounts] == [f"{FOLDER}/{name}" for name in wanted]


@given(st.lists(every_device, max_size=12), st.sampled_from(list(STRATEGIES)))
def test_no_variable_node_or_mount_is_given_twice(devices: list[Device], strategies: tuple[ListStrategy, ...]) -> None:
    edits = allocate_edits(pairs(*devices), EditOptions(strategies=strategies, features=("gds",)), "1")
    for found in ([name for name, _ in edits.env], [each.path for each in edits.nodes], edits.mounts):
        assert len(set(found)) == len(found)


def test_nodes_that_were_prepared_for_another_state_of_a_device_are_not_given() -> None:
    old, now = gpu(0), replace(gpu(0), nodes=gpu(1).nodes)
    options = EditOptions()
    prepared = prepare([old], options)
    assert allocate_edits(pairs(old), options, "", prepared) == allocate_edits(pairs(old), options, "")
    assert allocate_edits(pairs(now), options, "", prepared) == allocate_edits(pairs(now), options, "")
