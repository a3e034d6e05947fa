"""Users' objects, however large, deep and many, cost the agent a bounded memory, and nobody else an answer."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from driver.claims.model import Unavailable
from driver.node_watch.node_claims import ClaimNames, NamedDevice
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from kube.bodies import Json, JsonObject
from kube.collection import INITIAL_END
from tests.kube.server import Asked, CannedAnswer, StubApiServer, refused
from tests.kube.watched import fed, query_of
from tests.making.resource_api import client_of
from tests.making.watched_node import DRIVER, NODE, TEAM

REPOSITORY = Path(__file__).resolve().parents[3]
ROOT = "/apis/resource.k8s.io"
PODS, CLAIMS = "/api/v1/pods", f"{ROOT}/v1/resourceclaims"
MEBI = 1 << 20
MOST_KIB = 120 * 1024
_END: JsonObject = {
    "type": "BOOKMARK",
    "object": {"metadata": {"resourceVersion": "10", "annotations": {INITIAL_END: "true"}}},
}


class _Cluster:
    """Pods and claims as JSON texts, served in pages, and pods also at the begin of a watch if it ``streams`` lists."""

    def __init__(self) -> None:
        self.streams = False
        self.lists: dict[str, list[bytes]] = {PODS: [], CLAIMS: []}
        self.changes: list[bytes] = []

    def answer(self, asked: Asked) -> CannedAnswer:
        path = urlsplit(asked.path).path
        if path == ROOT:
            return CannedAnswer.of({"versions": [{"version": "v1"}]})
        if path == f"{ROOT}/v1":
            return CannedAnswer.of({"resources": [{"name": "resourceslices"}, {"name": "resourceclaims"}]})
        if path not in self.lists:
            return refused(404, "NotFound", f'"{path.rpartition("/")[2]}" not found')
        query = query_of(asked)
        if "sendInitialEvents" in query:
            if not self.streams:
                return refused(422, "Invalid", "sendInitialEvents is forbidden unless the WatchList feature gate is on")
            return fed(*(b'{"type":"ADDED","object":%b}\n' % item for item in self.lists[path]), _END)
        if "watch" in query:
            changes, self.changes = self.changes, []
            return fed(*changes) if changes else CannedAnswer(wait=True)
        items = self.lists[path]
        begin, limit = int(query.get("continue", "0")), int(query.get("limit", "0")) or len(items)
        metadata = {"resourceVersion": "10"}
        if begin + limit < len(items):
            metadata["continue"] = str(begin + limit)
        page = b",".join(items[begin : begin + limit])
        return CannedAnswer(body=b'{"metadata":%b,"items":[%b]}' % (json.dumps(metadata).encode(), page))


@pytest.fixture
def cluster() -> _Cluster:
    return _Cluster()


@pytest.fixture
def server(cluster: _Cluster) -> Iterator[StubApiServer]:
    with StubApiServer() as made:
        made.respond = cluster.answer
        yield made


def pod(number: int, size: int = 0, claims: int = 1, phase: str = "Pending") -> bytes:
    """A pod that its author bound to the node, with variables that nobody needs, and names as long as they may be."""
    named = [{"name": f"c{n}", "resourceClaimName": f"{number}-{n}-".ljust(253, "x")} for n in range(claims)]
    variables = [{"name": f"V{n}", "value": "v" * 990} for n in range(size // 1024)]
    body = {
        "metadata": {"namespace": TEAM, "name": f"pod-{number}", "uid": f"uid-{number}", "resourceVersion": "1"},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "env": variables}], "resourceClaims": named},
        "status": {"phase": phase},
    }
    return json.dumps(body).encode()


def claim(number: int, parameters: bytes = b"{}", device: str = "", driver: str = DRIVER) -> bytes:
    """A claim with parameters of a driver, also in its allocation, if it has a device."""
    config: list[Json] = [{"opaque": {"driver": driver, "parameters": "@parameters@"}}]
    results: list[Json] = [{"request": "gpu", "driver": driver, "pool": NODE, "device": device}]
    status: JsonObject = {"allocation": {"devices": {"results": results, "config": config}}} if device else {}
    body: JsonObject = {
        "metadata": {"namespace": TEAM, "name": f"claim-{number}", "uid": f"uid-{number}"},
        "spec": {"devices": {"config": config}},
        "status": status,
    }
    return json.dumps(body).encode().replace(b'"@parameters@"', parameters)


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


async def followed(url: str, count: int) -> dict[str, object]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.driver.node_watch.follower", url, str(count)),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, object] = json.loads(out)
    return found


@pytest.mark.parametrize("streams", [False, True])
async def test_large_pods_and_claims_are_listed_in_bounded_memory(
    streams: bool, cluster: _Cluster, server: StubApiServer
) -> None:
    cluster.streams = streams
    large = b'{"a":"%b"}' % (b"x" * MEBI)
    cluster.lists[PODS] = [pod(number, 1200 * 1024) for number in range(65)]
    cluster.lists[CLAIMS] = [claim(number, large) for number in range(70)] + [claim(70, large, "gpu-0")]
    found = await followed(server.url, 65)
    assert (found["known"], found["names"]) == (65, [f"{TEAM}/claim-70"])
    assert int(str(found["most_kib"])) < MOST_KIB
    assert float(str(found["stall"])) < 0.05


async def test_pods_that_nobody_but_their_author_bound_here_cost_bounded_memory_and_no_stall(
    cluster: _Cluster, server: StubApiServer
) -> None:
    cluster.streams = True
    refused_by_kubelet = [pod(number, 0, 128, "Failed") for number in range(250)]
    cluster.lists[PODS] = refused_by_kubelet + [pod(number, 0, 128) for number in range(250, 1000)]
    found = await followed(server.url, 1000)
    assert found["known"] == 1000
    assert int(str(found["most_kib"])) < MOST_KIB
    assert float(str(found["stall"])) < 0.05


@pytest.mark.parametrize("levels", [1500, 100_000])
@pytest.mark.parametrize("driver", [DRIVER, "other.example"])
async def test_a_device_moves_past_claims_that_nest_without_end(
    levels: int, driver: str, cluster: _Cluster, server: StubApiServer
) -> None:
    cluster.lists[CLAIMS] = [claim(0, nested(levels), driver=driver), claim(1, nested(levels), "gpu-1", driver)]
    api = AsyncResourceApi(lambda: ResourceApi(client_of(server.url, whole=120.0)), patience=120.0)
    names = ClaimNames(api, DRIVER, NODE)
    assert await names.claims_naming(["gpu-0"]) == ()
    # The claim that has a device of ours keeps it, whatever else stands in it.
    found: tuple[NamedDevice, ...] = await names.claims_naming(["gpu-1"])
    assert [str(each.claim) for each in found] == ([f"{TEAM}/claim-1"] if driver == DRIVER else [])
    api.close()


@pytest.mark.parametrize(
    ("results", "problem"),
    [
        (b"oops", "is not a JSON object"),
        (b'[{"driver":"%b"}]' % (b"x" * (9 * MEBI)), "has more than 8388608 bytes in fields that are used"),
    ],
)
async def test_a_claim_whose_allocation_cannot_be_read_may_have_any_device(
    results: bytes, problem: str, cluster: _Cluster, server: StubApiServer
) -> None:
    odd = b'{"metadata":{"namespace":"n","name":"odd"},"status":{"allocation":{"devices":{"results":%b}}}}' % results
    cluster.lists[CLAIMS] = [claim(0), odd, claim(2)]
    api = AsyncResourceApi(lambda: ResourceApi(client_of(server.url, whole=120.0)), patience=120.0)
    with pytest.raises(Unavailable) as caught:
        await ClaimNames(api, DRIVER, NODE).claims_naming(["gpu-0"])
    assert str(caught.value) == (
        f"claims that cannot be read may have any device: claim n/odd {problem} ({len(odd)} bytes in all); "
        "delete them, or find out who writes them"
    )
    api.close()


async def test_what_else_stands_in_a_claim_that_is_no_json_is_not_looked_at(
    cluster: _Cluster, server: StubApiServer
) -> None:
    cluster.lists[CLAIMS] = [claim(0, b"{oops}"), claim(1, b"[1 2 {}]", "gpu-0")]
    api = AsyncResourceApi(lambda: ResourceApi(client_of(server.url, whole=120.0)), patience=120.0)
    found = await ClaimNames(api, DRIVER, NODE).claims_naming(["gpu-0"])
    assert [each.device for each in found] == ["gpu-0"]
    api.close()
