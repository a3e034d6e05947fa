"""CDI specs of NVIDIA devices: which files, what is in them, what is left out and said."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from node.edits.allocation import OWN_FILES, container_edits
from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.eligibility import offer
from node.inventory.devices import devices_of, host_of
from node.inventory.facts import DriverFiles
from node.inventory.identity import Identities
from node.inventory.model import Device, NodeRole, Snapshot
from node.inventory.recordings.source import read
from node.ledger.offer_context import NOTHING_HELD
from node.offer import OfferedDevice
from node.rules import DeviceIds, Door, NicSelector, Rule, Selector
from plugin.specs import desired_specs
from sandbox import nodes
from tests.making.devices import gpu, lacking, mig, node, without
from tests.plugin.spec_making import (
    FILES,
    NODES,
    ONLY,
    ONLY_NODES,
    device_node,
    documents,
    names,
    paths,
    snapshot,
    specs,
)

GPU_FILE = "k8s.device-plugin.nvidia.com-gpu.json"
HOOK = "/usr/bin/nvidia-cdi-hook"
FULL = replace(NODES, cdi_mode=CdiMode.FULL, hook=HOOK)
DELEGATE = replace(NODES, cdi_mode=CdiMode.DELEGATE)
VOID = ["NVIDIA_VISIBLE_DEVICES=void"]


def test_mode_nodes_is_one_file_with_device_nodes_word_for_word() -> None:
    found, problems = specs(snapshot(gpu(1), gpu(0)), Rule(ONLY, edits=NODES))
    assert documents(found) == {
        GPU_FILE: {
            "cdiVersion": "0.3.0",
            "kind": "k8s.device-plugin.nvidia.com/gpu",
            "devices": [
                {"name": name, "containerEdits": {"env": VOID, "deviceNodes": device_node(path)}}
                for name, path in (("GPU-0", "/dev/nvidia1"), ("GPU-1", "/dev/nvidia2"))
            ],
            "containerEdits": {
                "deviceNodes": device_node("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"),
            },
        }
    }
    assert problems == (ONLY_NODES,)


@pytest.mark.parametrize(
    ("hook", "words"), [(HOOK, ["nvidia-cdi-hook"]), ("/usr/bin/nvidia-ctk", ["nvidia-ctk", "hook"])]
)
def test_mode_full_adds_graphics_nodes_driver_files_and_hooks(hook: str, words: list[str]) -> None:
    options = replace(FULL, hook=hook, driver_root="/run/nvidia/driver", dev_root="/run/nvidia/driver")
    found, problems = specs(snapshot(gpu(0)), Rule(ONLY, edits=options))
    root, library, unix = "/run/nvidia/driver", "/usr/lib64/libcuda.so.570.172.08", "/run/nvidia-persistenced/socket"
    document = documents(found)[GPU_FILE]
    assert document["cdiVersion"] == "0.5.0"
    assert document["devices"] == [
        {
            "name": "GPU-0",
            "containerEdits": {
                "env": VOID,
                "deviceNodes": [
                    {"path": path, "hostPath": f"{root}{path}", "permissions": "rw"}
                    for path in ("/dev/nvidia1", "/dev/dri/card2", "/dev/dri/renderD128")
                ],
                "hooks": [
                    {
                        "hookName": "createContainer",
                        "path": hook,
                        "args": [
                            *words,
                            "create-symlinks",
                            "--link",
                            "../card2::/dev/dri/by-path/pci-0000:0b:00.0-card",
                            "--link",
                            "../renderD128::/dev/dri/by-path/pci-0000:0b:00.0-render",
                        ],
                    }
                ],
            },
        }
    ]
    shared = document["containerEdits"]
    assert isinstance(shared, dict)
    assert shared["env"] == ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"]
    assert shared["mounts"] == [
        {
            "hostPath": f"{root}{library}",
            "containerPath": library,
            "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
        },
        {
            "hostPath": f"{root}{unix}",
            "containerPath": unix,
            "options": ["nosuid", "nodev", "rbind", "rprivate", "noexec"],
        },
    ]
    assert shared["hooks"] == [
        {"hookName": "createContainer", "path": hook, "args": [*words, *arguments]}
        for arguments in (
            ["create-symlinks", "--link", "libcuda.so.1::/usr/lib64/libcuda.so"],
            ["enable-cuda-compat", "--host-driver-version=570.172.08"],
            ["update-ldcache", "--folder", "/usr/lib64"],
        )
    ]
    assert problems == ()


NO_LIBRARIES = "is left out, no libraries of the driver were found below /run/nvidia/driver"


@pytest.mark.parametrize("files", [None, DriverFiles("570.172.08", binaries=("/usr/bin/nvidia-smi",))])
def test_mode_full_without_libraries_of_the_driver_describes_nothing_and_says_so(files: DriverFiles | None) -> None:
    options = replace(FULL, driver_root="/run/nvidia/driver")
    found, problems = specs(snapshot(gpu(0), mig(1), files=files), Rule(ONLY, edits=options))
    assert found == {}
    assert problems == (f"CDI: gpu-0000-0b-00-0 {NO_LIBRARIES}", f"CDI: mig-0000-0b-00-0-1-1 {NO_LIBRARIES}")


def test_devices_of_mode_nodes_need_no_driver_beside_those_of_mode_full() -> None:
    full = replace(FULL, driver_root="/run/nvidia/driver")
    rules = (Rule("a.com/gpu", Selector(uuids=("GPU-0",)), edits=full), Rule("b.com/gpu", edits=NODES))
    found, problems = specs(snapshot(gpu(0), gpu(1), files=None), *rules)
    assert names(found[GPU_FILE]) == ["GPU-1"]
    assert found[GPU_FILE].edits.mounts == ()
    assert problems == (f"CDI: gpu-0000-0b-00-0 {NO_LIBRARIES}",)


@pytest.mark.parametrize("ids", [IdStrategy.UUID, IdStrategy.INDEX])
def test_specs_define_the_vendors_ids_whatever_ids_the_kubelet_has(ids: IdStrategy) -> None:
    edits = replace(NODES, ids=ids)
    found, _ = specs(snapshot(gpu(0), mig(1)), Rule(ONLY, ids=DeviceIds.NAME, edits=edits))
    assert names(found[GPU_FILE]) == (["GPU-0", "MIG-1"] if ids is IdStrategy.UUID else ["0", "0:1"])


def test_only_devices_of_resources_that_have_cdi_alone_are_void() -> None:
    beside = replace(NODES, strategies=(ListStrategy.ENVVAR, ListStrategy.CDI_ANNOTATIONS))
    rules = (Rule("a.com/gpu", Selector(uuids=("GPU-0",)), edits=beside), Rule("b.com/gpu", edits=NODES))
    found, _ = specs(snapshot(gpu(0), gpu(1)), *rules)
    assert {device.name: device.edits.env for device in found[GPU_FILE].devices} == {
        "GPU-0": (),
        "GPU-1": (("NVIDIA_VISIBLE_DEVICES", "void"),),
    }
    assert found[GPU_FILE].edits.env == ()
    assert "env" not in json.dumps(documents(found)[GPU_FILE]["containerEdits"])


def test_host_with_thousands_of_channels_has_specs_of_those_asked_for() -> None:
    every = tuple(node(f"/dev/nvidia-caps-imex-channels/channel{number}", NodeRole.AUXILIARY) for number in range(2048))
    devices = [replace(one, nodes=(*without(one, NodeRole.AUXILIARY).nodes, *every)) for one in map(gpu, range(8))]
    found, problems = specs(snapshot(*devices), Rule(ONLY, edits=replace(NODES, imex_channels=(0, 2047, 2048))))
    assert names(found["k8s.device-plugin.nvidia.com-imex-channel.json"]) == ["0", "2047"]
    assert [each.path for each in found[GPU_FILE].edits.nodes] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]
    assert problems == (
        "CDI: IMEX channels are left out, they are missing on the host: /dev/nvidia-caps-imex-channels/channel2048",
        ONLY_NODES,
    )


def test_mig_devices_have_their_capabilities_and_the_node_of_their_gpu() -> None:
    found, _ = specs(snapshot(mig(0), mig(1)), Rule(ONLY, edits=replace(NODES, ids=IdStrategy.INDEX)))
    spec = found[GPU_FILE]
    assert names(spec) == ["0:0", "0:1"]
    assert paths(spec, "0:1") == ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap31", "/dev/nvidia-caps/nvidia-cap32"]
    assert documents(found)[GPU_FILE]["cdiVersion"] == "0.5.0"


def test_devices_that_cannot_be_described_are_left_out_and_reported() -> None:
    devices = (
        gpu(0),
        lacking(gpu(1), "/dev/nvidia2"),
        without(gpu(2), NodeRole.DEVICE),
        without(mig(0), NodeRole.CAPABILITY),
        lacking(mig(1), "/dev/nvidia-caps/nvidia-cap31"),
    )
    found, problems = specs(snapshot(*devices), Rule(ONLY, edits=NODES))
    assert names(found[GPU_FILE]) == ["GPU-0"]
    assert problems == (
        "CDI: gpu-0000-1b-00-0 is left out, its device nodes are missing: /dev/nvidia2",
        "CDI: gpu-0000-2b-00-0 is left out, it has no device node",
        "CDI: mig-0000-0b-00-0-0-1 is left out, the capabilities of its MIG instance are not known",
        "CDI: mig-0000-0b-00-0-1-1 is left out, its device nodes are missing: /dev/nvidia-caps/nvidia-cap31",
        ONLY_NODES,
    )


def test_no_file_is_wanted_where_no_device_is_left() -> None:
    found, problems = specs(snapshot(lacking(gpu(0), "/dev/nvidia1")), Rule(ONLY, edits=NODES))
    assert found == {}
    assert len(problems) == 2


def test_features_and_channels_are_files_of_their_own() -> None:
    options = replace(NODES, features=("gdrcopy", "mofed"), imex_channels=(0, 2))
    found, problems = specs(snapshot(gpu(0), gpu(1)), Rule(ONLY, edits=options))
    own = "k8s.device-plugin.nvidia.com"
    assert sorted(found) == [f"{own}-{class_}.json" for class_ in ("gdrcopy", "gpu", "imex-channel", "mofed")]
    assert set(found) <= OWN_FILES
    written = documents(found)
    assert written[f"{own}-gdrcopy.json"] == {
        "cdiVersion": "0.3.0",
        "kind": f"{own}/gdrcopy",
        "devices": [{"name": "all", "containerEdits": {"deviceNodes": device_node("/dev/gdrdrv")}}],
    }
    assert paths(found[f"{own}-mofed.json"], "all") == [
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/uverbs1",
    ]
    assert written[f"{own}-imex-channel.json"] == {
        "cdiVersion": "0.5.0",
        "kind": f"{own}/imex-channel",
        "devices": [
            {
                "name": channel,
                "containerEdits": {"deviceNodes": device_node(f"/dev/nvidia-caps-imex-channels/channel{channel}")},
            }
            for channel in ("0", "2")
        ],
    }
    assert problems == (ONLY_NODES,)


def test_features_and_channels_that_the_host_lacks_are_left_out_and_reported() -> None:
    options = replace(NODES, features=("gdrcopy", "gds"), imex_channels=(1, 3))
    found, problems = specs(snapshot(gpu(0)), Rule(ONLY, edits=options))
    assert sorted(found) == ["k8s.device-plugin.nvidia.com-gdrcopy.json", GPU_FILE]
    assert problems == (
        "CDI: the feature gds is left out, no node /dev/nvidia-fs* is on the host",
        (
            "CDI: IMEX channels are left out, they are missing on the host: "
            "/dev/nvidia-caps-imex-channels/channel1, /dev/nvidia-caps-imex-channels/channel3"
        ),
        ONLY_NODES,
    )


def test_resources_with_different_extras_share_files_that_serve_them_all() -> None:
    first = Rule("a.com/gpu", Selector(uuids=("GPU-0",)), edits=replace(NODES, imex_channels=(0,)))
    second = Rule("b.com/gpu", Selector(uuids=("GPU-1",)), edits=replace(FULL, features=("gdrcopy",)))
    third = Rule("c.com/gpu", edits=replace(NODES, ids=IdStrategy.INDEX, features=("mofed",), imex_channels=(2, 0)))
    one = snapshot(gpu(0), gpu(1), gpu(2))
    found, problems = specs(one, first, second, third)
    assert names(found[GPU_FILE]) == ["2", "GPU-0", "GPU-1"]
    assert names(found["k8s.device-plugin.nvidia.com-imex-channel.json"]) == ["0", "2"]
    assert {"k8s.device-plugin.nvidia.com-gdrcopy.json", "k8s.device-plugin.nvidia.com-mofed.json"} < set(found)
    # The stronger mode serves both: containers of the other one get more than they need.
    assert found[GPU_FILE].edits.mounts
    assert problems == ()


@pytest.mark.parametrize("edits", [EditOptions(), DELEGATE, EditOptions(cdi_mode=CdiMode.FULL, features=("gds",))])
def test_no_files_where_nobody_needs_ours(edits: EditOptions) -> None:
    assert specs(snapshot(gpu(0)), Rule(ONLY, edits=edits)) == ({}, ())


def test_only_the_resources_that_use_our_specs_are_in_them() -> None:
    rules = (
        Rule("a.com/gpu", Selector(uuids=("GPU-0",)), edits=NODES),
        Rule("b.com/gpu", Selector(uuids=("GPU-1",)), edits=DELEGATE),
        Rule("c.com/gpu", Selector(uuids=("GPU-2",))),
    )
    found, _ = specs(snapshot(gpu(0), gpu(1), gpu(2), gpu(3)), *rules)
    assert names(found[GPU_FILE]) == ["GPU-0"]


def asked(resource: Iterable[OfferedDevice]) -> list[tuple[str, Device]]:
    return [(item.id, item.device) for item in resource if item.healthy]


@pytest.mark.parametrize("ids", IdStrategy)
@pytest.mark.parametrize("named", DeviceIds)
@pytest.mark.parametrize("mode", CdiMode)
@pytest.mark.parametrize("name", nodes.names())
def test_recorded_nodes_give_valid_specs_that_define_every_name_an_answer_uses(
    name: str, mode: CdiMode, named: DeviceIds, ids: IdStrategy
) -> None:
    facts = read(nodes.path(name)).facts
    if facts.driver_files is None:
        # Most recordings are without the files of the driver.
        facts = replace(facts, driver_files=FILES)
    one = Snapshot(1, devices_of(facts, Identities()), host=host_of(facts))
    edits = EditOptions(
        strategies=(ListStrategy.CDI_CRI,),
        ids=ids,
        cdi_mode=mode,
        hook=HOOK,
        features=("gdrcopy", "gds", "mofed") if mode is not CdiMode.DELEGATE else (),
        imex_channels=(0,) if mode is not CdiMode.DELEGATE else (),
    )
    rules = [
        Rule("a.com/rdma", Selector(nic=NicSelector(rdma=True)), ids=named, edits=replace(edits, rdma=True)),
        Rule(ONLY, ids=named, edits=edits),
    ]
    offered = offer(one, rules, NOTHING_HELD, Door.PLUGIN)
    found, _ = desired_specs(offered, one)
    documents(found)
    assert set(found) <= OWN_FILES
    defined = {f"{spec.kind}={device.name}" for spec in found.values() for device in spec.devices}
    if mode is CdiMode.DELEGATE:
        assert all(name.startswith("ostler.dev-") for name in found)
        defined |= one.host.cdi_devices
    for resource in offered.resources:
        nvidias = [item for item in resource.devices if item.device.vendor == "nvidia"]
        assert mode is CdiMode.DELEGATE or all(item.healthy for item in nvidias)
        for pair in asked(resource.devices):
            options = resource.rule.edits
            assert set(container_edits(resource.resource, [pair], options, "").cdi_devices) <= defined
