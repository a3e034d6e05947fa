"""Kubeconfig files: every way to say who we are, used against a real server, and every error by its text."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from kube.access import ExecPlugin
from kube.errors import ConfigurationError, Unauthorized
from kube.kubeconfig import from_kubeconfig
from tests.kube.authority import Authority
from tests.kube.server import StubApiServer, refused
from tests.making.kubeconfigs import SERVER, ask, base64_of, calls, document, plugin, written


def test_files_and_tokens_are_relative_to_the_kubeconfig(
    secure: StubApiServer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_bytes(authority.certificate.read_bytes())
    (tmp_path / "token").write_text("from-a-file\n")
    content = document({"tokenFile": "token", "token": "older"}, server=secure.url)
    content["clusters"][0]["cluster"]["certificate-authority"] = "ca.pem"
    written(tmp_path, content)
    monkeypatch.chdir(tmp_path)
    access = from_kubeconfig(Path("kubeconfig"))
    ask(access)
    (tmp_path / "token").write_text("rotated")
    ask(access)
    assert [asked.headers["Authorization"] for asked in secure.asked] == ["Bearer from-a-file", "Bearer rotated"]
    assert access.origin == "kubeconfig (context here)"


def test_inline_data_reaches_no_disk(secure: StubApiServer, authority: Authority, tmp_path: Path) -> None:
    pair = authority.client("system:node:a")
    user = {"client-certificate-data": base64_of(pair.certificate), "client-key-data": base64_of(pair.key)}
    ca = {"certificate-authority-data": base64_of(authority.certificate)}
    access = from_kubeconfig(written(tmp_path, document(user, server=secure.url, **ca)))
    ask(access)
    assert "system:node:a" in secure.asked[0].certificate
    assert "Authorization" not in secure.asked[0].headers
    assert access.ca is not None
    assert Path(access.ca).readlink().name.startswith("memfd:")


def test_a_kubelets_kubeconfig_has_one_file_for_certificate_and_key(
    secure: StubApiServer, authority: Authority, tmp_path: Path
) -> None:
    pair = authority.client("kubelet")
    both = tmp_path / "kubelet-client-current.pem"
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    user = {"client-certificate": str(both), "client-key": str(both)}
    ca = {"certificate-authority-data": base64_of(authority.certificate)}
    ask(from_kubeconfig(written(tmp_path, document(user, server=secure.url, **ca))))
    assert "kubelet" in secure.asked[0].certificate


def test_name_and_password(server: StubApiServer, tmp_path: Path) -> None:
    user = {"username": "me", "password": "secret"}
    ask(from_kubeconfig(written(tmp_path, document(user, server=server.url))))
    assert server.asked[0].headers["Authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()


def test_nobody_in_particular(server: StubApiServer, tmp_path: Path) -> None:
    ask(from_kubeconfig(written(tmp_path, document(server=f"{server.url}/prefix/"))))
    assert "Authorization" not in server.asked[0].headers
    assert server.asked[0].path == "/prefix/x"


def test_verification_can_be_switched_off(
    secure: StubApiServer, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    content = document({"token": "word"}, server=secure.url, **{"insecure-skip-tls-verify": True})
    with pytest.warns(match="Unverified HTTPS request"):
        ask(from_kubeconfig(written(tmp_path, content)))
    assert len(secure.asked) == 1


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    content = document({"token": "word"})
    content["contexts"].append({"name": "there", "context": {"cluster": "other"}})
    content["clusters"].append({"name": "other", "cluster": {"server": "https://there:1", "tls-server-name": "api"}})
    access = from_kubeconfig(written(tmp_path, content), context="there")
    assert (access.server, access.server_name) == ("https://there:1", "api")
    assert access.credentials.current().authorization == ""


def test_the_first_of_a_name_counts(tmp_path: Path) -> None:
    content = document()
    content["clusters"].append({"name": "main", "cluster": {"server": "https://10.9.9.9:1"}})
    assert from_kubeconfig(written(tmp_path, content)).server == SERVER


def test_a_plugin_is_asked_again_a_minute_before_its_answer_ends(tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "one", "expirationTimestamp": "1970-01-01T00:10:00Z"})
    now = [539.0]
    asked = ExecPlugin(user["exec"], {}, str(tmp_path / "kubeconfig"), "exec", clock=lambda: now[0])
    for at, times in ((0.0, 1), (539.0, 1), (541.0, 2), (100.0, 2)):
        now[0] = at
        assert asked.current().authorization == "Bearer one"
        assert calls(tmp_path) == times


def test_json_is_read(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(json.dumps(document({"token": "word"})))
    assert from_kubeconfig(tmp_path / "kubeconfig").credentials.current().authorization == "Bearer word"


def test_a_plugins_token_is_used_until_it_ends(server: StubApiServer, tmp_path: Path) -> None:
    user = plugin(tmp_path, {"token": "one", "expirationTimestamp": "2999-01-01T00:00:00Z"})
    access = from_kubeconfig(written(tmp_path, document(user, server=server.url)))
    ask(access)
    ask(access)
    assert calls(tmp_path) == 1
    plugin(tmp_path, {"token": "two", "expirationTimestamp": "2001-01-01T00:00:00Z"})
    server.answers.append(refused(401, "Unauthorized", "revoked"))
    ask(access)
    assert [asked.headers["Authorization"] for asked in server.asked[2:]] == ["Bearer one", "Bearer two"]
    ask(access)
    assert calls(tmp_path) == 3


def test_a_plugins_certificate_is_shown(secure: StubApiServer, authority: Authority, tmp_path: Path) -> None:
    pair = authority.client("by-plugin")
    status = {"clientCertificateData": pair.certificate.read_text(), "clientKeyData": pair.key.read_text()}
    ca = {"certificate-authority-data": base64_of(authority.certificate)}
    ask(from_kubeconfig(written(tmp_path, document(plugin(tmp_path, status), server=secure.url, **ca))))
    assert "by-plugin" in secure.asked[0].certificate


@pytest.mark.parametrize(
    ("status", "script", "words"),
    [
        ({"token": "x"}, "sys.stderr.write('log in first'); sys.exit(3)", "process returned 3. log in first"),
        ({}, "", "its answer has neither token nor clientCertificateData with clientKeyData"),
        ("text", "", "its answer has no status object"),
        ({"token": "x"}, "print('hello')", "failed to decode process output"),
        (
            {"token": "x", "expirationTimestamp": "soon"},
            "",
            "its answer's expirationTimestamp 'soon' is not a timestamp",
        ),
    ],
)
def test_a_plugin_that_fails_is_named(
    server: StubApiServer, tmp_path: Path, status: object, script: str, words: str
) -> None:
    access = from_kubeconfig(written(tmp_path, document(plugin(tmp_path, status, script), server=server.url)))
    with pytest.raises(ConfigurationError) as caught:
        ask(access)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/kubeconfig: users[agent].user.exec: the plugin failed: ")
    assert words in text
    assert text.endswith(f"; run {tmp_path}/plugin by hand, as the agent's user")
    assert server.asked == []


def test_a_refused_token_is_named_by_its_file(server: StubApiServer, tmp_path: Path) -> None:
    path = written(tmp_path, document({"token": "word"}, server=server.url))
    server.respond = lambda _: refused(401, "Unauthorized", "Unauthorized")
    with pytest.raises(Unauthorized, match=f"does not accept the token in {path} "):
        ask(from_kubeconfig(path))


@pytest.mark.timeout(10)
def test_a_kubeconfig_that_is_a_fifo_or_a_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ConfigurationError, match=r"cannot be read \(not a regular file\); give the path of"):
            from_kubeconfig(path)


@pytest.mark.timeout(10)
def test_a_sparse_kubeconfig_of_3_gb_is_refused_by_its_size(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(ConfigurationError, match="has more than 1048576 bytes"):
        from_kubeconfig(tmp_path / "sparse")


def test_a_kubeconfig_may_come_from_a_pipe_that_the_shell_made(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"- no mapping\n")
    os.close(writer)
    with pytest.raises(ConfigurationError, match="is not a mapping"):
        from_kubeconfig(Path(f"/dev/fd/{reader}"))
    os.close(reader)
