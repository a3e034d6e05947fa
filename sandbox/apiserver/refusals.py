"""Refusals as the API server words them: code, reason, message, details.

Clients decide by code and reason, people read the message; both are the real server's, so that a client written against
this stand-in meets nothing new in a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from sandbox.apiserver.kinds import Json, ServedKind
from scheduling.api.validation.cause import StatusCause

REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(Exception):
    """A request is refused. `code`: HTTP status; `reason`, `message`, `details`: of the Status object.

    `reason` None: the one that belongs to the code, "": none.

    `retry_after`: seconds for the header of that name.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: Json | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "") if reason is None else reason
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def status(self) -> Json:
        """The Status object."""
        details = self.details
        if self.retry_after is not None:
            details = (details or {}) | {"retryAfterSeconds": self.retry_after}
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        body |= {"reason": self.reason} if self.reason else {}
        body |= {} if details is None else {"details": details}
        return body | {"code": self.code}


def bad_request(message: str) -> StatusError:
    """The request cannot be understood."""
    return StatusError(HTTPStatus.BAD_REQUEST, message)


def unreadable(kind: ServedKind, version: str, fault: str) -> StatusError:
    """The object in a request has a wrong type somewhere."""
    return bad_request(f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {fault}')


def no_such_resource() -> StatusError:
    """The path names a kind or part that is not served."""
    return StatusError(HTTPStatus.NOT_FOUND, "the server could not find the requested resource", details={})


def not_found(kind: ServedKind, name: str) -> StatusError:
    """There is no such object."""
    return StatusError(HTTPStatus.NOT_FOUND, f'{kind.resource} "{name}" not found', details=_details(kind, name))


def not_allowed() -> StatusError:
    """The path does not know the method."""
    text = "the server does not allow this method on the requested resource"
    return StatusError(HTTPStatus.METHOD_NOT_ALLOWED, text, details={})


def internal(message: str) -> StatusError:
    """An internal error, as the server makes of an invalid number; it then gives no reason."""
    return StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, message, reason="")


def exists(kind: ServedKind, name: str) -> StatusError:
    """The name is taken."""
    text = f'{kind.resource} "{name}" already exists'
    return StatusError(HTTPStatus.CONFLICT, text, reason="AlreadyExists", details=_details(kind, name))


def modified(kind: ServedKind, name: str) -> StatusError:
    """The object is not the one that was read before."""
    fault = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, fault)


def conflict(kind: ServedKind, name: str, fault: str, resource: str = "") -> StatusError:
    """The object's state forbids it."""
    text = f'Operation cannot be fulfilled on {resource or kind.resource} "{name}": {fault}'
    details = _details(kind, name) | ({"kind": resource.partition(".")[0]} if resource else {})
    return StatusError(HTTPStatus.CONFLICT, text, details=details)


def invalid(kind: ServedKind, name: str, causes: Iterable[StatusCause]) -> StatusError:
    """The object breaks rules."""
    return _invalid(name, {"group": kind.group, "kind": kind.name}, kind.qualified, causes)


def invalid_options(kind: str, cause: StatusCause) -> StatusError:
    """A parameter breaks rules. `kind`: CreateOptions, ListOptions..."""
    return _invalid("", {"group": "meta.k8s.io", "kind": kind}, f"{kind}.meta.k8s.io", [cause])


def _invalid(name: str, kind: Json, qualified: str, causes: Iterable[StatusCause]) -> StatusError:
    listed = list(causes)
    faults = [str(cause) for cause in listed]
    text = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    details: Json = {field: text for field, text in ({"name": name} | kind).items() if text}
    details["causes"] = [{"reason": each.reason, "message": each.message, "field": each.field} for each in listed]
    return StatusError(HTTPStatus.UNPROCESSABLE_ENTITY, f'{qualified} "{name}" is invalid: {text}', details=details)


def expired(message: str) -> StatusError:
    """The history that a request builds on is gone."""
    return StatusError(HTTPStatus.GONE, message)


def too_large_version(wanted: int, current: int) -> StatusError:
    """A resource version that has not been yet, as after a restored backup."""
    details: Json = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    text = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(HTTPStatus.GATEWAY_TIMEOUT, text, details=details, retry_after=1)


def _details(kind: ServedKind, name: str) -> Json:
    group = {"group": kind.group} if kind.group else {}
    return {"name": name, **group, "kind": kind.plural}
