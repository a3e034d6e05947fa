"""Access from inside a pod: what is read, and the one clear error of everything that can be wrong."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from kube.access import in_cluster, runs_in_cluster
from kube.errors import ConfigurationError
from kube.files import MemoryFile

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_pod_reads_server_token_and_ca(account: Path) -> None:
    access = in_cluster(POD, account)
    assert access.server == "https://10.96.0.1:443"
    assert access.ca == str(account / "ca.crt")
    assert access.verify
    assert access.origin == f"service account in {account}"
    assert access.credentials.current().authorization == "Bearer first-token"
    assert access.credentials.origin == f"the token in {account}/token"


def test_an_ipv6_service_gets_brackets(account: Path) -> None:
    assert in_cluster({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, account).server == "https://[fd00::1]:443"


def test_a_pod_is_known_by_its_environment_and_its_token(account: Path, tmp_path: Path) -> None:
    assert runs_in_cluster(POD, account)
    assert not runs_in_cluster({}, account)
    assert not runs_in_cluster(POD, tmp_path / "no-account")


@pytest.mark.parametrize("name", sorted(POD))
def test_outside_of_a_pod_the_missing_variable_is_named(account: Path, name: str) -> None:
    environment = {key: text for key, text in POD.items() if key != name}
    with pytest.raises(ConfigurationError) as caught:
        in_cluster(environment, account)
    assert str(caught.value) == f"environment: {name}: is not set; run in a pod, or give a kubeconfig"


def test_a_port_that_is_none_is_named(account: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        in_cluster({**POD, "KUBERNETES_SERVICE_PORT": "tcp://10.96.0.1:443"}, account)
    assert str(caught.value) == (
        "environment: KUBERNETES_SERVICE_PORT: is 'tcp://10.96.0.1:443', which is not a port; "
        "give a number from 1 to 65535"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "token: {folder}/token cannot be read (No such file or directory); give a file with a token"),
        (b" \n", "token: {folder}/token is empty; give a token"),
        (b"two words", "token: {folder}/token contains no token; a token is one word without line breaks"),
        (b"a\nb", "token: {folder}/token contains no token; a token is one word without line breaks"),
        (b"\xff\xfe", "token: {folder}/token contains no token; a token is ASCII text"),
    ],
)
def test_a_bad_token_is_named_and_not_shown(account: Path, content: bytes | None, words: str) -> None:
    (account / "token").unlink()
    if content is not None:
        (account / "token").write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        in_cluster(POD, account)
    assert str(caught.value) == f"{account}: {words.format(folder=account)}"


def test_a_missing_ca_is_named(account: Path) -> None:
    (account / "ca.crt").unlink()
    with pytest.raises(ConfigurationError) as caught:
        in_cluster(POD, account)
    assert str(caught.value) == (
        f"{account}: ca.crt: {account}/ca.crt cannot be read (No such file or directory); "
        "give a PEM file with the cluster's CA certificate"
    )


@pytest.mark.parametrize("content", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_ca_that_is_none_is_named(account: Path, content: str) -> None:
    (account / "ca.crt").write_text(content)
    with pytest.raises(
        ConfigurationError, match=r"ca\.crt: contains no certificate in PEM form \(.+\); give a PEM file"
    ):
        in_cluster(POD, account)


def test_an_error_has_its_parts_as_fields(account: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        in_cluster({}, account)
    error = caught.value
    assert (error.path, error.field, error.problem) == ("environment", "KUBERNETES_SERVICE_HOST", "is not set")


def test_a_memory_file_can_be_opened_often_and_is_gone_with_its_object() -> None:
    file = MemoryFile(b"secret")
    path = Path(file.path)
    assert path.read_bytes() == path.read_bytes() == b"secret"
    del file
    gc.collect()
    assert not path.exists()
