"""What an answer of the API server means, or its absence: bodies decoded, refusals and faults told in words.

Texts name what a person can check. What the server or the network says is shown as one line, bounded, because it goes
into logs and messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from kube.bodies import Json, JsonObject, one_line, text_at
from kube.errors import (
    CertificateRefused,
    RequestError,
    ServerFault,
    TimedOut,
    TooManyRequests,
    Unreachable,
    refusal,
)

Pairs = Callable[[list[tuple[str, Json]]], JsonObject]
"""Makes an object of its keys and values: an ``object_pairs_hook``."""

_GLIMPSE = 120
"""Characters that are shown of an answer that is not what it should be."""
_MESSAGE, _REASON = 1024, 128
"""Characters that are kept of what the server says about a refusal."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, of whom. ``origin``, ``credential``: where address and credential are from, for people."""

    method: str
    path: str
    server: str
    origin: str
    credential: str


def decoded(data: bytes, pairs: Pairs | None = None) -> Json:
    """The JSON value, None where it is none; ``pairs`` makes its objects."""
    try:
        value: Json = json.loads(data, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    return value


def glimpse(data: bytes) -> str:
    """The beginning of an answer that is not what it should be, safe to print."""
    return one_line(data[: 4 * _GLIMPSE].decode("utf-8", "replace"), _GLIMPSE)


def refused(request: Request, status: int, data: bytes, retry_after: str) -> RequestError:
    """The error for an answer of that status, body and Retry-After header."""
    body = decoded(data)
    message = one_line(text_at(body, "message"), _MESSAGE) or glimpse(data) or _phrase(status)
    if status == HTTPStatus.UNAUTHORIZED:
        message = (
            f"the API server does not accept {request.credential} ({message}); check it, and that it is for this server"
        )
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    reason = one_line(text_at(body, "reason"), _REASON)
    return refusal(request.method, request.path, status, reason, message, retry_after=seconds)


def no_answer(request: Request, error: Exception, late: str) -> RequestError:
    """The error for a request without an answer; ``late`` says what was waited for when it was the time that ended."""
    from urllib3 import exceptions

    method, path, server = request.method, request.path, request.server
    reason = _reason(error)
    if isinstance(error, exceptions.SSLError):
        text = (
            f"{server} and we do not trust each other ({reason}); "
            f"check CA, server name and certificate in {request.origin}"
        )
        return CertificateRefused(method, path, text, sent=False)
    if isinstance(error, exceptions.ProxyError):
        # Not by its URL, which may hold a password.
        return Unreachable(method, path, f"{server} cannot be reached through its proxy ({reason})", sent=False)
    if isinstance(error, (exceptions.ConnectTimeoutError, exceptions.NewConnectionError, ValueError)):
        return Unreachable(method, path, f"{server} cannot be reached ({reason})", sent=False)
    if isinstance(error, (exceptions.TimeoutError, TimeoutError)):
        return TimedOut(method, path, f"{server} {late}", sent=True)
    return Unreachable(method, path, f"{server}: the connection broke ({reason})", sent=True)


def worth_another(error: RequestError) -> bool:
    """Whether the same request may be sent once more, by what became of it."""
    if isinstance(error, CertificateRefused):
        return False
    if isinstance(error, Unreachable):
        return not error.sent or error.method == "GET"
    if isinstance(error, ServerFault):
        return error.retry_after is not None or error.method == "GET"
    return isinstance(error, TooManyRequests)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _reason(error: BaseException) -> str:
    """The innermost cause in few words, without the library's decoration."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return getattr(inner, "verify_message", "") or inner.strerror
        error, inner = inner, inner.__cause__ or inner.__context__
    arguments = [argument for argument in error.args if isinstance(argument, str)]
    return one_line(arguments[0] if arguments else "", _GLIMPSE) or type(error).__name__
