"""An example as its folder has it, and what becomes of its claim on a recorded node: allocated, then planned."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from driver.claims.allocation import allocation_of, name_in_pod
from driver.claims.model import ClaimReference
from driver.claims.partitions import PartitionWork
from driver.claims.plan import ClaimPlan, planned
from driver.devices.description import counter_set, slice_device
from driver.devices.view import DoorView
from node.partitions import partition_name
from node.values import replace
from ostler.config.load import load_bytes
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import SliceIndex
from scheduling.api.validation.storing import as_stored
from tests.deploy.chart.rendering import Document, of_kind, render
from tests.driver.devices.recorded import snapshot
from tests.making.dra_door import door_view
from tests.making.partitions import instance
from tests.making.recorded_cases import files_in

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "dra"
EXAMPLES = [path.parent.name for path in files_in(FOLDER, "*/manifest.yaml")]
DRIVER, NODE, UID = "ostler.dev", "node-1", "2b7c4a9e-7f0b-4a36-9a55-1f7c2f5d8e01"
GUARDS = Path("/var/lib/kubelet/plugins/ostler.dev/interfaces")
Values = dict[str, Any]


def documents(example: str) -> list[Document]:
    """The objects of the manifest."""
    return [document for document in yaml.safe_load_all((FOLDER / example / "manifest.yaml").read_text()) if document]


def values(example: str) -> Values:
    """The chart's values that the page asks for."""
    found = re.search(r"^```yaml\n(.*?)^```$", (FOLDER / example / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    given: Values = yaml.safe_load(found[1])
    return given


@cache
def chart(example: str) -> tuple[Document, ...]:
    """What the chart makes of those values."""
    return tuple(render(values(example)))


def view(example: str, node: str) -> DoorView:
    """What an agent so configured offers on a shipped node."""
    config = {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "nodeName": NODE, **values(example)["config"]}
    rules = load_bytes("config.yaml", json.dumps(config).encode(), {}, {}).settings.rules
    return door_view(snapshot(node), rules)


class ExampleScheduler:
    """Gives devices of one node to claims, as the stock scheduler does."""

    def __init__(self, example: str, offered: DoorView) -> None:
        self._classes = {each["metadata"]["name"]: each for each in of_kind(list(chart(example)), "DeviceClass")}
        contents: list[Values] = [{"devices": [slice_device(device) for device in offered.devices]}]
        if offered.counters:
            contents.append({"sharedCounters": [counter_set(each) for each in offered.counters]})
        pool = {"name": NODE, "generation": 1, "resourceSliceCount": len(contents)}
        common = {"driver": DRIVER, "nodeName": NODE, "pool": pool}
        slices = [{"metadata": {"name": f"s{n}"}, "spec": {**common, **each}} for n, each in enumerate(contents)]
        self._index = SliceIndex(slices)
        self.held: list[Document] = []

    def list_all_allocated(self) -> Sequence[Document]:
        return self.held

    def allocate(self, claim: Document) -> Document | None:
        """The claim with its allocation, None where it waits."""
        results = Allocator([claim], self, self._classes, self._index).allocate({"metadata": {"name": NODE}})
        if results is None:
            return None
        status = {"allocation": results[0], "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
        self.held.append({**claim, "status": status})
        return self.held[-1]


def claim_of(template: Document, name: str = "claim") -> Document:
    """A claim as it is made from a template, and stored."""
    metadata = {"name": name, "namespace": template["metadata"].get("namespace", "default"), "uid": UID}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    return as_stored({**claim, "spec": template["spec"]["spec"]})


def devices_of(claim: Document) -> list[str]:
    """The devices that were allocated."""
    return [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]]


def with_made(offered: DoorView, work: PartitionWork) -> tuple[DoorView, dict[str, str]]:
    """The view once the partitions exist, and their UUIDs by name."""
    shown = {each.device.name: each for each in offered.devices}
    made = {}
    for gpu, shape in work.make:
        name, new = partition_name(gpu.name, shape), instance(gpu, shape)
        made[name] = new.uuid or ""
        shown[name] = replace(shown[name], device=replace(new, name=name))
    return replace(offered, devices=tuple(shown.values())), made


def container_edits(claim: Document, offered: DoorView) -> Document:
    """The CDI file that the node's agent writes for an allocated claim."""
    name = claim["metadata"]["name"]
    reference = ClaimReference(claim["metadata"]["namespace"], name, UID)
    allocation = allocation_of(claim, reference, DRIVER)
    made: dict[str, str] = {}

    def plan_of(offered: DoorView) -> ClaimPlan:
        name = name_in_pod(claim, reference)
        return planned(allocation, name, offered, driver=DRIVER, pool=NODE, made=made, guard_dir=GUARDS)

    plan = plan_of(offered)
    if plan.work:
        offered, made = with_made(offered, plan.work)
        plan = plan_of(offered)
    found: Document = json.loads(plan.spec)
    return found
