"""``ostler pools explain`` as it is typed: where claims fit, every reason in words, JSON, and unusable input."""

# ruff: noqa: RUF001 - texts stand here as people see them

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ostler.pools.explaining import pool_lines
from scheduling.pools import obstacles
from scheduling.pools.obstacles import PoolObstacle, StepsSpent
from tests.making.clusters import GPU, GPU_CLASS, gpus, holder, node, resource_slice, thing, write
from tests.making.pool_documents import A100S, CLASSES, a100s, claim, class_, documents, having, pool
from tests.making.pool_documents import device as pool_device

Explain = Callable[..., str]
Json = dict[str, Any]


def reasons(explain: Explain, tmp_path: Path, *needs: Json, given: Any = (A100S,), **spec: Any) -> str:
    """The lines below the node's name."""
    printed = explain("--from", documents(tmp_path, *CLASSES, *given), needs=needs, **spec)
    head, _, rest = printed.partition("\n\n")
    assert head == "claim trainer does not fit on node-1"
    assert rest.startswith("node-1\n")
    return rest.removeprefix("node-1\n")


def test_claim_that_fits_is_shown_with_its_devices(explain: Explain, tmp_path: Path) -> None:
    path = documents(tmp_path, *CLASSES, *(a100s(f"node-{n}") for n in range(3)), having("x", "node-0-gpus", "gpu-0"))
    need = {"requests": {"memory": "128Gi"}, "limits": {"count": 8}, "matchAttributes": ["root"]}
    printed = explain("--from", path, needs=[need, {"deviceClass": "watch"}], code=0)
    assert printed == (
        "claim trainer fits on 3 of 3 nodes\n"
        "\n"
        "node-0\n"
        "  claims[0] (class gpu): gpu-2 (memory 80Gi), gpu-3 (memory 50Gi) of pool node-0-gpus\n"
        "  claims[1] (class watch): gpu-0 (admin access) of pool node-0-gpus\n"
        "  2 more nodes on which it fits: node-1, node-2\n"
    )


def test_other_nodes_are_explained_on_demand(explain: Explain, tmp_path: Path) -> None:
    pools = [a100s(f"node-{n}") for n in range(3)]
    path = documents(
        tmp_path, *CLASSES, *pools, having("x", "node-0-gpus", "gpu-0"), having("z", "node-2-gpus", "gpu-0")
    )
    need = {"requests": {"count": 4}}
    assert explain("--from", path, needs=[need], code=0).endswith("2 other nodes do not fit; --all-nodes shows why\n")
    assert (
        "2 nodes (node-0, node-2), shown: node-0\n"
        "  claims[0] (class gpu): 4 of 4 devices suit, 3 available, 4 wanted\n"
        "    gpu-0 held by claim x\n"
        "  → it would fit here if nothing were held by others\n"
        "  → it would fit here with requests.count: 3 in claims[0]\n"
    ) in explain("--from", path, "--all-nodes", needs=[need], code=0)


def test_several_claims_are_asked_about_together(explain: Explain, tmp_path: Path) -> None:
    three = {"requests": {"count": 3}}
    asked = documents(tmp_path, claim(three, name="a"), claim(three, name="b"), name="need.yaml")
    printed = explain("-f", asked, "--from", documents(tmp_path, *CLASSES, A100S))
    assert printed == (
        "claims a, b do not fit on node-1\n"
        "\n"
        "node-1\n"
        "  claim a, claims[0] and claim b, claims[0] can each be met, but not together\n"
        "  claim a, claims[0] (class gpu): 4 of 4 devices suit, 4 available, 3 wanted\n"
        "  claim b, claims[0] (class gpu): 4 of 4 devices suit, 4 available, 3 wanted\n"
        "  → it would fit here with requests.count: 1 in claim a, claims[0]\n"
        "  → it would fit here with requests.count: 1 in claim b, claims[0]\n"
    )


def test_constraint_that_is_false(explain: Explain, tmp_path: Path) -> None:
    need = {"constraints": "device.model == 'h100' && device.root == 'r9'"}
    assert reasons(explain, tmp_path, need) == (
        "  claims[0] (class gpu): 0 of 4 devices suit, 1 wanted\n"
        "    4 × the claim: device.model == 'h100' is false: model is \"a100\" (and 1 other condition)\n"
        "  → it would fit here without the constraints of claims[0]\n"
    )


def test_constraint_of_a_class_that_is_false(explain: Explain, tmp_path: Path) -> None:
    fast = class_("fast", constraints="has(device.speed)")
    assert reasons(explain, tmp_path, {"deviceClass": "fast"}, given=(A100S, fast)) == (
        "  claims[0] (class fast): 0 of 4 devices suit, 1 wanted\n"
        "    4 × class fast: has(device.speed) is false: speed is absent\n"
    )


def test_constraint_that_fails(explain: Explain, tmp_path: Path) -> None:
    assert reasons(explain, tmp_path, {"constraints": "device.speed > 1"}) == (
        "  the claim fails with an error on gpu-0, gpu-1, gpu-2, gpu-3: the device has no attribute speed; guard it "
        "with has(device.speed)\n"
        "    in device.speed > 1\n"
    )


def test_no_device_of_the_driver(explain: Explain, tmp_path: Path) -> None:
    assert reasons(explain, tmp_path, {"deviceClass": "nic"}) == (
        "  claims[0] (class nic): 1 wanted\n"
        "    no device here is of nic.example.com; pools here are of gpu.example.com\n"
    )


def test_devices_in_use_and_too_few(explain: Explain, tmp_path: Path) -> None:
    given = (A100S, having("x", "node-1-gpus", "gpu-0", "gpu-2"), having("z", "node-1-gpus", "gpu-1"))
    assert reasons(explain, tmp_path, {"requests": {"count": 5}, "limits": {"count": 6}}, given=given) == (
        "  claims[0] (class gpu): 4 of 4 devices suit, 1 available, 5 to 6 wanted\n"
        "    there are 4 in all, and 5 are wanted\n"
        "    gpu-0, gpu-2 held by claim x\n"
        "    gpu-1 held by claim z\n"
        "  → it would fit here with requests.count: 1 in claims[0]\n"
    )


def test_amount_that_is_used_up_on_devices(explain: Explain, tmp_path: Path) -> None:
    given = (A100S, having("x", "node-1-gpus", "gpu-0", memory="75Gi"))
    assert "    1 × memory: 0 of 80Gi left, in blocks of 10Gi: gpu-0\n      used by claim x\n" in reasons(
        explain, tmp_path, {"requests": {"count": 4, "memory": "40Gi"}}, given=given
    )


def test_amount_that_is_short(explain: Explain, tmp_path: Path) -> None:
    assert reasons(explain, tmp_path, {"requests": {"memory": "200Gi"}, "limits": {"count": 2}}) == (
        "  claims[0] (class gpu): 4 of 4 devices suit, 4 available, 1 to 2 wanted\n"
        "    memory: 200Gi wanted, 2 devices can give 160Gi at most; 320Gi is available in all\n"
        "  → it would fit here with requests.memory: 160Gi in claims[0]\n"
        "  → it would fit here with limits.count: 3 in claims[0]\n"
    )


def test_attributes_that_differ(explain: Explain, tmp_path: Path) -> None:
    assert reasons(explain, tmp_path, {"requests": {"count": 3}}, matchAttributes=["root"]) == (
        "  claims[0] (class gpu): 4 of 4 devices suit, 4 available, 3 wanted\n"
        "    matchAttributes: root: 3 wanted with one value, at most 2 found\n"
        "      values: r0 × 2, r1 × 2\n"
        "  → it would fit here with requests.count: 2 in claims[0]\n"
    )
    assert reasons(explain, tmp_path, {"matchAttributes": ["slot"]}) == (
        "  claims[0] (class gpu): 4 of 4 devices suit, 4 available, 1 wanted\n"
        "    matchAttributes: slot: 1 wanted with it, none found\n"
        "      values: absent × 4\n"
        "  → it would fit here without slot in matchAttributes of claims[0]\n"
    )


def test_amount_of_equal_devices(explain: Explain, tmp_path: Path) -> None:
    need = {"requests": {"memory": "200Gi"}, "limits": {"count": 4}, "matchAttributes": ["root"]}
    assert (
        "    matchAttributes: root: all devices must have one value\n"
        "      values: r0 × 2, r1 × 2\n"
        "    memory: 200Gi wanted, 4 devices with equal root can give 160Gi at most; 320Gi is available in all\n"
    ) in reasons(explain, tmp_path, need)


def test_attribute_across_the_claim(explain: Explain, tmp_path: Path) -> None:
    pair = {"requests": {"count": 2}}
    printed = reasons(explain, tmp_path, pair, pair, matchAttributes=["root"])
    assert "  claims[0] and claims[1] can each be met, but not together with root equal on all devices\n" in printed


def test_resource_of_a_pool_and_devices_at_once(explain: Explain, tmp_path: Path) -> None:
    card = pool("card", *(pool_device(f"d{n}", {"slice": 1}) for n in range(4)), resources=[("slice", 2)])
    assert reasons(explain, tmp_path, {"requests": {"count": 3}}, given=(card,)) == (
        "  claims[0] (class gpu): 4 of 4 devices suit, 4 available, 3 wanted\n"
        "    at most 2 of them are available at the same time: they share slice\n"
        "  → it would fit here with requests.count: 2 in claims[0]\n"
    )
    given = (card, having("x", "card", "d0", "d1"))
    assert "    2 × slice of pool card: 1 needed, 0 of 2 left: d2, d3\n      used by claim x\n" in reasons(
        explain, tmp_path, {}, given=given
    )


def test_alternatives_are_explained_one_by_one(explain: Explain, tmp_path: Path) -> None:
    one_of = {"oneOf": [{"deviceClass": "gpu", "requests": {"count": 5}}, {"deviceType": "nic"}]}
    assert reasons(explain, tmp_path, one_of) == (
        "  claims[0].oneOf[0] (class gpu): 4 of 4 devices suit, 4 available, 5 wanted\n"
        "    there are 4 in all, and 5 are wanted\n"
        "  claims[0].oneOf[1] (type nic): 1 wanted\n"
        "    no device here is of nic.example.com; pools here are of gpu.example.com\n"
        "  → it would fit here with requests.count: 4 in claims[0].oneOf[0]\n"
    )


def test_only_the_nearest_groups_of_nodes_are_shown(explain: Explain, tmp_path: Path) -> None:
    pools = [pool(f"p{n:02}", *(pool_device(f"d{k}") for k in range(n)), node=f"node-{n:02}") for n in range(1, 15)]
    printed = explain("--from", documents(tmp_path, *CLASSES, *pools), needs=[{"requests": {"count": 20}}])
    assert printed.endswith("\n2 more groups of nodes; --all-nodes shows them\n")
    assert "there are 3 in all, and 20 are wanted" in printed
    assert "there are 2 in all, and 20 are wanted" not in printed


def test_many_claims_that_have_devices_are_counted(explain: Explain, tmp_path: Path) -> None:
    many = pool("many", *(pool_device(f"d{n}") for n in range(6)))
    given = (many, *(having(f"c{n}", "many", f"d{n}") for n in range(6)))
    assert "    3 more held by 3 other claims\n" in reasons(explain, tmp_path, {}, given=given)


def test_there_are_no_pools(explain: Explain, tmp_path: Path) -> None:
    assert explain("--from", documents(tmp_path, *CLASSES), needs=[{}]) == (
        "claim trainer does not fit on the network\n"
        "\n"
        "the network\n"
        "  claims[0] (class gpu): 1 wanted\n"
        "    no device here is of gpu.example.com; there are no devices here\n"
    )


def test_class_that_is_not_there_stops_on_every_node(explain: Explain, tmp_path: Path) -> None:
    assert explain("--from", documents(tmp_path, *CLASSES, A100S), needs=[{"deviceClass": "gpux"}]) == (
        "claim trainer cannot be met on any node\n"
        "\n"
        "claims[0] cannot be judged:\n"
        "  there is no DeviceClass gpux; the classes are: gpu, nic, watch\n"
    )


def test_class_of_the_cluster_with_taints_and_holders(explain: Explain, tmp_path: Path) -> None:
    rule = thing(
        "DeviceTaintRule",
        "broken",
        {"deviceSelector": {"device": "gpu-1"}, "taint": {"key": "xid", "value": "79", "effect": "NoExecute"}},
    )
    rule["apiVersion"] = "resource.k8s.io/v1beta2"
    nic = resource_slice("node-a", [{"name": "nic-0"}], "nic.example.com")
    path = write(
        tmp_path, node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(3)), nic, holder("node-a", "gpu-0"), rule
    )
    assert explain("--from", path, needs=[{"deviceClass": GPU, "requests": {"count": 2}}]) == (
        "claim trainer does not fit on node-a\n"
        "\n"
        "node-a\n"
        f"  claims[0] (class {GPU}): 3 of 3 devices suit, 1 available, 2 wanted\n"
        "    gpu-0 held by claim team/other (pod team/busy)\n"
        "    1 × tainted xid=79:NoExecute: gpu-1\n"
        "      → fix the cause on the device, or ask with a ResourceClaim, which can tolerate it\n"
        "  → it would fit here if nothing were held by others\n"
        "  → it would fit here with requests.count: 1 in claims[0]\n"
    )


def test_selector_of_a_class_of_the_cluster(explain: Explain, tmp_path: Path) -> None:
    expression = f'device.driver == "{GPU}" && device.attributes["{GPU}"].model == "H100"'
    fast = thing("DeviceClass", "fast", {"selectors": [{"cel": {"expression": expression}}]})
    slow = resource_slice("node-a", gpus(2, model="L4"))
    other = resource_slice("node-b", [{"name": "nic-0"}], "nic.example.com")
    printed = explain(
        "--from", write(tmp_path, node("node-a"), node("node-b"), fast, slow, other), needs=[{"deviceClass": "fast"}]
    )
    assert f'    2 × class fast: device.attributes["{GPU}"].model == "H100" is false: model is "L4"\n' in printed
    assert "    no device here is of class fast; pools here are of nic.example.com\n" in printed


def test_pool_that_is_not_usable(explain: Explain, tmp_path: Path) -> None:
    made = resource_slice("node-a", gpus(2))
    made["spec"]["pool"]["resourceSliceCount"] = 2
    printed = explain("--from", write(tmp_path, node("node-a"), GPU_CLASS, made), needs=[{"deviceClass": GPU}])
    assert "    2 × pool node-a is unusable: incomplete: 1 of 2 slices exist\n" in printed


def test_search_that_gives_up_has_words() -> None:
    (said,) = pool_lines(StepsSpent("no answer after trying 5 ways"), 0)
    assert said.pieces[0].text == "no answer after trying 5 ways"


def test_every_obstacle_has_words() -> None:
    """Each kind is met in a test above, or here."""
    goals = (obstacles.AmountGoal("memory", "8Gi", "4Gi"), obstacles.AmountGoal("lanes", "8", "4"))
    (said,) = pool_lines(obstacles.AmountShort(goals, 2, "8Gi"), 0)
    assert "".join(each.text for each in said.pieces) == (
        "memory 8Gi (at most 4Gi) and lanes 8 (at most 4) wanted together of 2 devices"
    )
    with pytest.raises(TypeError, match="no words for"):
        pool_lines(PoolObstacle(), 0)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_data(explain: Explain, tmp_path: Path, form: str) -> None:
    path = documents(tmp_path, *CLASSES, A100S, a100s("node-2"), having("x", "node-1-gpus", "gpu-0"))
    text = explain("--from", path, "-o", form, needs=[{"requests": {"count": 4}}], code=0)
    data: Any = json.loads(text) if form == "json" else yaml.safe_load(text)
    assert {key: data[key] for key in ("schema", "claims", "fits", "nodes", "fitting", "stops")} == {
        "schema": "ostler.dev/pools-explain/v1",
        "claims": ["trainer"],
        "fits": True,
        "nodes": 2,
        "fitting": 1,
        "stops": [],
    }
    fits, blocked = data["groups"]
    assert (fits["nodes"], fits["outcome"], len(fits["devices"])) == (["node-2"], "fits", 4)
    assert fits["devices"][0] == {
        "claim": "trainer",
        "entry": 0,
        "alternative": None,
        "class": "gpu",
        "pool": "node-2-gpus",
        "device": "gpu-0",
        "admin": False,
        "amounts": {},
    }
    assert blocked["needs"][0] == {
        "claim": "trainer",
        "need": "claims[0]",
        "what": "class gpu",
        "wanted": 4,
        "most": 4,
        "total": 4,
        "suitable": 4,
        "usable": 3,
        "obstacles": [{"kind": "in-use", "devices": ["gpu-0"], "count": 1, "users": [[{"claim": "x", "pods": []}]]}],
    }
    assert blocked["remedies"][0] == {"change": "free", "claim": "", "need": "", "what": "", "value": ""}
