"""An API server that refuses, is overloaded, hangs or breaks off: it costs the claim the call, and nobody a device."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from driver.claims.model import ClaimError, Unavailable
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from tests.driver.resource_api.test_api import Upgrading
from tests.kube.server import Asked, CannedAnswer, StubApiServer, refused
from tests.making.claim_service import GPU0, GPU1, ClaimNode, claim, reference, result
from tests.making.resource_api import client_of

WHOLE = 0.3
"""Seconds that a question may take."""
BODY = json.dumps(claim(1, result(GPU0))).encode()


def _half(send: Callable[[bytes], None]) -> bool:
    send(BODY[:40])
    return False


FAULTS = {
    "401": refused(401, "Unauthorized", "expired"),
    "403": refused(403, "Forbidden", "no right"),
    "409": refused(409, "Conflict", "it was changed"),
    "410": refused(410, "Expired", "too old"),
    "422": refused(422, "Invalid", "no"),
    "429": refused(429, "TooManyRequests", "slowly", Retry_After="0"),
    "500": refused(500, "InternalError", "etcd"),
    "503": refused(503, "ServiceUnavailable", "soon"),
    "hangs": CannedAnswer(wait=True),
    "drips": CannedAnswer(body=BODY, drip=True),
    "hangs up": CannedAnswer(hang_up=True),
    "breaks off": CannedAnswer(feed=_half),
    "is a proxy": CannedAnswer(200, b"<html>sign in</html>"),
    "is not an object": CannedAnswer(200, b"[]"),
    "redirects": CannedAnswer(302, headers={"Location": "http://127.0.0.1:1/"}),
}


class _Claims:
    """Serves the claims of a node; of the first one ``fault``, while there is one."""

    def __init__(self, node: ClaimNode, server: StubApiServer) -> None:
        self.fault: CannedAnswer | None = None
        self._node = node
        self._discovery = Upgrading(server, "v1")
        server.respond = self._answer

    def _answer(self, asked: Asked) -> CannedAnswer:
        name = asked.path.rsplit("/", 1)[-1]
        if not name.startswith("claim-"):
            return self._discovery.answer(asked)
        if self.fault is not None and name == reference().name:
            return self.fault
        body = self._node.reader.claims.get(("default", name))
        return (
            CannedAnswer.of(body)
            if body is not None
            else refused(404, "NotFound", f'resourceclaims "{name}" not found')
        )


@pytest.fixture
def server() -> Iterator[StubApiServer]:
    with StubApiServer() as running:
        yield running


@pytest.fixture
def claims(node: ClaimNode, server: StubApiServer) -> _Claims:
    return _Claims(node, server)


@pytest.fixture
async def api(server: StubApiServer) -> AsyncIterator[AsyncResourceApi]:
    made = AsyncResourceApi(lambda: ResourceApi(client_of(server.url, whole=WHOLE, connections=4)), threads=4)
    yield made
    made.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_costs_one_claim_one_call(
    node: ClaimNode, claims: _Claims, api: AsyncResourceApi, fault: str
) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1)))
    service = await node.started(reader=api)
    claims.fault = FAULTS[fault]
    one, two = await asyncio.gather(*(service.prepare(reference(n)) for n in (1, 2)), return_exceptions=True)
    assert isinstance(one, Unavailable), one
    assert "ResourceClaim default/claim-1: " in str(one)
    assert isinstance(two, tuple), two
    assert {hold.owner for hold in service.ledger.all} == {"uid-2"}
    assert not node.record_path(1).exists()
    claims.fault = None
    assert len(await service.prepare(reference())) == 1
    await service.close()


@pytest.mark.parametrize("fault", FAULTS)
async def test_during_a_fault_what_is_prepared_is_answered_kept_and_released(
    node: ClaimNode, claims: _Claims, api: AsyncResourceApi, fault: str
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(reader=api)
    first = await service.prepare(reference())
    claims.fault = FAULTS[fault]
    node.kubelet_knows()
    assert await service.prepare(reference()) == first
    assert await service.collect() == 0, "no answer proves nothing"
    await service.unprepare(reference())
    assert service.ledger.all == ()
    await service.close()


async def test_a_claim_that_is_gone_is_told_from_a_server_without_an_answer(
    node: ClaimNode, claims: _Claims, api: AsyncResourceApi
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(reader=api)
    await service.prepare(reference())
    node.reader.drop(1)
    with pytest.raises(ClaimError, match=r"claim default/claim-1 does not exist"):
        await service.prepare(reference())
    node.kubelet_knows()
    assert await service.collect() == 1
    await service.close()
