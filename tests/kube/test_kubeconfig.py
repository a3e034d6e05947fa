"""Kubeconfig files: every way to say who we are, used against a real server, and every error by its text."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.access import Access, ExecPlugin
from kube.client import Client, RequestLimits
from kube.errors import ConfigurationError, Unauthorized
from kube.kubeconfig import from_kubeconfig
from tests.kube.authority import Authority
from tests.kube.conftest import AT_ONCE
from tests.kube.server import ApiServer, refused

SERVER = "https://10.0.0.1:6443"


def document(user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "main", "user": "agent"}}],
        "clusters": [{"name": "main", "cluster": {"server": SERVER, **cluster}}],
        "users": [{"name": "agent", "user": user or {}}],
    }


def written(folder: Path, content: object) -> Path:
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return path


def base64_of(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def ask(access: Access) -> None:
    Client(access, random=lambda: 0.5, policy=AT_ONCE, limits=RequestLimits(attempts=2)).get("/x")


def plugin(folder: Path, status: object, script: str = "") -> dict[str, Any]:
    """A credential plugin that counts its calls and answers ``status``."""
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    path = folder / "plugin"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        f"open({str(folder / 'calls')!r}, 'a').write('x')\n{script}\nprint({json.dumps(answer)!r})\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    # An empty list and no list are both written by others.
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "args": None, "env": None}}


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text())


def test_files_and_tokens_are_relative_to_the_kubeconfig(
    secure: ApiServer, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_inline_data_reaches_no_disk(secure: ApiServer, authority: Authority, tmp_path: Path) -> None:
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
    secure: ApiServer, authority: Authority, tmp_path: Path
) -> None:
    pair = authority.client("kubelet")
    both = tmp_path / "kubelet-client-current.pem"
    both.write_bytes(pair.certificate.read_bytes() + pair.key.read_bytes())
    user = {"client-certificate": str(both), "client-key": str(both)}
    ca = {"certificate-authority-data": base64_of(authority.certificate)}
    ask(from_kubeconfig(written(tmp_path, document(user, server=secure.url, **ca))))
    assert "kubelet" in secure.asked[0].certificate


def test_name_and_password(server: ApiServer, tmp_path: Path) -> None:
    user = {"username": "me", "password": "secret"}
    ask(from_kubeconfig(written(tmp_path, document(user, server=server.url))))
    assert server.asked[0].headers["Authorization"] == "Basic " + base64.b64encode(b"me:secret").decode()


def test_nobody_in_particular(server: ApiServer, tmp_path: Path) -> None:
    ask(from_kubeconfig(written(tmp_path, document(server=f"{server.url}/prefix/"))))
    assert "Authorization" not in server.asked[0].headers
    assert server.asked[0].path == "/prefix/x"


def test_verification_can_be_switched_off(secure: ApiServer, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
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


def test_a_plugins_token_is_used_until_it_ends(server: ApiServer, tmp_path: Path) -> None:
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


def test_a_plugins_certificate_is_shown(secure: ApiServer, authority: Authority, tmp_path: Path) -> None:
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
    server: ApiServer, tmp_path: Path, status: object, script: str, words: str
) -> None:
    access = from_kubeconfig(written(tmp_path, document(plugin(tmp_path, status, script), server=server.url)))
    with pytest.raises(ConfigurationError) as caught:
        ask(access)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/kubeconfig: users[agent].user.exec: the plugin failed: ")
    assert words in text
    assert text.endswith(f"; run {tmp_path}/plugin by hand, as the agent's user")
    assert server.asked == []


def test_a_refused_token_is_named_by_its_file(server: ApiServer, tmp_path: Path) -> None:
    path = written(tmp_path, document({"token": "word"}, server=server.url))
    server.respond = lambda _: refused(401, "Unauthorized", "Unauthorized")
    with pytest.raises(Unauthorized, match=f"does not accept the token in {path} "):
        ask(from_kubeconfig(path))


FAULTS: list[tuple[str, Any, str]] = [
    ("list", [], "is not a mapping; write keys and values"),
    (
        "no-context",
        {**document(), "current-context": ""},
        "current-context: is missing; give one of: here",
    ),
    (
        "unknown-context",
        {**document(), "current-context": "there"},
        "current-context: names 'there', which is not in the file; give one of: here",
    ),
    ("nothing", {"current-context": "a"}, "current-context: names 'a', which is not in the file; add it to the file"),
    ("contexts-text", {**document(), "contexts": "here"}, "contexts: is not a list; write a list of name and context"),
    ("no-name", {**document(), "contexts": [{}]}, "contexts[0]: has no name; write name and context"),
    (
        "no-cluster",
        {**document(), "contexts": [{"name": "here", "context": {}}]},
        "contexts[here].context.cluster: is missing; give one of: main",
    ),
    (
        "unknown-user",
        {**document(), "users": []},
        "contexts[here].context.user: names 'agent', which is not in the file; add it to the file",
    ),
    (
        "no-server",
        {**document(), "clusters": [{"name": "main", "cluster": {}}]},
        "clusters[main].cluster.server: is missing; give a URL, such as https://10.0.0.1:6443",
    ),
    (
        "bad-server",
        document(server="10.0.0.1:6443"),
        "clusters[main].cluster.server: is '10.0.0.1:6443'; give a URL, such as https://10.0.0.1:6443",
    ),
    (
        "bad-port",
        document(server="https://a:99999"),
        "clusters[main].cluster.server: is 'https://a:99999'; give a URL, such as https://10.0.0.1:6443",
    ),
    (
        "password-in-server",
        document(server="https://agent:secret@a:6443"),
        "clusters[main].cluster.server: has a name or password in it; give them as username and password of the user",
    ),
    (
        "query-in-server",
        document(server="https://a:6443/?x=1"),
        "clusters[main].cluster.server: is 'https://a:6443/?x=1'; give a URL, such as https://10.0.0.1:6443",
    ),
    *(
        (
            f"proxy-{number}",
            document(None, **{"proxy-url": url}),
            "clusters[main].cluster.proxy-url: is not the URL of an HTTP proxy; give one, such as http://10.0.0.1:3128",
        )
        for number, url in enumerate(("a:secret@b", "socks5://a:1", "http://", "http://[::1", "http://a:0"))
    ),
    *(
        (
            f"server-name-{number}",
            document(None, **{"tls-server-name": name}),
            f"clusters[main].cluster.tls-server-name: is {name!r}, no name of a host; give a name from the certificate",
        )
        for number, name in enumerate((".a", "a..b", "a" * 64))
    ),
    ("zero-byte", document({"tokenFile": "a\0b"}), "users[agent].user.tokenFile: has a zero byte; write it without"),
    (
        "ca-missing",
        document(None, **{"certificate-authority": "/no/ca"}),
        (
            "clusters[main].cluster.certificate-authority: /no/ca cannot be read (No such file or directory); "
            "give a PEM file with the cluster's CA certificate"
        ),
    ),
    (
        "ca-base64",
        document(None, **{"certificate-authority-data": "-----BEGIN"}),
        "clusters[main].cluster.certificate-authority-data: is not base64; write the file's content in base64",
    ),
    (
        "skip-text",
        document(None, **{"insecure-skip-tls-verify": "yes please"}),
        "clusters[main].cluster.insecure-skip-tls-verify: is not true or false; write true or false",
    ),
    ("token-number", document({"token": 7}), "users[agent].user.token: is not a string; write it in quotes"),
    (
        "token-lines",
        document({"token": "a b"}),
        "users[agent].user.token: it contains no token; a token is one word without line breaks",
    ),
    (
        "token-file",
        document({"tokenFile": "/no/token"}),
        "users[agent].user.tokenFile: /no/token cannot be read (No such file or directory); give a file with a token",
    ),
    (
        "half-a-pair",
        document({"client-certificate": "/a"}),
        "users[agent].user.client-key: is missing, but the other of certificate and key is given; give both",
    ),
    (
        "pair-missing",
        document({"client-certificate": "/no/a", "client-key": "/no/b"}),
        (
            "users[agent].user.client-certificate: /no/a or /no/b cannot be read (No such file or directory); "
            "give files that the agent may read"
        ),
    ),
    (
        "auth-provider",
        document({"auth-provider": {"name": "gcp"}}),
        "users[agent].user.auth-provider: is not supported; use exec, which took its place",
    ),
    (
        "impersonation",
        document({"as": "admin", "token": "x"}),
        "users[agent].user.as: is not supported; use an account that has the rights itself",
    ),
    (
        "plugin-command",
        document({"exec": {"apiVersion": "client.authentication.k8s.io/v1"}}),
        "users[agent].user.exec.command: is missing; give the plugin's command",
    ),
    (
        "plugin-arguments",
        document({"exec": {"apiVersion": "v1", "command": "x", "args": "y"}}),
        "users[agent].user.exec.args: is not a list; write a list",
    ),
]


@pytest.mark.parametrize(("content", "words"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_fault_is_named_with_file_field_and_fix(tmp_path: Path, content: object, words: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigurationError) as caught:
        from_kubeconfig(path)
    assert str(caught.value) == f"{path}: {words}"


def test_a_pair_that_does_not_fit_is_named(authority: Authority, tmp_path: Path) -> None:
    one, other = authority.client("one"), authority.client("other")
    path = written(tmp_path, document({"client-certificate": str(one.certificate), "client-key": str(other.key)}))
    with pytest.raises(ConfigurationError) as caught:
        from_kubeconfig(path)
    assert str(caught.value) == (
        f"{path}: users[agent].user.client-certificate: certificate and key are not usable (key values mismatch); "
        "give a certificate and its key, both in PEM form"
    )


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(authority: Authority, tmp_path: Path) -> None:
    pair, locked = authority.client("locked"), tmp_path / "locked.key"
    words = ("openssl", "ec", "-in", str(pair.key), "-aes256", "-passout", "pass:word", "-out", str(locked))
    subprocess.run(words, check=True, capture_output=True, timeout=240)
    path = written(tmp_path, document({"client-certificate": str(pair.certificate), "client-key": str(locked)}))
    with pytest.raises(ConfigurationError) as caught:
        from_kubeconfig(path)
    assert str(caught.value) == (
        f"{path}: users[agent].user.client-certificate: the key has a password; give a key without one"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        from_kubeconfig(tmp_path / "none")
    assert str(caught.value) == (
        f"{tmp_path}/none: cannot be read (No such file or directory); "
        "give the path of a kubeconfig that the agent may read"
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a: ]secret", "line 1: is not valid YAML; correct it, or create the file again"),
        (b"a: b\nc: *secret\n", "line 2: is not valid YAML; correct it, or create the file again"),
        (b"a: &a [b]\nc: *a\n", "line 2: uses a YAML alias; write the value out"),
        (b"\xff\xff", "is not valid YAML; correct it, or create the file again"),
        (b"", "is not a mapping; write keys and values"),
        (b"#" * (2 << 20), "has more than 1048576 bytes; give the path of a kubeconfig"),
        (b"[" * 100_000, "has more than 32 levels; give the path of a kubeconfig"),
        (b"- " * 50_000, "has more than 32 levels; give the path of a kubeconfig"),
        (b"a: !!bool secret", "is not valid YAML; correct it, or create the file again"),
        (b"a: 1" + b":1" * 400 + b".5", "is not valid YAML; correct it, or create the file again"),
        (b"a: !!timestamp secret", "is not valid YAML; correct it, or create the file again"),
        (b'a: !!int ""', "is not valid YAML; correct it, or create the file again"),
    ],
)
def test_what_is_no_yaml_is_said_without_showing_it(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(data)
    with pytest.raises(ConfigurationError) as caught:
        from_kubeconfig(path)
    assert str(caught.value) == f"{path}: {words}"
    assert caught.value.__cause__ is None


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
