"""What an answer of the API server means: an object or a page of a list while it arrives, a refusal, or no answer.

An object that cannot be read (not JSON, or too large even without its unused fields) is left out by name, and the
reader of the page learns of it; the objects beside it are read. Error texts name what a person can check. What the
server or the network says is shown as one bounded line, because it goes into logs and messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol, TypeVar

from kube.bodies import Json, JsonObject, one_line, text_at
from kube.errors import (
    BadAnswer,
    CertificateRefused,
    RequestError,
    ServerFault,
    TimedOut,
    TooManyRequests,
    Unreachable,
    refusal,
)
from kube.json_stream import DEPTH, Fields, Form, JsonStream, Piece
from kube.small_objects import SmallFirst

Pairs = Callable[[list[tuple[str, Json]]], JsonObject]
"""Makes an object of its keys and values: an ``object_pairs_hook``."""

_GLIMPSE = 120
"""Characters shown of an unexpected answer."""
_MESSAGE, _REASON = 1024, 128
"""Characters kept of the server's words about a refusal."""
T_co = TypeVar("T_co", covariant=True)
_BEGINNING = 480
_WORD = 253
MOST_NAMED = 1000
"""Most objects of a page that are named as unread or pruned."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as errors name it. ``origin``, ``credential``: where address and credential come from, for people."""

    method: str
    path: str
    server: str
    origin: str
    credential: str


def decoded(data: bytes, pairs: Pairs | None = None) -> Json:
    """The JSON value, None for invalid JSON; ``pairs`` makes its objects."""
    try:
        value: Json = json.loads(data, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return None
    return value


def glimpse(data: bytes) -> str:
    """The beginning of an unexpected answer, safe to print."""
    return one_line(data[: 4 * _GLIMPSE].decode("utf-8", "replace"), _GLIMPSE)


def refused(request: Request, status: int, data: bytes, retry_after: str) -> RequestError:
    """The error for an answer with that status, body and Retry-After header."""
    body = decoded(data)
    message = one_line(text_at(body, "message"), _MESSAGE) or glimpse(data) or _phrase(status)
    if status == HTTPStatus.UNAUTHORIZED:
        fix = "check that it is valid and for this server"
        message = f"the API server does not accept {request.credential} ({message}); {fix}"
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None
    reason = one_line(text_at(body, "reason"), _REASON)
    return refusal(request.method, request.path, status, reason, message, retry_after=seconds)


def no_answer(request: Request, error: Exception, late: str) -> RequestError:
    """The error for a request without an answer; ``late`` says what did not happen in time."""
    from urllib3 import exceptions

    method, path, server = request.method, request.path, request.server
    reason = _reason(error)
    if isinstance(error, exceptions.SSLError):
        text = (
            f"the TLS handshake with {server} failed ({reason}); "
            f"check CA, server name and certificate in {request.origin}"
        )
        return CertificateRefused(method, path, text, sent=False)
    if isinstance(error, exceptions.ProxyError):
        # Without the proxy's URL, which may hold a password.
        return Unreachable(method, path, f"{server} cannot be reached through its proxy ({reason})", sent=False)
    if isinstance(error, (exceptions.ConnectTimeoutError, exceptions.NewConnectionError, ValueError)):
        return Unreachable(method, path, f"{server} cannot be reached ({reason})", sent=False)
    if isinstance(error, (exceptions.TimeoutError, TimeoutError)):
        return TimedOut(method, path, f"{server} {late}", sent=True)
    return Unreachable(method, path, f"{server}: the connection broke ({reason})", sent=True)


def worth_another(error: RequestError) -> bool:
    """Whether the client may send the same request once more after this error."""
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


class Reader(Protocol[T_co]):
    """Takes an answer's body in pieces."""

    def feed(self, data: bytes) -> None:
        """The next piece."""

    def result(self) -> T_co:
        """The result, once the body is complete; raises ``BadAnswer``."""


@dataclass(frozen=True, slots=True)
class Unread:
    """An object that was left out, or whose deep parts were: ``problem`` says why. Unknown texts are empty.

    ``change``: the type of the watch event that carried it, empty in a list.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    problem: str
    change: str = ""

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{name or 'an object without a name'} {self.problem}"

    @property
    def metadata(self) -> JsonObject:
        """What is known of the object's metadata."""
        known = {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
        }
        return {key: text for key, text in known.items() if text}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list. ``more``: the token of the next page; ``size``: bytes of this page.

    ``objects``: as ``read`` returned them. ``count``: how many objects the page had. ``unread`` and ``pruned`` name at
    most ``MOST_NAMED`` objects each.
    """

    objects: tuple[JsonObject, ...]
    resource_version: str
    more: str = ""
    size: int = 0
    count: int = 0
    unread: tuple[Unread, ...] = ()
    pruned: tuple[Unread, ...] = ()


class LargePage(Exception):
    """A page exceeded the agreed bytes after ``count`` objects; ask for fewer."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__(f"{count} objects have {size} bytes")
        self.count = count
        self.size = size


class ObjectReader:
    """Reads one object. ``largest``: bytes that its used fields may have; an empty answer is an empty object."""

    def __init__(self, request: Request, fields: Fields, largest: int, pairs: Pairs | None) -> None:
        self._request = request
        self._largest = largest
        self._pairs = pairs
        self._stream = JsonStream(Form.OBJECT, fields, most=largest)
        self._small = SmallFirst(self._stream, largest)
        self._begin = b""

    def feed(self, data: bytes) -> None:
        """See ``Reader``; raises ``BadAnswer`` as soon as the answer is too large."""
        if len(self._begin) < _BEGINNING:
            self._begin += data[:_BEGINNING]
        for _ in self._small.feed(data):
            raise AssertionError("only a list has items")
        if self._stream.is_too_large:
            raise _bad(self._request, f"the answer has more than {self._largest} bytes")

    def result(self) -> JsonObject:
        """See ``Reader``."""
        found: JsonObject | None = self._small.decoded(self._pairs)
        if found is not None:
            return found
        piece = self._stream.end()
        if not piece.size or not self._begin.strip():
            return {}
        body = decoded(piece.data, self._pairs)
        if not isinstance(body, dict):
            raise _bad(self._request, f"the answer is not a JSON object: {glimpse(self._begin)}")
        return body


class PageReader:
    """Reads a list. ``read`` returns what to keep of each object, ``{}`` for nothing.

    ``largest``: bytes that the used fields of one object may have. ``roomy``: bytes after which ``LargePage`` is raised
    if more than one object was read.
    """

    def __init__(
        self,
        request: Request,
        fields: Fields,
        largest: int,
        pairs: Pairs | None,
        *,
        read: Callable[[JsonObject], JsonObject],
        roomy: int | None,
    ) -> None:
        self._request = request
        self._largest = largest
        self._pairs = pairs
        self._read = read
        self._roomy = roomy
        self._stream = JsonStream(Form.LIST, fields, most=largest)
        self._begin = b""
        self._size = self._count = 0
        self._objects: list[JsonObject] = []
        self._unread: list[Unread] = []
        self._pruned: list[Unread] = []

    def feed(self, data: bytes) -> None:
        """See ``Reader``; raises what ``read`` raises, ``BadAnswer`` and ``LargePage``."""
        if len(self._begin) < _BEGINNING:
            self._begin += data[:_BEGINNING]
        self._size += len(data)
        for piece in self._stream.feed(data):
            self._take(piece)
        if self._roomy is not None and self._size > self._roomy and self._count > 1:
            raise LargePage(self._count, self._size)
        if self._stream.is_too_large:
            raise _bad(self._request, f"the list has more than {self._largest} bytes beside its objects")

    def result(self) -> Page:
        """See ``Reader``."""
        answer = decoded(self._stream.end().data, self._pairs)
        if not isinstance(answer, dict):
            raise _bad(self._request, f"the answer is not a JSON object: {glimpse(self._begin)}")
        # Null is how Go writes an empty list in some versions.
        if answer.get("items") not in (None, []):
            raise _bad(self._request, "the answer is not a list of objects")
        version, more = (text_at(answer, "metadata", key) for key in ("resourceVersion", "continue"))
        unread, pruned = tuple(self._unread), tuple(self._pruned)
        return Page(tuple(self._objects), version, more, self._size, self._count, unread, pruned)

    def _take(self, piece: Piece) -> None:
        self._count += 1
        body = decoded(piece.data, self._pairs) if piece.data else None
        if body is None:
            _note(self._unread, unread_of(piece, self._largest))
            return
        if not isinstance(body, dict):
            raise _bad(self._request, "an item of the list is not an object")
        if piece.is_pruned:
            _note(self._pruned, pruned_of(piece))
        if kept := self._read(body):
            self._objects.append(kept)


def unread_of(piece: Piece, largest: int) -> Unread:
    """The note about an object that cannot be read."""
    kind = f"has more than {largest} bytes in fields that are used" if piece.is_too_large else "is not a JSON object"
    return _named(piece, f"{kind} ({piece.size} bytes in all)")


def pruned_of(piece: Piece) -> Unread:
    """The note about an object whose deep parts were left out."""
    return _named(piece, f"nests deeper than {DEPTH} levels; what is deeper is left out")


def _named(piece: Piece, problem: str) -> Unread:
    known = _texts(piece.identity)
    return Unread(
        known.get("namespace", ""),
        known.get("name", ""),
        known.get("uid", ""),
        known.get("resourceVersion", ""),
        problem,
        known.get("type", ""),
    )


def _texts(identity: Mapping[str, bytes]) -> dict[str, str]:
    """The texts as they are written: names have no escapes, and for other texts that will do for people."""
    return {key: one_line(text[: 4 * _WORD].decode("utf-8", "replace"), _WORD) for key, text in identity.items()}


def _note(notes: list[Unread], note: Unread) -> None:
    if len(notes) < MOST_NAMED:
        notes.append(note)


def _bad(request: Request, text: str) -> BadAnswer:
    return BadAnswer(request.method, request.path, 200, "", text)
