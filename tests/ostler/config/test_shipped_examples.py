"""Every example that the SR-IOV plugin ships is taken, or refused for the reason that the migration page gives.

The plugin's repository has 22 configurations: deployments, pages and its own tests. Those here are ours and have their
shape, in their order; the table of the page has a line for each.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from node.values import Value, value
from ostler.config.conversion import convert
from ostler.config.errors import ConfigErrors
from ostler.config.load import load_bytes
from ostler.config.scalars import Json, JsonObject

PAGE = (Path(__file__).parents[3] / "docs/migrating-from-sriov-device-plugin.md").read_text()


@value
class _Example(Value):
    """``where`` it stands there, what it says, the names it gives here, and what it is refused for."""

    where: str
    text: str
    offers: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def written(*resources: JsonObject) -> str:
    return json.dumps({"resourceList": list(resources)})


def one(name: str, selectors: Json, **more: Json) -> JsonObject:
    return {"resourceName": name, **more, "selectors": selectors}


def picked(vendor: str, device: str, driver: str, **more: Json) -> JsonObject:
    return {"vendors": [vendor], "devices": [device], "drivers": [driver], **more}


def by_operator(name: str, **selectors: Json) -> str:
    flags = {"IsRdma": False, "NeedVhostNet": False}
    return json.dumps(
        {"resourceList": [{"resourceName": name, "selectors": {**selectors, **flags}, "SelectorObj": None}]}
    )


VIRTUAL, KERNEL = picked("8086", "0dd4", "vfio-pci"), picked("15b3", "101a", "mlx5_core", isRdma=True)
VDPA = "asks for vDPA devices, which ostler does not support; remove the resource, or keep the plugin for it"
DDP = "asks for devices by their DDP profile, which ostler does not support; remove it, and select by pciAddresses"
ACCELERATOR = "is accelerator, which ostler does not support; allowed: netDevice, auxNetDevice"
FURTHER = "asks for additional facts in the environment, which ostler does not support; set them in the pod's own env"


def profiled(*profiles: str) -> str:
    return written(
        *(
            one(f"p{number}", [{"vendors": ["8086"], "ddpProfiles": [profile]}])
            for number, profile in enumerate(profiles)
        )
    )


EXAMPLES = (
    _Example(
        "README.md",
        written(
            one("kernel", [picked("8086", "0dd4", "iavf")]),
            one("vdpa", [picked("15b3", "101e", "mlx5_core", vdpaType="vhost")]),
            one("fpga", [{"vendors": ["8086"]}], deviceType="accelerator"),
            one("labelled", [{"vendors": ["1af4"]}], additionalInfo={"*": {"token": "x"}}),
            one("again", [picked("8086", "0dd4", "iavf", acpiIndexes=["101"])]),
        ),
        refused=(VDPA, ACCELERATOR, FURTHER),
    ),
    _Example(
        "manager_test.go 1",
        written(
            {"resourceName": "a", "selectors": {"isRdma": False, **VIRTUAL}},
            one("b", {"isRdma": False, "vendors": ["15b3"]}),
        ),
        ("intel.com/a", "intel.com/b"),
    ),
    _Example(
        "manager_test.go 2",
        written(one("a", VIRTUAL), one("b", [{"vendors": ["15b3"], "isRdma": True}, {"vendors": ["1af4"]}])),
        ("intel.com/a", "intel.com/b", "intel.com/b"),
    ),
    _Example(
        "manager_test.go 3",
        written(one("not.a.name", VIRTUAL)),
        refused=('is "not.a.name"; write letters, digits, - and _, such as nics',),
    ),
    _Example(
        "manager_test.go 4",
        written(one("same", VIRTUAL), one("same", picked("15b3", "101a", "mlx5_core"))),
        refused=('gives "intel.com/same" again, first in line 1; put the selectors of both into one list',),
    ),
    _Example("manager_test.go 5", written(one("a", {"isRdma": True, "vdpaType": "virtio"})), refused=(VDPA,)),
    _Example("manager_test.go 6", written(one("a", [{"isRdma": True, "vdpaType": "vhost"}])), refused=(VDPA,)),
    _Example(
        "manager_test.go 7",
        written(one("a", [{"vdpaType": "virtio"}, {"vendors": ["15b3"], "isRdma": True, "vdpaType": "vhost"}])),
        refused=(VDPA, VDPA),
    ),
    _Example(
        "deployments/configMap.yaml",
        written(one("kernel", picked("8086", "0dd4", "iavf")), one("user", {**VIRTUAL, "pfNames": ["ens1f0"]})),
        ("intel.com/kernel", "intel.com/user"),
    ),
    _Example(
        "docs/config-file/README.md 1", by_operator("nics", pfNames=["ens1f0#0-3", "ens1f1#0-7"]), ("intel.com/nics",)
    ),
    _Example(
        "docs/config-file/README.md 2", by_operator("nics", pfNames=["ens1f0#0-7", "ens1f1#0-3"]), ("intel.com/nics",)
    ),
    _Example("docs/ddp/README.md", profiled("first", "second", "third", "fourth"), refused=(DDP,) * 4),
    _Example("docs/ddp/e800/configMap.yaml", profiled("default", "comms"), refused=(DDP,) * 2),
    _Example("docs/ddp/x700/configMap.yaml", profiled("gtp", "pppoe"), refused=(DDP,) * 2),
    _Example(
        "docs/dpdk/configMap-all-nics.yaml",
        written(one("nic", [KERNEL, {**KERNEL, "devices": ["101c"]}, VIRTUAL], resourcePrefix="example.com")),
        ("example.com/nic",) * 3,
    ),
    _Example(
        "docs/dpdk/configMap-virt.yaml",
        '{"resourceList": [{"resourceName": "up", "selectors": [{"drivers": ["vfio-pci"], '
        '"pciAddresses": ["0000:00:05.0", "0000:00:06.0"],}],},]}',
        ("intel.com/up",),
    ),
    _Example("docs/dpdk/configMap.yaml", written(one("user", [VIRTUAL])), ("intel.com/user",)),
    _Example(
        "docs/dpdk/mlnx-dpdk/configMap.yaml",
        written(
            one("x4", KERNEL, resourcePrefix="example.com"),
            one("x5", {**KERNEL, "devices": ["101c"]}, resourcePrefix="example.com"),
        ),
        ("example.com/x4", "example.com/x5"),
    ),
    _Example(
        "docs/rdma/configMap.yaml",
        written(
            one("a", [KERNEL], resourcePrefix="example.com"), one("b", picked("8086", "0dd4", "iavf", isRdma=True))
        ),
        ("example.com/a", "intel.com/b"),
    ),
    _Example(
        "docs/subfunctions/README.md 1",
        written(
            one("sf", [{"vendors": ["15b3"], "pfNames": ["p0#1-5"], "auxTypes": ["sf"]}], deviceType="auxNetDevice")
        ),
        ("intel.com/sf",),
    ),
    _Example(
        "docs/subfunctions/README.md 2",
        written(
            one("vf", [{"vendors": ["15b3"]}]),
            one("sf", [{"vendors": ["15b3"], "auxTypes": ["sf"]}], deviceType="auxNetDevice"),
        ),
        ("intel.com/vf", "intel.com/sf"),
    ),
    _Example(
        "docs/vdpa/configMap.yaml",
        '{"resourceList": [{ {"resourceName": "a", "selectors": [{"vdpaType": "virtio"}]} ]}',
        refused=("a key is a list or mapping; a key must be text",),
    ),
)


def test_there_is_one_for_each_that_is_shipped() -> None:
    assert len(EXAMPLES) == 22


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.where)
def test_an_example_is_taken_or_refused_for_its_reason(example: _Example) -> None:
    if example.refused:
        with pytest.raises(ConfigErrors) as caught:
            load_bytes("sriov.json", example.text.encode(), {}, {})
        assert tuple(f"{error.problem}; {error.fix}" for error in caught.value.errors) == example.refused
        return
    loaded = load_bytes("sriov.json", example.text.encode(), {}, {})
    assert tuple(rule.resource for rule in loaded.settings.rules) == example.offers
    converted = load_bytes("config.yaml", convert("sriov.json", example.text.encode()).encode(), {}, {})
    assert converted.settings == loaded.settings


def test_the_page_says_of_each_what_becomes_of_it() -> None:
    rows = re.findall(
        r"^\| `([^`|]+)`((?: \d)?) \| (taken|refused)", PAGE.partition("repository ships")[2], re.MULTILINE
    )
    said = {f"{name}{number}": verdict for name, number, verdict in rows}
    assert said == {example.where: "refused" if example.refused else "taken" for example in EXAMPLES}
