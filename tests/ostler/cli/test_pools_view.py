"""``ostler pools view`` as it is typed: table, bars, many nodes folded, JSON, and what is wrong with the input."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ostler.cli.main import main
from scheduling.pools.reading import encode
from tests.making.clusters import GPU_CLASS, gpus, holder, node, resource_slice, thing, write
from tests.making.pool_documents import class_, documents, having, pool
from tests.making.pool_documents import device as pool_device
from tests.scheduling.explain.cluster import MadeCluster, serving

View = Callable[..., str]


@pytest.fixture
def view(capsys: pytest.CaptureFixture[str]) -> View:
    def run(*words: str, code: int = 0) -> str:
        assert main(["pools", "view", *words]) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


GPUS = pool(
    "gpus", *(pool_device(f"gpu-{n}", {}, [("memory", "80Gi", "10Gi")], type="gpu", model="A100") for n in range(4))
)


def test_table_and_bar_of_documents(view: View, tmp_path: Path) -> None:
    path = documents(
        tmp_path,
        class_(),
        GPUS,
        having("train", "gpus", "gpu-0", "gpu-1", pods=["train-0"]),
        having("infer-a", "gpus", "gpu-2", memory="30Gi"),
        having("infer-b", "gpus", "gpu-2", memory="5Gi"),
    )
    assert view("--from", path) == (
        "1 node, 1 pool: 1 of 4 gpu A100 free\n"
        "\n"
        "NODE    POOL  DRIVER           DEVICES     FREE    LEFT                   IN USE BY\n"
        "node-1  gpus  gpu.example.com  4 gpu A100  1 of 4  memory 120Gi of 320Gi  train (2), infer-a, infer-b\n"
        "\n"
        "gpus, gpu A100 [aa*.] 1 of 4 free\n"
        "  a  train (pod train-0): gpu-0, gpu-1\n"
        "  b  infer-a: gpu-2 (memory 30Gi)\n"
        "  c  infer-b: gpu-2 (memory 5Gi)\n"
    )


def test_card_has_a_bar_of_what_its_partitions_divide(view: View, tmp_path: Path) -> None:
    card = pool(
        "card",
        pool_device("gpu", {"memory-slice-0": 1, "memory-slice-1": 1, "memory-slice-2": 1}, type="gpu"),
        pool_device("a", {"memory-slice-0": 1, "memory-slice-1": 1}, type="mig"),
        pool_device("b", {"memory-slice-2": 1}, type="mig"),
        resources=[(f"memory-slice-{n}", 1) for n in range(3)],
    )
    path = documents(tmp_path, class_(), card, having("train", "card", "a"))
    assert "card, gpu [aa.] 1 of 3 memory slices free\n  a  train: a\n" in view("--from", path)


def test_card_without_units_says_what_is_left(view: View, tmp_path: Path) -> None:
    card = pool(
        "c",
        pool_device("gpu", {"memory": "80Gi"}),
        pool_device("h", {"memory": "40Gi"}),
        resources=[("memory", "80Gi")],
    )
    path = documents(tmp_path, class_(), card, having("train", "c", "h"))
    assert "c, gpu: memory 40Gi of 80Gi left\n  a  train: h\n" in view("--from", path)


def test_objects_of_a_cluster(view: View, tmp_path: Path) -> None:
    taint = {"key": "example.com/xid", "value": "79", "effect": "NoExecute"}
    rule = thing("DeviceTaintRule", "broken", {"deviceSelector": {"device": "gpu-1"}, "taint": taint})
    rule["apiVersion"] = "resource.k8s.io/v1beta2"
    taken = holder("node-a", "gpu-0")
    path = write(tmp_path, node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(3)), taken, rule)
    printed = view("--from", path)
    assert "[a!.] 1 of 3 free\n" in printed
    assert "  a  team/other (pod team/busy): gpu-0\n" in printed
    assert "  !  tainted example.com/xid=79:NoExecute: gpu-1\n" in printed


def test_pool_that_is_not_usable_says_why(view: View, tmp_path: Path) -> None:
    made = resource_slice("node-a", gpus(2))
    made["spec"]["pool"]["resourceSliceCount"] = 2
    printed = view("--from", write(tmp_path, node("node-a"), GPU_CLASS, made))
    assert "0 of 2" in printed
    assert "unusable: incomplete: 1 of 2 slices exist" in printed


def many(tmp_path: Path) -> str:
    pools = [
        pool(f"pool-{n:02}", *(pool_device(f"gpu-{k}", type="gpu") for k in range(2)), node=f"node-{n:02}")
        for n in range(10)
    ]
    return documents(tmp_path, class_(), *pools, having("a", "pool-03", "gpu-0"), having("b", "pool-04", "gpu-0"))


def test_many_nodes_that_are_alike_are_one_row(view: View, tmp_path: Path) -> None:
    assert view("--from", many(tmp_path)) == (
        "10 nodes, 10 pools: 18 of 20 gpu free\n"
        "\n"
        "NODES  LIKE     DRIVER           DEVICES  FREE      LEFT  IN USE BY\n"
        "10     node-00  gpu.example.com  2 gpu    18 of 20  -     2 claims\n"
        "\n"
        "gpu: free on 10 nodes like node-00\n"
        "  2 [..] 8 nodes: node-00, node-01, node-02 … 5 more\n"
        "  1 [.#] 2 nodes: node-03, node-04\n"
    )


def test_named_nodes_are_shown_whole(view: View, tmp_path: Path) -> None:
    printed = view("--from", many(tmp_path), "--node", "node-03", "--node", "node-05", "--node", "node-03")
    assert printed.startswith("2 nodes, 2 pools: 3 of 4 gpu free\n")
    assert "pool-03, gpu [a.] 1 of 2 free\n  a  a: gpu-0\n" in printed


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_data_has_every_device(view: View, tmp_path: Path, form: str) -> None:
    path = documents(tmp_path, class_(), GPUS, having("infer", "gpus", "gpu-2", memory="30Gi", pods=["p"]))
    text = view("--from", path, "-o", form)
    data: Any = json.loads(text) if form == "json" else yaml.safe_load(text)
    (found,) = data["pools"]
    assert (data["schema"], data["nodes"]) == ("ostler.dev/pools-view/v1", 1)
    assert found["kinds"] == [{"name": "gpu A100", "devices": 4, "free": 3}]
    assert found["devices"][2] == {
        "name": "gpu-2",
        "kind": "gpu A100",
        "state": "shared",
        "users": [{"claim": "infer", "pods": ["p"], "admin": False, "amounts": {"memory": "30Gi"}}],
        "amounts": [{"name": "memory", "capacity": "80Gi", "left": "50Gi", "block": "10Gi"}],
        "lacking": [],
        "taints": [],
    }


def test_nothing_is_there(view: View, tmp_path: Path) -> None:
    assert view("--from", documents(tmp_path, class_())) == "0 nodes, 0 pools: no devices\n"


def test_documents_and_objects_can_be_given_together(view: View, tmp_path: Path) -> None:
    objects = write(tmp_path, node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(1)))
    printed = view("--from", objects, "--from", documents(tmp_path, GPUS))
    assert "node-1" in printed
    assert "node-a" in printed


def test_folder_may_hold_both(view: View, tmp_path: Path) -> None:
    write(tmp_path, node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(1)))
    documents(tmp_path, GPUS)
    printed = view("--from", str(tmp_path))
    assert "node-1" in printed
    assert "node-a" in printed


def refused(view: View, *words: str) -> str:
    return view(*words, code=2)


def test_node_that_is_not_there(view: View, tmp_path: Path) -> None:
    assert refused(view, "--from", many(tmp_path), "--node", "nod-03") == (
        "ostler: no pool is on a node nod-03; there are: node-03, node-09, node-08\n"
    )


def test_file_that_is_not_there(view: View, tmp_path: Path) -> None:
    printed = refused(view, "--from", str(tmp_path / "none.yaml"))
    assert "none.yaml: cannot be read (No such file or directory); give a file or folder that exists" in printed


def test_document_that_breaks_rules_names_all_of_them(view: View, tmp_path: Path) -> None:
    broken: Any = encode(GPUS)
    broken["spec"]["driver"] = ""
    broken["spec"]["devices"][1]["name"] = "gpu-0"
    path = tmp_path / "pools.yaml"
    path.write_text(yaml.safe_dump(broken))
    assert refused(view, "--from", str(path)) == (
        f"ostler: {path}, document 1, DevicePool gpus: spec.driver is missing; name the driver that publishes the "
        f"pool\n{path}, document 1, DevicePool gpus: spec.devices: device gpu-0 is listed 2 times; keep one\n"
    )


def test_document_given_twice(view: View, tmp_path: Path) -> None:
    first = documents(tmp_path, GPUS, name="a.yaml")
    other = documents(tmp_path, pool("gpus", pool_device("x")), name="b.yaml")
    assert refused(view, "--from", first, "--from", other) == (
        f"ostler: {other}: DevicePool gpus is given twice with different contents; keep one\n"
    )


def test_pool_with_the_name_of_a_published_one(view: View, tmp_path: Path) -> None:
    objects = write(tmp_path, node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(1)))
    path = documents(tmp_path, pool("node-a", pool_device("x")))
    assert refused(view, "--from", objects, "--from", path) == (
        "ostler: DevicePool node-a has the name of another pool; rename one of the two\n"
    )


def test_document_that_is_not_utf_8(view: View, tmp_path: Path) -> None:
    path = tmp_path / "pools.yaml"
    path.write_bytes(b"apiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: \xff\n")
    assert refused(view, "--from", str(path)) == f"ostler: {path}: the byte 0xff is not UTF-8; save the file as UTF-8\n"


def test_names_cannot_steer_the_terminal(view: View, tmp_path: Path) -> None:
    odd = pool("p", pool_device("d", model="\x1b[2J"))
    printed = view("--from", documents(tmp_path, odd))
    assert "\x1b" not in printed
    assert "\\x1b[2J" in printed


def test_no_cluster_is_known(view: View, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "no cluster is known: there is no kubeconfig; give one with --kubeconfig" in refused(view)


def test_what_could_not_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = {
        "apiVersion": "ostler.dev/v1alpha1",
        "kind": "Snapshot",
        "serverVersion": "v1.35.0",
        "truncated": ["claims outside namespace team could not be read, so devices that they hold look free"],
        "missing": [{"kind": "DeviceTaintRule", "problem": "devicetaintrules cannot be listed", "fix": "grant it"}],
        "items": [node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(1))],
    }
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(snapshot))
    assert main(["pools", "view", "--from", str(path)]) == 0
    first, second, third, *more = capsys.readouterr().err.splitlines()
    assert first == "ostler: claims outside namespace team could not be read, so devices that they hold look free"
    assert second == "ostler: devicetaintrules cannot be listed; grant it"
    assert third.startswith(
        "ostler: the cluster is v1.35.0; the answer follows the rules of 1.37, with these gates off"
    )
    assert more == []


def test_live_cluster_is_read_by_kubeconfig(view: View, tmp_path: Path) -> None:
    objects = [node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(2)), holder("node-a", "gpu-1")]
    with serving(MadeCluster(*objects)) as server:
        config = tmp_path / "config"
        config.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "clusters": [{"name": "c", "cluster": {"server": server.url}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        printed = view("--kubeconfig", str(config))
    assert "[.a] 1 of 2 free\n  a  team/other (pod team/busy): gpu-1\n" in printed


def test_standard_input(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [node("node-a"), GPU_CLASS, resource_slice("node-a", gpus(1))]}
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data.encode())))
    assert "node-a" in view("--from", "-")


def test_amounts_of_nodes_that_are_alike_are_added_up_and_written_short(view: View, tmp_path: Path) -> None:
    gpus = [pool_device(f"gpu-{n}", {}, [("memory", "81559Mi"), ("cores", 1_234_567)]) for n in range(2)]
    path = documents(tmp_path, *(pool(f"p{n}", *gpus, node=f"node-{n}") for n in range(9)))
    assert "18 of 18  memory 1.4Ti of 1.4Ti, cores 22.2M of 22.2M" in view("--from", path)


def test_of_more_than_three_kinds_only_the_sum_is_in_the_first_line(view: View, tmp_path: Path) -> None:
    kinds = [pool_device(f"d{n}", {}, [], model=f"m{n}") for n in range(4)]
    assert view("--from", documents(tmp_path, pool("p", *kinds))).startswith("1 node, 1 pool: 4 of 4 devices free\n")
