"""Every example is complete, taken by the API server, and gets what its page says on nodes that have it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from driver.devices.description import slice_device
from scheduling.api.validation.objects import validate_class, validate_template
from tests.deploy.chart.rendering import of_kind, only
from tests.examples.claims import (
    DRIVER,
    EXAMPLES,
    FOLDER,
    ROOT,
    UID,
    ExampleScheduler,
    chart,
    claim_of,
    container_edits,
    devices_of,
    documents,
    view,
)

pytestmark = pytest.mark.timeout(600)  # the first test may have to build Helm

WITH_CLAIMS = [example for example in EXAMPLES if example != "extended-resource"]
NODES = {
    "one-gpu": ("l4-2", "h100-sxm-8", "dgx1-v100-8", "vm-flat-8"),
    "four-aligned-gpus": ("h100-sxm-8", "a100-sxm-8", "dgx1-v100-8", "dgx2-v100-16"),
    "gpu-with-nic": ("h100-sxm-8", "a100-sxm-8", "dgx1-v100-8", "dgx2-v100-16"),
    "moved-nic": ("h100-sxm-8", "l4-2", "sriov-2"),
    "first-available": ("h100-sxm-8", "l4-2", "dgx1-v100-8"),
    "mig": ("a100-mig-4",),
    "mig-on-demand": ("h100-sxm-8",),
    "shared-claim": ("l4-2", "h100-sxm-8"),
    "gpu-share": ("l4-2", "h100-sxm-8"),
    "mps": ("l4-2", "h100-sxm-8"),
    "admin-access": ("h100-sxm-8", "l4-2"),
}
COUNTS = {"four-aligned-gpus": 4, "gpu-with-nic": 2}
CASES = [(example, node) for example, nodes in NODES.items() for node in nodes]


def test_every_example_is_in_the_table_and_has_a_page() -> None:
    table = re.findall(r"^\| \[([\w-]+)\]\((.*?)\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(table) == [(example, f"{example}/README.md") for example in EXAMPLES]
    assert all((FOLDER / example / "README.md").exists() for example in EXAMPLES)
    assert set(NODES) == set(WITH_CLAIMS)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_page_applies_its_own_manifest_and_waits_for_its_own_pod(example: str) -> None:
    text = (FOLDER / example / "README.md").read_text()
    pod = only(documents(example), "Pod")["metadata"]["name"]
    assert f"kubectl apply -f {(FOLDER / example / 'manifest.yaml').relative_to(ROOT)}" in text
    assert f"pod/{pod} --timeout" in text


@pytest.mark.parametrize("example", WITH_CLAIMS)
def test_pod_template_and_class_go_together_and_the_api_server_takes_them(example: str) -> None:
    parts = documents(example)
    template, pod = only(parts, "ResourceClaimTemplate"), only(parts, "Pod")
    admin = any("admin-access" in str(each["metadata"].get("labels")) for each in of_kind(parts, "Namespace"))
    assert validate_template(template, admin_namespace=admin) == []
    assert pod["metadata"].get("namespace") == template["metadata"].get("namespace")
    (asked,) = pod["spec"]["resourceClaims"]
    assert asked["resourceClaimTemplateName"] == template["metadata"]["name"]
    requests = {request["name"] for request in template["spec"]["spec"]["devices"]["requests"]}
    for container in pod["spec"]["containers"]:
        (used,) = container["resources"]["claims"]
        assert used["name"] == asked["name"]
        assert used.get("request") in {None, *requests}
    classes = {each["metadata"]["name"] for each in of_kind(list(chart(example)), "DeviceClass")}
    assert set(re.findall(r"deviceClassName: (\S+)", (FOLDER / example / "manifest.yaml").read_text())) <= classes


@pytest.mark.parametrize(("example", "node"), CASES)
def test_a_claim_is_allocated_and_prepared(example: str, node: str) -> None:
    offered = view(example, node)
    claim = ExampleScheduler(example, offered).allocate(claim_of(only(documents(example), "ResourceClaimTemplate")))
    assert claim is not None
    if example in COUNTS:
        assert len(devices_of(claim)) == COUNTS[example]
    spec = container_edits(claim, offered)
    assert spec["kind"] == f"{DRIVER}/claim"
    assert len(spec["devices"]) == len(devices_of(claim))


def allocated(example: str, node: str, scheduler: ExampleScheduler | None = None) -> list[dict[str, Any]]:
    """What the allocated devices are, as published."""
    offered = view(example, node)
    scheduler = scheduler or ExampleScheduler(example, offered)
    claim = scheduler.allocate(claim_of(only(documents(example), "ResourceClaimTemplate")))
    assert claim is not None
    found = []
    for name in devices_of(claim):
        device = offered.device(name)
        assert device is not None
        found.append(slice_device(device))
    return found


def fact(device: dict[str, Any], name: str) -> Any:
    (value,) = device["attributes"][name].values()
    return value


def test_four_gpus_are_an_island_and_a_second_claim_gets_the_other_one() -> None:
    scheduler = ExampleScheduler("four-aligned-gpus", view("four-aligned-gpus", "h100-sxm-8"))
    cells = [{fact(each, "cell4") for each in allocated("four-aligned-gpus", "h100-sxm-8", scheduler)} for _ in "12"]
    assert all(len(cell) == 1 for cell in cells)
    assert not cells[0] & cells[1]


def test_the_nic_is_below_the_gpus_switch_and_has_its_rdma_files() -> None:
    gpu, nic = allocated("gpu-with-nic", "h100-sxm-8")
    assert fact(gpu, "switch") == fact(nic, "switch")
    assert fact(nic, "rdma") is True
    offered = view("gpu-with-nic", "h100-sxm-8")
    claim = ExampleScheduler("gpu-with-nic", offered).allocate(
        claim_of(only(documents("gpu-with-nic"), "ResourceClaimTemplate"))
    )
    assert claim is not None
    edits = [device["containerEdits"] for device in container_edits(claim, offered)["devices"]]
    assert any(node["path"].startswith("/dev/infiniband/uverbs") for each in edits for node in each["deviceNodes"])


def test_a_moved_nic_waits_for_its_interface() -> None:
    offered = view("moved-nic", "l4-2")
    claim = ExampleScheduler("moved-nic", offered).allocate(
        claim_of(only(documents("moved-nic"), "ResourceClaimTemplate"))
    )
    assert claim is not None
    (nic,) = allocated("moved-nic", "l4-2")
    assert fact(nic, "movesInterface") is True
    (device,) = container_edits(claim, offered)["devices"]
    mounts = [each["containerPath"] for each in device["containerEdits"]["mounts"]]
    assert any(path.startswith("/var/run/ostler/interfaces/") for path in mounts)


@pytest.mark.parametrize(
    ("node", "alternative", "count"), [("h100-sxm-8", "large", 1), ("l4-2", "pair", 2), ("dgx1-v100-8", "pair", 2)]
)
def test_the_first_alternative_that_a_node_can_serve_is_taken(node: str, alternative: str, count: int) -> None:
    offered = view("first-available", node)
    template = only(documents("first-available"), "ResourceClaimTemplate")
    claim = ExampleScheduler("first-available", offered).allocate(claim_of(template))
    assert claim is not None
    results = claim["status"]["allocation"]["devices"]["results"]
    assert [result["request"] for result in results] == [f"gpus/{alternative}"] * count


def test_a_mig_device_has_one_slice() -> None:
    (device,) = allocated("mig", "a100-mig-4")
    assert fact(device, "profile") == "1g.5gb"


def test_the_smallest_partition_with_the_memory_is_made_and_whole_gpus_stay_for_others() -> None:
    offered = view("mig-on-demand", "h100-sxm-8")
    scheduler = ExampleScheduler("mig-on-demand", offered)
    parts = [allocated("mig-on-demand", "h100-sxm-8", scheduler)[0] for _ in "1234"]
    assert {fact(part, "profile") for part in parts} == {"1g.20gb"}
    assert len({fact(part, "parentUUID") for part in parts}) == 1, "one GPU is filled before the next one is begun"
    assert fact(allocated("one-gpu", "h100-sxm-8", scheduler)[0], "uuid") != fact(parts[0], "parentUUID")


def test_two_claims_have_shares_of_one_gpu_and_what_is_left_decides() -> None:
    scheduler = ExampleScheduler("gpu-share", view("gpu-share", "l4-2"))
    shares = [allocated("gpu-share", "l4-2", scheduler)[0] for _ in "1234"]
    assert sorted(Counter(fact(share, "uuid") for share in shares).values()) == [2, 2], "an L4 has 23 GiB"
    template = only(documents("gpu-share"), "ResourceClaimTemplate")
    assert scheduler.allocate(claim_of(template)) is None


def test_the_containers_of_a_gpu_by_mps_find_the_claims_own_daemon() -> None:
    offered = view("mps", "l4-2")
    claim = ExampleScheduler("mps", offered).allocate(claim_of(only(documents("mps"), "ResourceClaimTemplate")))
    assert claim is not None
    (device,) = container_edits(claim, offered)["devices"]
    assert f"CUDA_MPS_PIPE_DIRECTORY=/mps/claim-{UID}/pipe" in device["containerEdits"]["env"]
    assert {"/dev/shm", f"/mps/claim-{UID}/pipe"} <= {
        mount["containerPath"] for mount in device["containerEdits"]["mounts"]
    }


def test_the_admin_sees_every_gpu_and_takes_none() -> None:
    offered = view("admin-access", "l4-2")
    scheduler = ExampleScheduler("admin-access", offered)
    assert len(allocated("one-gpu", "l4-2", scheduler)) == 1
    assert len(allocated("admin-access", "l4-2", scheduler)) == 2
    assert len(allocated("one-gpu", "l4-2", scheduler)) == 1


def test_the_extended_resource_has_a_class_with_its_devices() -> None:
    (pod,) = documents("extended-resource")
    (resource,) = pod["spec"]["containers"][0]["resources"]["limits"]
    (found,) = (each for each in chart("extended-resource") if each.get("spec", {}).get("extendedResourceName"))
    assert found["spec"]["extendedResourceName"] == resource
    assert validate_class(found) == []
    # As the scheduler writes it.
    request = {"name": "container-0-request-0", "exactly": {"deviceClassName": found["metadata"]["name"], "count": 1}}
    template = {"metadata": {"name": "made"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
    claim = ExampleScheduler("extended-resource", view("extended-resource", "l4-2")).allocate(claim_of(template))
    assert claim is not None
    assert devices_of(claim)[0].startswith("gpu-")
