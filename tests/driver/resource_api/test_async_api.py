"""The loop's side: nothing blocks it, everything ends, and errors say what a person can do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator

import pytest

from driver.claims.contracts import ClaimReader
from driver.claims.model import ClaimReadForbidden, Unavailable
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from kube.bodies import JsonObject, text_at
from kube.errors import ConfigurationError, Forbidden, Invalid, KubeError, NotFound, WriteConflict
from sandbox.apiserver.server import ApiServer
from tests.driver.resource_api.test_api import Upgrading
from tests.kube.server import CannedAnswer, StubApiServer, refused
from tests.making.faults import reported
from tests.making.resource_api import claim_named, client_of
from tests.waiting import eventually

CLAIM = "ResourceClaim team/c"


def scripted(words: StubApiServer, answer: CannedAnswer, whole: float = 10.0) -> AsyncResourceApi:
    """Discovery as usual, and ``answer`` for the rest."""
    server = Upgrading(words, "v1")
    words.respond = lambda asked: answer if asked.path.count("/") > 3 else server.answer(asked)
    return AsyncResourceApi(lambda: ResourceApi(client_of(words.url, whole=whole)), threads=4, patience=5)


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[AsyncResourceApi]:
    made = AsyncResourceApi(lambda: ResourceApi(client_of(server.url, connections=8)), threads=8)
    yield made
    made.close()


async def test_a_claim_is_read(server: ApiServer, api: AsyncResourceApi) -> None:
    server.store.create("resourceclaims", claim_named("c"))
    reader: ClaimReader = api
    claim = await reader.claim("team", "c")
    assert claim is not None
    assert text_at(claim, "metadata", "name") == "c"
    assert await reader.claim("team", "none") is None


async def test_a_status_is_written_and_a_conflict_is_the_callers(server: ApiServer, api: AsyncResourceApi) -> None:
    server.store.create("resourceclaims", claim_named("c"))
    claim = await api.claim("team", "c")
    assert claim is not None
    reserved: JsonObject = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    results: JsonObject = {"results": []}
    await api.replace_claim_status({**claim, "status": {**reserved, "allocation": {"devices": results}}})
    with pytest.raises(WriteConflict):
        await api.replace_claim_status({**claim, "status": {}})


@pytest.mark.parametrize(
    ("status", "kind"), [(403, Forbidden), (404, NotFound), (409, WriteConflict), (422, Invalid), (500, Unavailable)]
)
async def test_what_a_refused_status_means_is_the_callers_to_say(
    words: StubApiServer, status: int, kind: type[Exception]
) -> None:
    api = scripted(words, refused(status, "Word", '"c" not found'))
    with pytest.raises(kind):
        await api.replace_claim_status({**claim_named("c"), "status": {}})
    api.close()


async def test_the_api_is_made_once_and_not_before_it_is_needed(server: ApiServer) -> None:
    made: list[int] = []

    def make() -> ResourceApi:
        made.append(threading.get_ident())
        return ResourceApi(client_of(server.url))

    api = AsyncResourceApi(make, threads=4)
    assert made == []
    await asyncio.gather(*(api.claim("team", "c") for _ in range(20)))
    assert len(made) == 1
    assert made[0] != threading.get_ident()
    api.close()


async def test_what_cannot_be_made_now_is_made_later(server: ApiServer) -> None:
    tries: list[int] = []

    def make() -> ResourceApi:
        tries.append(1)
        if len(tries) == 1:
            raise ConfigurationError("/etc/kubeconfig", "", "cannot be read", "give the path of a kubeconfig")
        return ResourceApi(client_of(server.url))

    api = AsyncResourceApi(make)
    with pytest.raises(Unavailable) as caught:
        await api.claim("team", "c")
    assert str(caught.value) == (
        "ResourceClaim team/c: cannot ask the API server: /etc/kubeconfig: cannot be read; "
        "give the path of a kubeconfig"
    )
    await api.claim("team", "c")
    api.close()


PATH = "GET /apis/resource.k8s.io/v1/namespaces/team/resourceclaims/c"
NO_USE = f"{CLAIM}: the API server gives no usable answer ({PATH}: "
NO_RIGHT = 'User "agent" cannot get resource "resourceclaims"'
UNRELATED = "no relationship found between node 'n' and this object"
TEXTS: dict[str, tuple[CannedAnswer, list[str]]] = {
    "right": (
        refused(403, "Forbidden", NO_RIGHT),
        [
            f"{CLAIM}: the API server refuses the agent ({NO_RIGHT}); give the agent's account the verb get on ",
            "resourceclaims of the API group resource.k8s.io by a ClusterRole",
        ],
    ),
    "node identity": (
        refused(403, "Forbidden", UNRELATED),
        [
            f"{CLAIM}: the API server does not know yet that a pod of this node uses it ({UNRELATED}); ",
            "the agent asks again when the kubelet does",
        ],
    ),
    "token": (
        refused(401, "Unauthorized", "Unauthorized"),
        [
            f"{NO_USE}401 Unauthorized: the API server does not accept none (Unauthorized); ",
            "check that it is valid and for this server)",
        ],
    ),
    "fault": (refused(500, "InternalError", "etcd"), [f"{NO_USE}500 InternalError: etcd)"]),
    "broken": (CannedAnswer(hang_up=True), [f"{CLAIM}: URL: the connection broke ("]),
    "hangs": (
        CannedAnswer(wait=True),
        [f"{CLAIM}: URL did not answer completely within 0.3 s; the agent asks again"],
    ),
}


@pytest.mark.parametrize("case", TEXTS)
async def test_errors_say_what_a_person_can_do(words: StubApiServer, case: str) -> None:
    answer, parts = TEXTS[case]
    api = scripted(words, answer, whole=0.3)
    with pytest.raises(Unavailable) as caught:
        await api.claim("team", "c")
    assert str(caught.value).replace(words.url, "URL").startswith("".join(parts))
    assert isinstance(caught.value.__cause__, KubeError)
    assert isinstance(caught.value, ClaimReadForbidden) == isinstance(caught.value.__cause__, Forbidden)
    api.close()


async def test_a_server_that_is_not_there_is_named() -> None:
    with StubApiServer() as gone:
        url = gone.url
    api = AsyncResourceApi(lambda: ResourceApi(client_of(url)))
    with pytest.raises(Unavailable) as caught:
        await api.claim("team", "c")
    assert str(caught.value) == (
        f"{CLAIM}: {url} cannot be reached (Connection refused); the agent asks again when the kubelet does"
    )
    api.close()


async def test_a_cluster_without_dra_is_told() -> None:
    with ApiServer(versions=()) as server:
        api = AsyncResourceApi(lambda: ResourceApi(client_of(server.url)))
        with pytest.raises(Unavailable, match=rf"{CLAIM}: {server.url} does not serve .* \(DRA\) is on since"):
            await api.claim("team", "c")
        api.close()


async def test_a_call_does_not_last_longer_than_its_patience(words: StubApiServer) -> None:
    server = Upgrading(words, "v1")
    words.respond = lambda asked: CannedAnswer(wait=True) if "resourceclaims" in asked.path else server.answer(asked)
    api = AsyncResourceApi(lambda: ResourceApi(client_of(words.url)), patience=0.3)
    with pytest.raises(Unavailable) as caught:
        await api.claim("team", "c")
    assert str(caught.value) == (
        "the API server has not answered within 0.3 s; check its load and the network; the agent asks again later"
    )
    api.close()


async def test_a_bug_in_a_call_that_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()

    def ask(_: ResourceApi) -> None:
        assert gate.wait(60)
        raise TypeError("a bug")

    with ApiServer() as server:
        api = AsyncResourceApi(lambda: ResourceApi(client_of(server.url)), patience=0.01)
        with pytest.raises(Unavailable):
            await api.call(ask)
        gate.set()
        await eventually(lambda: reported(caplog))
        api.close()
    assert reported(caplog) == [("a question to the API server that nobody waits for", "TypeError: a bug")]


async def test_claims_do_not_wait_for_each_other(words: StubApiServer) -> None:
    together = threading.Barrier(16)
    server = Upgrading(words, "v1")

    def respond(asked: object) -> CannedAnswer:
        if "resourceclaims/" in asked.path:  # type: ignore[attr-defined]
            together.wait(60)
        return server.answer(asked)  # type: ignore[arg-type]

    words.respond = respond
    api = AsyncResourceApi(lambda: ResourceApi(client_of(words.url, connections=16)), threads=16)
    await asyncio.gather(*(api.claim("team", "c") for _ in range(64)))
    ports = {asked.port for asked in words.asked if "resourceclaims/" in asked.path}
    assert len(ports) <= 16
    api.close()


@pytest.mark.parametrize("waiting", [1, 10])
async def test_close_ends_what_is_under_way_at_once(words: StubApiServer, waiting: int) -> None:
    api = scripted(words, CannedAnswer(wait=True))
    asked = [asyncio.create_task(api.claim("team", "c")) for _ in range(waiting)]
    await eventually(lambda: sum("resourceclaims/" in one.path for one in words.asked) >= min(waiting, 4))
    began = time.monotonic()
    api.close()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert time.monotonic() - began < 15  # Without it the calls wait for 20 s.
    assert all(isinstance(answer, Unavailable) for answer in answers)
    assert all("this agent is stopping" in str(answer) for answer in answers)
    with pytest.raises(Unavailable, match="this agent is stopping"):
        await api.claim("team", "c")
    api.close()


async def test_a_caller_that_is_cancelled_is_let_go_at_once(words: StubApiServer) -> None:
    api = scripted(words, CannedAnswer(wait=True))
    asked = asyncio.create_task(api.claim("team", "c"))
    await eventually(lambda: any("resourceclaims/" in one.path for one in words.asked))
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    api.close()


async def test_an_api_that_is_made_while_everything_ends_is_closed(server: ApiServer) -> None:
    begun, go = threading.Event(), threading.Event()
    made: list[ResourceApi] = []

    def make() -> ResourceApi:
        begun.set()
        assert go.wait(60)
        made.append(ResourceApi(client_of(server.url)))
        return made[0]

    api = AsyncResourceApi(make)
    asked = asyncio.create_task(api.claim("team", "c"))
    await eventually(begun.is_set)
    api.close()
    go.set()
    with pytest.raises(Unavailable, match="this agent is stopping"):
        await asked


def loaded_by(code: str) -> set[str]:
    report = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_client_library_is_not_loaded_before_the_first_call() -> None:
    modules = loaded_by("import driver.resource_api.async_client")
    assert not modules & {
        "kubernetes",
        "urllib3",
        "kube.client",
        "kube.library",
        "driver.resource_api.client",
        "scheduling.api.versions",
    }
