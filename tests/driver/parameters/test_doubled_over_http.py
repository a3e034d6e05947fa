from __future__ import annotations

import pytest

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.decoding import decode, pairs
from driver.parameters.errors import ParameterError
from kube.access import Access, Credential, FixedCredentials
from kube.bodies import object_at
from kube.client import Client
from tests.kube.server import CannedAnswer, StubApiServer


def test_a_key_that_is_doubled_at_the_api_server_is_seen() -> None:
    body = b'{"spec": {"parameters": {"apiVersion": "ostler.dev/v1alpha1", "kind": "NicConfig", "rdma": 1, "rdma": 2}}}'
    with StubApiServer() as server:
        server.respond = lambda _: CannedAnswer(body=body)
        client = Client(
            Access(server.url, "a test", FixedCredentials("none", Credential("Bearer word"))),
            random=lambda: 0.5,
            pairs=pairs,
        )
        found = object_at(client.get("/claim"), "spec", "parameters")
        client.close()
    with pytest.raises(ParameterError, match=r"^place\.rdma: the key occurs twice; write it once$"):
        decode(AllocatedConfig(ConfigSource.CLAIM, (), found, "place"))
