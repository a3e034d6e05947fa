"""Reads a kubeconfig, with errors that name file, field and fix.

It reads one file, not a list of them as in $KUBECONFIG. It refuses settings that would change our identity and are not
supported (impersonation, the auth providers that Kubernetes 1.26 removed): ignoring them would mean to act with other
rights.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kube.access import (
    SERVICE_ACCOUNT,
    Access,
    Certificate,
    Credential,
    Credentials,
    ExecPlugin,
    FixedCredentials,
    TokenFile,
    basic,
    bearer,
    check_authority,
    check_certificate,
    in_cluster,
)
from kube.errors import ConfigurationError
from kube.files import FileTooLarge, MemoryFile, read_small

if TYPE_CHECKING:
    import yaml

_LARGEST = 1 << 20
_DEEPEST = 32
"""Most levels of a file; the deepest setting, in ``exec``, has six."""
_UNSUPPORTED = {
    "auth-provider": "use exec, which took its place",
    "as": "use an account that has the rights itself",
    "as-uid": "use an account that has the rights itself",
    "as-groups": "use an account that has the rights itself",
    "as-user-extra": "use an account that has the rights itself",
}


def api_access(kubeconfig: Path | None, environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> Access:
    """Access by the given kubeconfig, else by the pod's account; raises ``ConfigurationError``."""
    if kubeconfig is not None:
        return from_kubeconfig(kubeconfig)
    return in_cluster(environment, account)


def from_kubeconfig(path: Path, context: str | None = None) -> Access:
    """Access by a kubeconfig's ``context``, else its current one; raises ``ConfigurationError``."""
    document = _Section(path, "", _parse(path))
    name = context if context is not None else document.text("current-context")
    contexts = document.named("contexts", "context")
    if not name:
        known = f"one of: {', '.join(contexts)}" if contexts else "a context"
        raise document.error("current-context", "is missing", f"give {known}")
    chosen = _find(document, contexts, "current-context" if context is None else "contexts", name)
    cluster = _find(document, document.named("clusters", "cluster"), f"{chosen.place}.cluster", chosen.text("cluster"))
    user_name = chosen.text("user")
    user = _find(document, document.named("users", "user"), f"{chosen.place}.user", user_name) if user_name else None
    ca, held = _authority(cluster)
    return Access(
        server=_server(cluster),
        origin=f"{path} (context {name})",
        credentials=FixedCredentials(f"no credential ({path} names no user)")
        if user is None
        else _credentials(user, cluster),
        ca=ca,
        verify=not cluster.flag("insecure-skip-tls-verify"),
        server_name=_server_name(cluster),
        proxy=_proxy(cluster),
        namespace=chosen.text("namespace"),
        held=held,
    )


class _Section:
    """A mapping of the file with its place, such as ``users[admin].user``."""

    def __init__(self, path: Path, place: str, content: object) -> None:
        self.path = path
        self.place = place
        if not isinstance(content, dict):
            raise ConfigurationError(str(path), place, "is not a mapping", "write keys and values")
        self.content: Mapping[object, object] = content

    def error(self, key: str, problem: str, fix: str) -> ConfigurationError:
        return ConfigurationError(str(self.path), f"{self.place}.{key}" if self.place else key, problem, fix)

    def text(self, key: str) -> str:
        value = self.content.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(key, "is not a string", "write it in quotes")
        if "\0" in value:
            raise self.error(key, "has a zero byte", "write it without")
        return value

    def flag(self, key: str) -> bool:
        value = self.content.get(key, False)
        if not isinstance(value, bool):
            raise self.error(key, "is not true or false", "write true or false")
        return value

    def data(self, key: str) -> bytes | None:
        """Content given inline, in base64."""
        text = self.text(key)
        if not text:
            return None
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.error(key, "is not base64", "write the file's content in base64") from error

    def named(self, key: str, inner: str) -> dict[str, _Section]:
        """A list of named entries, by name."""
        items = self.content.get(key) or []
        if not isinstance(items, list):
            raise self.error(key, "is not a list", f"write a list of name and {inner}")
        found: dict[str, _Section] = {}
        for number, item in enumerate(items):
            name = item.get("name") if isinstance(item, dict) else None
            if not isinstance(name, str):
                raise self.error(f"{key}[{number}]", "has no name", f"write name and {inner}")
            content = {} if item.get(inner) is None else item[inner]
            # The first entry of a name counts, as for kubectl.
            found.setdefault(name, _Section(self.path, f"{key}[{name}].{inner}", content))
        return found

    def file(self, key: str) -> str:
        """A path; a relative one is relative to the kubeconfig."""
        text = self.text(key)
        return str(self.path.absolute().parent / text) if text else ""


def _parse(path: Path) -> object:
    import yaml  # only for those who have a kubeconfig

    source = str(path)
    try:
        data = read_small(path, _LARGEST)
    except FileTooLarge as error:
        raise ConfigurationError(source, "", str(error.strerror), "give the path of a kubeconfig") from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise ConfigurationError(
            source, "", problem, "give the path of a kubeconfig that the agent may read"
        ) from error
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        _check(source, yaml.parse(data, Loader=loader))
        return yaml.load(data, Loader=loader)  # noqa: S506 - both are safe loaders
    except (yaml.YAMLError, ValueError, AttributeError, LookupError, OverflowError) as error:
        # AttributeError, LookupError: values that do not fit their own tag, such as "!!bool x".
        # OverflowError: a float in base 60.
        # Never the error's own text: it quotes the file, which holds secrets.
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else ""
        raise ConfigurationError(source, where, "is not valid YAML", "correct it, or create the file again") from None


def _check(source: str, events: Iterable[yaml.Event]) -> None:
    """Raise ``ConfigurationError`` for dangerous YAML before anything is built from it.

    Deep input kills the process in the loader's C code, and ten lines of aliases can expand to any number of values.
    """
    from yaml import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent

    depth = 0
    anchors: set[str] = set()
    for event in events:
        if isinstance(event, CollectionStartEvent):
            depth += 1
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
        if isinstance(event, AliasEvent):
            if event.anchor in anchors:
                where = f"line {event.start_mark.line + 1}" if event.start_mark else ""
                raise ConfigurationError(source, where, "uses a YAML alias", "write the value out")
        elif isinstance(event, NodeEvent) and event.anchor:
            anchors.add(event.anchor)
        if depth > _DEEPEST:
            raise ConfigurationError(source, "", f"has more than {_DEEPEST} levels", "give the path of a kubeconfig")


def _find(document: _Section, known: Mapping[str, _Section], field: str, name: str) -> _Section:
    if name in known:
        return known[name]
    fix = f"give one of: {', '.join(known)}" if known else "add it to the file"
    problem = f"names {name!r}, which is not in the file" if name else "is missing"
    raise ConfigurationError(str(document.path), field, problem, fix)


def _server(cluster: _Section) -> str:
    server = cluster.text("server").rstrip("/")
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
        secret, more = "@" in parts.netloc, bool(parts.query or parts.fragment)
    except ValueError:
        usable = secret = more = False
    fix = "give a URL, such as https://10.0.0.1:6443"
    if secret:
        # Not shown: the server's address goes into logs.
        raise cluster.error("server", "has a name or password in it", "give them as username and password of the user")
    if not usable or more or not server.isprintable() or " " in server:
        raise cluster.error("server", f"is {server!r}" if server else "is missing", fix)
    return server


def _proxy(cluster: _Section) -> str | None:
    url = cluster.text("proxy-url")
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if url and not usable:
        # Not shown: it may hold a password.
        raise cluster.error("proxy-url", "is not the URL of an HTTP proxy", "give one, such as http://10.0.0.1:3128")
    return url or None


def _server_name(cluster: _Section) -> str | None:
    name = cluster.text("tls-server-name")
    try:
        usable = not name.startswith(".")
        name.encode("idna")
    except UnicodeError:
        usable = False
    if not usable:
        raise cluster.error("tls-server-name", f"is {name!r}, no name of a host", "give a name from the certificate")
    return name or None


def _authority(cluster: _Section) -> tuple[str | None, tuple[MemoryFile, ...]]:
    key = "certificate-authority"
    data = cluster.data(f"{key}-data")
    if data is not None:
        held = MemoryFile(data)
        check_authority(held.path, str(cluster.path), f"{cluster.place}.{key}-data")
        return held.path, (held,)
    path = cluster.file(key)
    if path:
        check_authority(path, str(cluster.path), f"{cluster.place}.{key}")
    return path or None, ()


def _credentials(user: _Section, cluster: _Section) -> Credentials:
    for key, fix in _UNSUPPORTED.items():
        if user.content.get(key):
            raise user.error(key, "is not supported", fix)
    certificate = _certificate(user)
    source = str(user.path)
    if user.text("tokenFile"):
        # Before token, as for kubectl: the file is newer.
        tokens = TokenFile(Path(user.file("tokenFile")), source, f"{user.place}.tokenFile", certificate)
        tokens.current()
        return tokens
    if user.text("token"):
        field = f"{user.place}.token"
        return FixedCredentials(
            f"the token in {source}", Credential(bearer(user.text("token"), "it", source, field), certificate)
        )
    if user.text("username"):
        header = basic(user.text("username"), user.text("password"))
        return FixedCredentials(f"name and password in {source}", Credential(header, certificate))
    if user.content.get("exec") is not None:
        return _plugin(user, cluster)
    if certificate is not None:
        return FixedCredentials(f"the client certificate of {source}", Credential(certificate=certificate))
    return FixedCredentials(f"no credential ({user.place} of {source} is empty)")


def _certificate(user: _Section) -> Certificate | None:
    names, held = [], []
    for key in ("client-certificate", "client-key"):
        data = user.data(f"{key}-data")
        if data is not None:
            held.append(MemoryFile(data))
            names.append(held[-1].path)
        else:
            names.append(user.file(key))
    if not any(names):
        return None
    for key, name in zip(("client-certificate", "client-key"), names, strict=True):
        if not name:
            raise user.error(key, "is missing, but the other half of the pair is given", "give both")
    pair = Certificate(names[0], names[1], tuple(held))
    check_certificate(pair, str(user.path), f"{user.place}.client-certificate")
    return pair


def _plugin(user: _Section, cluster: _Section) -> ExecPlugin:
    section = _Section(user.path, f"{user.place}.exec", user.content["exec"])
    for key in ("command", "apiVersion"):
        if not section.text(key):
            raise section.error(key, "is missing", f"give the plugin's {key}")
    for key in ("args", "env"):
        if not isinstance(section.content.get(key) or [], list):
            raise section.error(key, "is not a list", "write a list")
    content = {str(key): value for key, value in section.content.items()}
    server = {str(key): value for key, value in cluster.content.items()}
    return ExecPlugin(content, server, str(user.path), section.place)
