"""``ostler pools claim`` and ``ostler pools convert`` as they are typed: what they print, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ostler.cli.main import main
from scheduling.pools.documents import DevicePool
from scheduling.pools.need import EXAMPLE
from scheduling.pools.reading import read
from tests.making.clusters import GPU, GPU_CLASS, ROOT, device, holder, resource_slice, write
from tests.making.pool_documents import claim, class_, documents, pool
from tests.making.pool_documents import device as pool_device

Command = Callable[..., tuple[str, str]]


@pytest.fixture
def ostler(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str, code: int = 0) -> tuple[str, str]:
        assert main(["pools", *words]) == code
        printed = capsys.readouterr()
        return printed.out, printed.err

    return run


def gpu(number: int, memory: str, root: str) -> Any:
    return device(f"gpu-{number}", more={"capacity": {"memory": {"value": memory}}}, root=root, model="a100")


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """Four GPUs on two roots; one of the first root is taken. A node of two smaller ones."""
    big = [gpu(number, "80Gi", f"pci{number // 2}") for number in range(4)]
    small = [gpu(0, "96Gi", "pci0"), gpu(1, "40Gi", "pci0")]
    taken = holder("node-1", "gpu-0")
    return write(tmp_path, GPU_CLASS, resource_slice("node-1", big), resource_slice("node-2", small), taken)


def test_a_range_and_a_sum_become_alternatives(ostler: Command, cluster: str) -> None:
    text, _ = ostler("claim", EXAMPLE, "--from", cluster)
    assert text.startswith(
        "# on node node-1 it gets now:\n"
        "#   need-1/option-1: gpu-2 of pool node-1 (gpu.example.com)\n"
        "#   need-1/option-1: gpu-3 of pool node-1 (gpu.example.com)\n"
        "# lost: spec.claims[0].requests: memory 128Gi is a sum over devices; v1 asks for an equal part of each\n"
    )
    devices = yaml.safe_load(text)["spec"]["spec"]["devices"]
    (request,) = devices["requests"]
    # No device has 128Gi, so nothing asks for one.
    assert [each["count"] for each in request["firstAvailable"]] == [2, 3, 4, 5, 6, 7, 8]
    assert request["firstAvailable"][0]["selectors"][0]["cel"]["expression"] == (
        f'has(device.capacity["{GPU}"].memory) && device.capacity["{GPU}"].memory.compareTo(quantity("64Gi")) >= 0'
    )
    assert devices["constraints"] == [{"requests": ["need-1"], "matchAttribute": ROOT}]


def test_a_sum_that_only_unequal_devices_reach_names_their_parts(ostler: Command, cluster: str) -> None:
    text, _ = ostler("claim", "2 gpu, memory>=136Gi total, same pcieRoot", "--from", cluster, "--node", "node-2")
    assert "# it names exactly these devices, because a claim cannot express the sum in general\n" in text
    devices = yaml.safe_load(text)["spec"]["spec"]["devices"]
    assert [each["name"] for each in devices["requests"]] == ["need-1-part-1", "need-1-part-2"]
    parts = [each["exactly"]["selectors"][-1]["cel"]["expression"] for each in devices["requests"]]
    assert ["96Gi" in parts[0], "40Gi" in parts[1]] == [True, True]
    assert devices["constraints"] == [{"requests": ["need-1-part-1", "need-1-part-2"], "matchAttribute": ROOT}]


def test_what_fits_nowhere_is_said_with_the_claim(ostler: Command, cluster: str) -> None:
    text, _ = ostler("claim", "5 gpu", "--from", cluster, code=1)
    assert text.startswith("# no node has these devices now; 'ostler pools explain' says why\n")
    assert yaml.safe_load(text)["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 5


def test_json_has_template_promise_and_losses(ostler: Command, cluster: str) -> None:
    text, _ = ostler("claim", "gpu.example.com, memory>=90Gi", "--from", cluster, "-o", "json")
    found = json.loads(text)
    assert (found["node"], found["exact"], found["lost"]) == ("node-2", False, [])
    assert [each["device"] for each in found["devices"]] == ["gpu-0"]
    assert found["template"]["kind"] == "ResourceClaimTemplate"


def test_several_claims_share_what_is_free(ostler: Command, cluster: str, tmp_path: Path) -> None:
    """Three GPUs of node-1 are free, so that two claims for two of them cannot both be promised."""
    need = {"deviceType": "gpu", "requests": {"count": 2, "memory": "160Gi"}}
    two = documents(tmp_path, claim(need, name="first"), claim(need, name="second"))
    text, _ = ostler("claim", "-f", two, "--from", cluster, code=1)
    first, second = text.split("---\n")
    assert first.startswith("# on node node-1 it gets now:\n")
    refused = "# no node has these devices now beside those of the claims before it; 'ostler pools explain' says why\n"
    assert second.startswith(refused)
    ostler("claim", "-f", documents(tmp_path, claim(need, name="second")), "--from", cluster)


def test_a_claim_gets_what_the_claims_before_it_leave(ostler: Command, cluster: str, tmp_path: Path) -> None:
    one = {"deviceType": "gpu", "requests": {"memory": "80Gi"}}
    names = ("a", "b", "c", "d")
    path = documents(tmp_path, *(claim(one, name=each) for each in names))
    text, _ = ostler("claim", "-f", path, "--from", cluster, "-o", "json")
    got = [(each["node"], each["devices"][0]["device"]) for each in json.loads(text)]
    assert got == [("node-1", "gpu-1"), ("node-1", "gpu-2"), ("node-1", "gpu-3"), ("node-2", "gpu-0")]


def test_amounts_of_a_shared_device_are_promised_once(ostler: Command, tmp_path: Path) -> None:
    gpus = pool("gpus", pool_device("gpu-0", {}, [("memory", "80Gi")]))
    source = documents(tmp_path, class_(), gpus, name="pools.yaml")
    needs = [claim({"requests": {"memory": amount}}, name=f"c{number}") for number, amount in enumerate(("50Gi",) * 2)]
    text, _ = ostler("claim", "-f", documents(tmp_path, *needs), "--from", source, "-o", "json", code=1)
    assert [each["node"] for each in json.loads(text)] == ["node-1", None]


def test_a_class_of_the_file_is_printed_as_well(ostler: Command, cluster: str, tmp_path: Path) -> None:
    big = class_("big", GPU, constraints="device.model == 'a100'")
    text, _ = ostler("claim", "-f", documents(tmp_path, big, claim({"deviceClass": "big"})), "--from", cluster)
    class_object, template = yaml.safe_load_all(text)
    selectors = [each["cel"]["expression"] for each in class_object["spec"]["selectors"]]
    assert selectors == [f'device.driver == "{GPU}"', f"device.attributes[\"{GPU}\"].model == 'a100'"]
    assert template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "big"


def test_pools_of_documents_can_be_asked(ostler: Command, tmp_path: Path) -> None:
    gpus = pool("gpus", *(pool_device(f"gpu-{each}", {}, [("memory", "80Gi", "8Gi")]) for each in range(2)))
    source = documents(tmp_path, class_(), gpus, name="pools.yaml")
    text, _ = ostler("claim", "gpu, memory>=60Gi", "--from", source)
    assert text.startswith(
        "# on node node-1 it gets now:\n#   need-1: gpu-0 of pool gpus (gpu.example.com), memory 64Gi"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a need either in its short form or as a file with -f"),
        (["gpu", "-f", "x.yaml"], "give a need either in its short form or as a file with -f"),
        (["two gpu"], "the need cannot be read: \"gpu\" at character 5: expected ',' or the end; for example: "),
        (["gpu", "--node", "node-9"], "no pool is on a node node-9; there are: node-2, node-1"),
        (["nic"], "DeviceClaim need: no DeviceClass is of deviceType nic; the types are: gpu"),
        (["nic.example.com"], "DeviceClaim need: there is no DeviceClass nic.example.com; the classes are: "),
        (["gpu, cores>=4"], "the devices of class gpu.example.com have no cores; they have: memory"),
        (["gpu, size=4"], "device.size == 4: reads the attribute size, which no device of the class has; they have: "),
        (["gpu, same rack"], "no device of class gpu.example.com has the attribute rack; they have: model, pcieRoot"),
    ],
)
def test_what_cannot_be_asked(ostler: Command, cluster: str, words: list[str], message: str) -> None:
    _, error = ostler("claim", *words, "--from", cluster, code=2)
    assert message in error


def test_a_file_without_claims_is_refused(ostler: Command, cluster: str, tmp_path: Path) -> None:
    path = documents(tmp_path, class_())
    _, error = ostler("claim", "-f", path, "--from", cluster, code=2)
    assert f"{path}: no DeviceClaim is in it; write one, a DeviceClaim of devmgmtproto" in error


def test_convert_prints_objects_and_what_is_lost(ostler: Command, tmp_path: Path) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "name": "tuning"}
    path = documents(tmp_path, class_(), pool("gpus", pool_device("gpu-0", color="red")), claim({"configs": [config]}))
    text, error = ostler("convert", "-f", path)
    assert [each["kind"] for each in yaml.safe_load_all(text)] == ["ResourceSlice", "DeviceClass", "ResourceClaim"]
    assert error == (
        "lost: DeviceClaim claim: spec.claims[0].configs[0]: v1 holds parameters and no reference to ConfigMap tuning\n"
    )
    text, _ = ostler("convert", "-f", path, "-o", "json", "--templates")
    found = json.loads(text)
    assert found["objects"][2]["kind"] == "ResourceClaimTemplate"
    (lost,) = found["lost"]
    assert (lost["document"], lost["field"], lost["leftOut"]) == (
        "DeviceClaim claim",
        "spec.claims[0].configs[0]",
        False,
    )


def test_a_claim_that_a_pod_uses_as_a_template_becomes_one(ostler: Command, tmp_path: Path) -> None:
    path = documents(tmp_path, class_(), claim({}, name="each"), claim({}, name="one"))
    uses = {"deviceClaims": {"template": {"claimName": "each"}}}
    user = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"deviceClaims": [uses["deviceClaims"]]},
    }
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(user))
    text, _ = ostler("convert", "-f", path, "-f", str(tmp_path / "pod.yaml"))
    found = {each["metadata"]["name"]: each["kind"] for each in yaml.safe_load_all(text)}
    assert found == {"gpu": "DeviceClass", "each": "ResourceClaimTemplate", "one": "ResourceClaim"}


def test_convert_fails_when_something_is_left_out(ostler: Command, tmp_path: Path) -> None:
    path = documents(tmp_path, claim({"deviceClass": "gpu", "matchAttributes": ["color"]}))
    _, error = ostler("convert", "-f", path, code=1)
    assert error == (
        "lost: DeviceClaim claim: spec.claims[0].matchAttributes[0]: v1 needs the domain of color, and the driver of "
        "the class is not known; add the DeviceClass document, or write the domain, such as resource.kubernetes.io/"
        "color; left out\n"
    )


def test_convert_needs_documents(ostler: Command, cluster: str) -> None:
    _, error = ostler("convert", "-f", cluster, "--from", cluster, code=2)
    assert "give documents with -f or what is published with --from, not both" in error
    _, error = ostler("convert", "-f", cluster, code=2)
    assert "there is no DevicePool, DeviceClass or DeviceClaim of devmgmtproto.k8s.io" in error


def test_convert_from_a_cluster_gives_documents(ostler: Command, cluster: str, tmp_path: Path) -> None:
    text, error = ostler("convert", "--from", cluster)
    assert error == ""
    found = [read(each) for each in yaml.safe_load_all(text)]
    assert [each.metadata.name for each in found] == ["node-1", "node-2", GPU, "other"]
    path = tmp_path / "back.yaml"
    path.write_text(text)
    need = documents(tmp_path, claim({"deviceType": "gpu", "requests": {"count": 3}}))
    text, _ = ostler("claim", "-f", need, "--from", str(path))
    assert text.startswith("# on node node-1 it gets now:\n#   need-1: gpu-1 of pool node-1")


def test_a_recorded_node_as_documents(ostler: Command) -> None:
    text, error = ostler("convert", "--from", "l4-2", code=1)
    documents_ = [read(each) for each in yaml.safe_load_all(text)]
    assert isinstance(documents_[0], DevicePool)
    assert "lost: pool ostler.dev/l4-2: attribute ostler.dev/migCapable: pools have no true and false" in error
