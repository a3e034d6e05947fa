"""CDI specs as tests ask for them and look at them."""

from __future__ import annotations

from node.cdi.spec import Spec
from node.edits.options import EditOptions, ListStrategy
from node.eligibility import offer
from node.inventory.facts import DriverFiles
from node.inventory.model import Device, Host, Snapshot
from node.ledger.offer_context import NOTHING_HELD
from node.rules import Door, Rule
from plugin.specs import desired_specs
from tests.node.cdi.judging import judged

NODES = EditOptions(strategies=(ListStrategy.CDI_CRI,))
FILES = DriverFiles(
    "570.172.08", libraries=("/usr/lib64/libcuda.so.570.172.08",), sockets=("/run/nvidia-persistenced/socket",)
)
ONLY_NODES = "CDI mode nodes: containers get device nodes only, their image must bring the driver's libraries"
ONLY = "nvidia.com/gpu"


def snapshot(*devices: Device, files: DriverFiles | None = FILES) -> Snapshot:
    return Snapshot(1, devices, host=Host(driver_files=files))


def specs(one: Snapshot, *rules: Rule) -> tuple[dict[str, Spec], tuple[str, ...]]:
    return desired_specs(offer(one, rules, NOTHING_HELD, Door.PLUGIN), one)


def documents(found: dict[str, Spec]) -> dict[str, dict[str, object]]:
    return {name: judged(spec) for name, spec in found.items()}


def paths(spec: Spec, device: str) -> list[str]:
    return [node.path for each in spec.devices if each.name == device for node in each.edits.nodes]


def names(spec: Spec) -> list[str]:
    return [device.name for device in spec.devices]


def device_node(*wanted: str) -> list[dict[str, str]]:
    return [{"path": path, "permissions": "rw"} for path in wanted]
