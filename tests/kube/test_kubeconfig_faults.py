"""Every fault of a kubeconfig is named with its file, its field and the fix."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from kube.errors import ConfigurationError
from kube.kubeconfig import from_kubeconfig
from tests.kube.authority import Authority
from tests.making.kubeconfigs import document, written

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
        "users[agent].user.client-key: is missing, but the other half of the pair is given; give both",
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
