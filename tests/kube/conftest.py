"""A CA, made once, and servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.access import Access, Credential, FixedCredentials
from kube.client import Client, RequestLimits
from tests.kube.authority import Authority, KeyPair
from tests.kube.server import AT_ONCE, StubApiServer
from tests.making.event_posters import RecordingClient
from tests.making.ports import held_port


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def pair(authority: Authority) -> KeyPair:
    return authority.server()


@pytest.fixture
def server() -> Iterator[StubApiServer]:
    with StubApiServer() as made:
        yield made


@pytest.fixture
def secure(authority: Authority, pair: KeyPair) -> Iterator[StubApiServer]:
    with StubApiServer(pair, clients=authority.certificate) as made:
        yield made


@pytest.fixture
def account(tmp_path: Path, authority: Authority) -> Path:
    """A pod's service account folder."""
    folder = tmp_path / "account"
    folder.mkdir()
    (folder / "token").write_text("first-token\n")
    (folder / "ca.crt").write_bytes(authority.certificate.read_bytes())
    return folder


def client_of(server: StubApiServer, limits: RequestLimits | None = None) -> Client:
    access = Access(server.url, "a test", FixedCredentials("the test's token", Credential("Bearer word")))
    return client(access, limits)


def client(access: Access, limits: RequestLimits | None = None) -> Client:
    """A client with this access, which tries again at once."""
    return Client(access, random=lambda: 0.5, limits=limits or RequestLimits(), policy=AT_ONCE)


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port at which nobody listens but a server of the test itself."""
    with held_port() as port:
        yield port


@pytest.fixture
def recorder() -> Iterator[RecordingClient]:
    made = RecordingClient()
    yield made
    assert made.faults == [], "every fault was met"
