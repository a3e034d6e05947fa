"""One claim that is absurd - nested without end, of megabytes, no JSON - costs nobody else an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kube.bodies import Json, JsonObject, object_at
from ostler.cli.main import main
from ostler.explain.live import ClusterScope, read_cluster
from scheduling.explain.state import SHOWN, Kind, State, name_of
from tests.kube.conftest import client_of
from tests.kube.server import StubApiServer
from tests.scheduling.explain.cluster import MadeCluster, serving
from tests.scheduling.explain.objects import allocated, claim, device_class, node, pod, resource_slice
from tests.scheduling.explain.test_live import kubeconfig

LEVELS = (1500, 100_000)


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def configured(body: JsonObject, parameters: Json, driver: str = "other.example") -> JsonObject:
    """The claim with parameters of a driver, also in its allocation, if it has one."""
    config: list[Json] = [{"opaque": {"driver": driver, "parameters": parameters}}]
    spec: JsonObject = {"devices": {**object_at(body, "spec", "devices"), "config": config}}
    made: JsonObject = {**body, "spec": spec}
    if allocation := object_at(body, "status", "allocation"):
        devices: JsonObject = {**object_at(allocation, "devices"), "config": config}
        made["status"] = {**object_at(body, "status"), "allocation": {**allocation, "devices": devices}}
    return made


MINE = pod("train", resourceClaims=[{"name": "gpu", "resourceClaimName": "mine"}])
PLAIN = (device_class("gpu"), resource_slice("s", "node-1", "gpu-0", "gpu-1"), node("node-1"), claim("mine"), MINE)
HELD = allocated(claim("held", "other"), ("node-1", "gpu-0"), pods=("holder",))


@pytest.fixture
def cluster() -> MadeCluster:
    return MadeCluster(*PLAIN)


@pytest.fixture
def server(cluster: MadeCluster) -> Iterator[StubApiServer]:
    with serving(cluster) as made:
        yield made


def read(server: StubApiServer, wanted: ClusterScope) -> State:
    client = client_of(server)
    try:
        return read_cluster(client, server.url, wanted)
    finally:
        client.close()


Answers = Callable[[], tuple[str, str, str]]


@pytest.fixture
def answers(server: StubApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Answers:
    """What explain says of the honest pod, and what snapshot writes and says."""
    return lambda: _answers(server, tmp_path, capsys)


def _answers(server: StubApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, str, str]:
    config = kubeconfig(tmp_path / "config", server.url)
    config.write_text(config.read_text().replace(f"{server.url}/a", server.url))
    assert main(["explain", "pod/train", "-n", "team", "--kubeconfig", str(config)]) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert main(["snapshot", "-o", str(tmp_path / "s.yaml"), "--kubeconfig", str(config)]) == 0
    return told, (tmp_path / "s.yaml").read_text(), capsys.readouterr().err


@pytest.mark.parametrize("levels", LEVELS)
def test_parameters_that_nest_without_end_are_not_decoded(levels: int, cluster: MadeCluster, answers: Answers) -> None:
    cluster.objects += [configured(claim("deep", "evil"), "@deep@"), configured(HELD, "@deep@")]
    cluster.raw["@deep@"] = nested(levels)
    told, snapshot, said = answers()
    # The claim that holds gpu-0 counts all the same.
    assert "gpu-1" in told
    assert "gpu-0" not in told
    assert [body["metadata"]["name"] for body in yaml.safe_load_all(snapshot) if body["kind"] == Kind.CLAIM] == [
        "mine", "deep", "held",
    ]  # fmt: skip
    deep = next(body for body in yaml.safe_load_all(snapshot) if name_of(body) == "deep")
    (config,) = deep["spec"]["devices"]["config"]
    assert config["opaque"] == {"driver": "other.example", "parameters": {"replaced": "by ostler snapshot"}}
    assert "deeper" not in said


@pytest.mark.parametrize("levels", LEVELS)
def test_what_nests_without_end_elsewhere_is_left_out_by_name(
    levels: int, cluster: MadeCluster, answers: Answers
) -> None:
    body = claim("deep", "evil")
    cluster.objects.append({**body, "spec": {**object_at(body, "spec"), "future": "@deep@"}})
    cluster.raw["@deep@"] = nested(levels)
    told, _, said = answers()
    sentence = "ResourceClaim evil/deep nests deeper than 64 levels; what is deeper is left out"
    assert sentence in " ".join(told.split())
    assert f"not in it: {sentence}" in said


def test_seventy_claims_of_a_megabyte_are_read_by_their_names_and_devices(
    cluster: MadeCluster, server: StubApiServer, answers: Answers
) -> None:
    cluster.objects += [configured(claim(f"large-{n}", "evil"), "@large@") for n in range(70)] + [HELD]
    cluster.raw["@large@"] = b'{"a":"' + b"x" * (1 << 20) + b'"}'
    told, snapshot, _ = answers()
    assert "gpu-1" in told
    assert len(snapshot) < 100_000
    limits = [asked.path for asked in server.asked if "resourceclaims?" in asked.path]
    assert any("limit=500" in path for path in limits)
    assert any("limit=3" in path or "limit=4" in path for path in limits), "pages become smaller"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"oops", "is not a JSON object"),
        (b'"' + b"x" * (9 << 20) + b'"', "has more than 8388608 bytes in fields that are used"),
    ],
)
def test_a_claim_that_cannot_be_read_is_left_out_by_name(
    raw: bytes, problem: str, cluster: MadeCluster, server: StubApiServer, answers: Answers
) -> None:
    body = claim("bad", "evil")
    cluster.objects.append({**body, "spec": {**object_at(body, "spec"), "future": "@bad@"}})
    cluster.raw["@bad@"] = raw
    told, snapshot, said = answers()
    assert f"ResourceClaim evil/bad {problem} (" in said
    assert "so it is left out" in " ".join(told.split())
    assert "name: bad" not in snapshot
    state = read(server, ClusterScope("team", everything=True))
    assert Kind.CLAIM not in state.whole
    assert [name_of(one) for one in state.claims] == ["mine"]


def test_of_many_claims_that_cannot_be_read_some_are_named(cluster: MadeCluster, server: StubApiServer) -> None:
    cluster.objects += [{**claim(f"bad-{n}", "evil"), "spec": {"future": "@bad@"}} for n in range(70)]
    cluster.raw["@bad@"] = b"oops"
    truncated = read(server, ClusterScope("team")).truncated
    assert len(truncated) == SHOWN + 1
    assert truncated[-1] == f"and {70 - SHOWN} more of the kind ResourceClaim"


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("form", ["list", "item", "yaml"])
def test_in_a_file_what_nests_without_end_is_left_out_with_a_warning(
    levels: int, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = configured(claim("deep", "evil"), "@deep@")
    objects = [*PLAIN, deep, HELD]
    if form == "yaml":
        text, levels = yaml.safe_dump_all(objects), min(levels, 1500)
        path = "spec.devices.config[0].opaque.parameters.a.a"
    else:
        kind = "List" if form == "list" else "Snapshot"
        version = "v1" if form == "list" else "ostler.dev/v1alpha1"
        text = json.dumps({"apiVersion": version, "kind": kind, "items": objects})
        path = "spec.devices.config[0].opaque.parameters.a"
    source = tmp_path / "cluster.yaml"
    source.write_text(text.replace('"@deep@"', "@deep@").replace("'@deep@'", "@deep@").replace("@deep@", flow(levels)))
    assert main(["explain", "pod/train", "-n", "team", "--from", str(source)]) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert "gpu-1" in told
    assert f"ResourceClaim deep {path}" in " ".join(told.split())
    assert "nested deeper than 64 levels; what is deeper is left out" in " ".join(told.split())
    assert main(["snapshot", "-o", str(tmp_path / "s.yaml"), "--from", str(source)]) == 0
    assert "ResourceClaim deep spec.devices.config[0]" in capsys.readouterr().err
    assert "name: deep" in (tmp_path / "s.yaml").read_text()


def test_yaml_that_nests_without_end_is_refused_in_bounded_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "cluster.yaml"
    source.write_text(f"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec: {flow(100_000)}\n")
    assert main(["explain", "pod/train", "--from", str(source)]) == 2
    assert f"{source}:5: nested deeper than 64 levels; no object of the API is that deep" in capsys.readouterr().err


def flow(levels: int) -> str:
    return '{"a": ' * levels + "1" + "}" * levels
