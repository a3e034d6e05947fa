"""The errors of requests to the API server, as one small tree with fields.

The client library's own errors stop at ``client``: its class names and texts change with every major version.
"""

from __future__ import annotations


class KubeError(Exception):
    """Any error of this package."""


class ConfigurationError(KubeError):
    """The API server cannot be reached because ``field`` of ``path`` (a file, or ``environment``) is wrong."""

    def __init__(self, path: str, field: str, problem: str, fix: str) -> None:
        super().__init__(f"{path}: {field + ': ' if field else ''}{problem}; {fix}")
        self.path = path
        self.field = field
        self.problem = problem
        self.fix = fix


class NodeNotOurs(KubeError):
    """The Node object with our name describes another machine: its ``field`` is ``theirs``, this machine's ``ours``."""

    def __init__(self, node: str, field: str, theirs: str, ours: str, where: str) -> None:
        super().__init__(
            f"Node {node} is not this machine: its status.nodeInfo.{field} is {theirs}, {where} here says {ours}; "
            "give this node's own name as nodeName (in a pod: spec.nodeName), and in a container mount the host's "
            "/etc/machine-id over the image's"
        )
        self.node = node
        self.field = field
        self.theirs = theirs
        self.ours = ours


class NotServed(KubeError):
    """The API server serves ``group`` in none of the ``versions`` that ostler knows."""

    def __init__(self, server: str, group: str, versions: str, fix: str) -> None:
        super().__init__(f"{server} does not serve {versions} of the API group {group}; {fix}")


class RequestError(KubeError):
    """A request that failed.

    ``status``: the HTTP status, 0 without an answer. ``reason``: Kubernetes' word for machines (``AlreadyExists``), or
    empty. ``message``: for people. ``retry_after``: seconds that the server asks us to wait, None if it does not say.
    """

    def __init__(
        self, method: str, path: str, status: int, reason: str, message: str, *, retry_after: float | None = None
    ) -> None:
        verdict = " ".join(word for word in (str(status) if status else "", reason) if word)
        super().__init__(f"{method} {path}: {verdict + ': ' if verdict else ''}{message}")
        self.method = method
        self.path = path
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class BadRequest(RequestError):
    """400: the request itself is wrong."""


class Unauthorized(RequestError):
    """401: the server does not accept the credential."""


class Forbidden(RequestError):
    """403: the account lacks a right."""


class NotFound(RequestError):
    """404."""


class WriteConflict(RequestError):
    """409: somebody else changed the object, or (``reason`` is ``AlreadyExists``) it exists already."""

    @property
    def already_exists(self) -> bool:
        """Whether an object of that name exists already."""
        return self.reason == "AlreadyExists"


class Gone(RequestError):
    """410: the resource version is too old; list again."""


class Invalid(RequestError):
    """422: the object breaks a rule of the API, or an admission policy refuses it."""


class TooManyRequests(RequestError):
    """429: the server is busy."""


class ServerFault(RequestError):
    """5xx."""


class BadAnswer(RequestError):
    """The answer is not what the API sends: not JSON, not an object, too large, or a redirect."""


class Unreachable(RequestError):
    """No answer. ``sent``: the request may have arrived and been carried out."""

    def __init__(self, method: str, path: str, message: str, *, sent: bool) -> None:
        super().__init__(method, path, 0, "", message)
        self.sent = sent


class CertificateRefused(Unreachable):
    """The TLS handshake failed: one side does not trust the other's certificate."""


class TimedOut(Unreachable):
    """No complete answer in time."""


class Closed(RequestError):
    """The client was closed."""


_BY_STATUS: dict[int, type[RequestError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: WriteConflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def refusal(
    method: str, path: str, status: int, reason: str, message: str, *, retry_after: float | None = None
) -> RequestError:
    """The error for an answer with that status."""
    kind = _BY_STATUS.get(status, ServerFault if status >= 500 else RequestError if status >= 400 else BadAnswer)
    return kind(method, path, status, reason, message, retry_after=retry_after)
