"""The golden table of Allocate answers: list strategy, id strategy, kind of device, device specs, extras."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.edits.model import ContainerEdits, MountEdit, NodeEdit
from node.edits.nvidia import allocate_edits
from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.inventory.model import Device, DeviceKind
from node.offer import OfferedDevice
from plugin.answer import answer, renderer
from protos.deviceplugin.v1beta1 import api_pb2
from tests.edits.making import gpu, lacking, mig

ENVVAR, MOUNTS, ANNOTATIONS, CRI = ListStrategy

KEY = "cdi.k8s.io/nvidia-device-plugin_1-2-3"
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
FOLDER = "/var/run/nvidia-container-devices"

DEVICES: dict[DeviceKind, tuple[Device, ...]] = {
    DeviceKind.GPU: (gpu(1), gpu(0), gpu(1)),
    DeviceKind.MIG: (mig(1), mig(0), mig(1)),
}
"""What is asked for: out of order, and one of them twice."""
IDS = {
    (DeviceKind.GPU, IdStrategy.UUID): ("GPU-1", "GPU-0"),
    (DeviceKind.GPU, IdStrategy.INDEX): ("1", "0"),
    (DeviceKind.MIG, IdStrategy.UUID): ("MIG-1", "MIG-0"),
    (DeviceKind.MIG, IdStrategy.INDEX): ("0:1", "0:0"),
}
NODES = {
    DeviceKind.GPU: ("/dev/nvidia2", "/dev/nvidia1"),
    DeviceKind.MIG: (
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap31",
        "/dev/nvidia-caps/nvidia-cap32",
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
    ),
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
TABLE = list(product(STRATEGIES, IdStrategy, DeviceKind, (True, False), EXTRAS))


def pairs(*devices: Device) -> list[tuple[str, Device]]:
    return [(device.uuid or "", device) for device in devices]


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
    paths = (*CONTROL_NODES, *NODES[kind], *(f"/dev/nvidia-caps-imex-channels/channel{number}" for number in numbers))
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
    assert renderer(options, lambda: "1-2-3")(offered) == message


def test_answer_of_the_defaults_word_for_word() -> None:
    assert str(renderer(EditOptions())([OfferedDevice("GPU-0", gpu(0), healthy=True)])) == (
        'envs {\n  key: "NVIDIA_VISIBLE_DEVICES"\n  value: "GPU-0"\n}\n'
        + "".join(
            f'devices {{\n  container_path: "{path}"\n  host_path: "{path}"\n  permissions: "rw"\n}}\n'
            for path in (*CONTROL_NODES, "/dev/nvidia1")
        )
    )


@pytest.mark.parametrize("root", ["/run/nvidia/driver", "/run/nvidia/driver/"])
def test_device_nodes_are_below_the_dev_root_on_the_host_only(root: str) -> None:
    edits = allocate_edits(pairs(gpu(0)), EditOptions(dev_root=root), "")
    assert NodeEdit("/dev/nvidia1", "/run/nvidia/driver/dev/nvidia1") in edits.nodes


def test_device_without_an_index_keeps_its_id() -> None:
    edits = allocate_edits(pairs(gpu(0, index=None)), EditOptions(ids=IdStrategy.INDEX), "")
    assert edits.env == (("NVIDIA_VISIBLE_DEVICES", "GPU-0"),)


def test_required_channels_are_given_even_when_the_host_lacks_them() -> None:
    options = EditOptions(strategies=(ENVVAR, CRI), imex_channels=(0, 1), imex_required=True)
    edits = allocate_edits(pairs(gpu(0)), options, "")
    assert ("NVIDIA_IMEX_CHANNELS", "0,1") in edits.env
    assert edits.nodes[-1] == NodeEdit(*["/dev/nvidia-caps-imex-channels/channel1"] * 2)
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


def test_no_devices_give_no_annotation_because_an_empty_name_is_no_name() -> None:
    edits = allocate_edits([], EditOptions(strategies=(ANNOTATIONS, CRI)), "1")
    assert edits.empty


@pytest.mark.parametrize("prefix", ["cdi.k8s.io/", "example.com/"])
def test_annotation_key_is_another_one_each_time_and_one_that_kubernetes_takes(prefix: str) -> None:
    render = renderer(EditOptions(strategies=(ANNOTATIONS,), cdi_annotation_prefix=prefix))
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
def test_every_strategy_names_the_same_devices_once_in_the_order_of_the_request(
    devices: list[Device], ids: IdStrategy
) -> None:
    wanted = list(dict.fromkeys((device.index if ids is IdStrategy.INDEX else device.uuid) or "" for device in devices))
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
    for found in ([name for name, _ in edits.env], [node.path for node in edits.nodes], edits.mounts):
        assert len(set(found)) == len(found)
