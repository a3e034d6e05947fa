"""The project's own client against the stand-in: both speak the same protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.client import Client
from kube.errors import RequestError
from kube.kubeconfig import from_kubeconfig
from sandbox.apiserver.server import ApiServer
from tests.sandbox.apiserver.web import SLICES, slice_of


def test_client_finds_the_server_by_its_kubeconfig(server: ApiServer, tmp_path: Path) -> None:
    client = Client(from_kubeconfig(server.kubeconfig(tmp_path / "config")), random=lambda: 0.0)
    try:
        made = client.create(SLICES, slice_of())
        assert client.get(f"{SLICES}/s") == made
        with pytest.raises(RequestError) as caught:
            client.get(f"{SLICES}/t")
    finally:
        client.close()
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    assert "not found" in caught.value.message


def test_client_waits_as_long_as_it_is_asked(server: ApiServer, tmp_path: Path) -> None:
    server.faults.add("get", "status", 429, retry_after=0)
    server.store.create("resourceslices", slice_of())
    client = Client(from_kubeconfig(server.kubeconfig(tmp_path / "config")), random=lambda: 0.0)
    try:
        assert client.get(f"{SLICES}/s")
    finally:
        client.close()
    assert [asked.code for asked in server.requests] == [429, 200]
