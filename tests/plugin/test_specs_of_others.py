"""CDI specs of devices that are not NVIDIA's: NICs, AMD and Intel GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.edits.allocation import OWN_FILES
from node.edits.options import CdiMode
from node.inventory.model import NIC_KINDS
from node.rules import Rule, Selector
from tests.making.devices import amd, gpu, intel, lacking, nic, rdma, uio, vfio
from tests.plugin.spec_making import (
    NODES,
    ONLY,
    ONLY_NODES,
    device_node,
    documents,
    names,
    snapshot,
    specs,
)

NIC_FILE, AMD_FILE, INTEL_FILE = (f"ostler.dev-{class_}.json" for class_ in ("nic", "amd-gpu", "intel-gpu"))


def test_devices_of_others_are_in_files_of_our_own_vendor_word_for_word() -> None:
    rules = (
        Rule("a.com/rdma", Selector(names=("nic-0000-05*",)), edits=replace(NODES, rdma=True)),
        Rule("a.com/nic", Selector(kinds=NIC_KINDS), edits=replace(NODES, dev_root="/run/nvidia/driver")),
        Rule("a.com/gpu", edits=NODES),
    )
    one = snapshot(amd(1), intel(0), rdma(5, "uverbs"), rdma(6), vfio(7, group="noiommu-7"), nic(3))
    found, problems = specs(one, *rules)
    assert set(found) <= OWN_FILES
    assert documents(found) == {
        NIC_FILE: {
            "cdiVersion": "0.5.0",
            "kind": "ostler.dev/nic",
            "devices": [
                {
                    "name": "nic-0000-05-00-0",
                    "containerEdits": {
                        "deviceNodes": device_node("/dev/infiniband/uverbs5", "/dev/infiniband/rdma_cm")
                    },
                },
                {
                    "name": "nic-0000-07-00-0",
                    "containerEdits": {
                        "deviceNodes": [
                            *device_node("/dev/vfio/vfio"),
                            {"path": "/dev/vfio/7", "hostPath": "/dev/vfio/noiommu-7", "permissions": "rw"},
                        ]
                    },
                },
            ],
        },
        AMD_FILE: {
            "cdiVersion": "0.3.0",
            "kind": "ostler.dev/amd-gpu",
            "devices": [
                {
                    "name": "gpu-0000-01-00-0",
                    "containerEdits": {"deviceNodes": device_node("/dev/kfd", "/dev/dri/card1", "/dev/dri/renderD129")},
                }
            ],
        },
        INTEL_FILE: {
            "cdiVersion": "0.3.0",
            "kind": "ostler.dev/intel-gpu",
            "devices": [
                {
                    "name": "gpu-0000-00-00-0",
                    "containerEdits": {"deviceNodes": device_node("/dev/dri/card0", "/dev/dri/renderD128")},
                }
            ],
        },
    }
    assert problems == ()


@pytest.mark.parametrize("mode", CdiMode)
def test_devices_of_others_have_our_spec_in_every_mode(mode: CdiMode) -> None:
    found, problems = specs(snapshot(vfio(7)), Rule(ONLY, edits=replace(NODES, cdi_mode=mode)))
    assert sorted(found) == [NIC_FILE]
    assert problems == ()


def test_devices_of_others_that_lack_a_node_are_left_out_and_reported() -> None:
    one = snapshot(vfio(7, present=False), lacking(rdma(5), "/dev/infiniband/uverbs5"), uio(4))
    found, problems = specs(one, Rule(ONLY, edits=replace(NODES, rdma=True)))
    assert found == {}
    assert problems == (
        "CDI: nic-0000-07-00-0 is left out, its device nodes are missing: /dev/vfio/7",
        ("CDI: nic-0000-05-00-0 is left out, its rule gives RDMA, and these RDMA device nodes are missing: uverbs"),
        "CDI: nic-0000-04-00-0 is left out, its rule gives RDMA, and it has no RDMA device",
    )


def test_nic_in_a_pod_stays_in_its_spec_because_its_container_may_be_started_again() -> None:
    found, problems = specs(snapshot(rdma(5, inPod=True)), Rule(ONLY, edits=replace(NODES, rdma=True)))
    assert names(found[NIC_FILE]) == ["nic-0000-05-00-0"]
    assert problems == ()


def test_no_files_of_others_where_answers_have_the_nodes_or_nothing_is_needed() -> None:
    assert specs(snapshot(vfio(7), amd(1)), Rule(ONLY)) == ({}, ())
    assert specs(snapshot(nic(3)), Rule(ONLY, edits=NODES)) == ({}, ())


def test_nvidias_specs_are_the_same_beside_other_devices() -> None:
    edits = replace(NODES, features=("gdrcopy", "mofed"), imex_channels=(0,), rdma=True)
    alone, said = specs(snapshot(gpu(0), gpu(1)), Rule(ONLY, edits=edits))
    mixed, told = specs(snapshot(rdma(5), gpu(0), amd(1), gpu(1)), Rule(ONLY, edits=edits))
    assert {name: spec for name, spec in mixed.items() if name in alone} == alone
    assert sorted(mixed.keys() - alone.keys()) == [AMD_FILE, NIC_FILE]
    assert told == said == (ONLY_NODES,)
