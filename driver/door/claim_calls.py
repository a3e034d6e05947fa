"""Prepare and unprepare as the kubelet calls them: many claims in a call, each with its own answer.

One implementation for every version of the contract. Invariants:

- Every requested claim has an entry in the answer, by its UID; a problem of one claim is the error of its entry alone.
  A gRPC status other than OK means that nothing was done for any of them.
- The claims of a call are worked on side by side. Work for a claim continues if the call ends before it (the kubelet
  was restarted, or gave up); the kubelet's next call joins it. So nothing stays half done because a caller hung up, and
  a call is answered shortly before its deadline rather than not at all.
- An instance that hands over passes every call to the ``Successor``, including calls that began here and could not be
  finished: claims have one keeper at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from driver.claims.allocation import is_uid
from driver.claims.contracts import ClaimPreparer
from driver.claims.model import ClaimError, ClaimReference, PreparedDevice, Unavailable
from driver.door.registration import DraDoorObserver
from driver.door.successor import NoSuccessor, Successor
from node.clocks import Clocks

log = logging.getLogger("ostler.driver")

Context = grpc.aio.ServicerContext[object, object]
Answer = TypeVar("Answer", bound=Message)
Outcome = tuple[PreparedDevice, ...] | ClaimError
"""A claim's result: its devices (none for a release), or the error."""

MARGIN = 2.0
"""Seconds before a call's deadline at which it is answered with the results so far."""
_SHOWN = 128
"""Characters shown of an invalid UID."""


class ClaimReporter(Protocol):
    """Reports prepared claims for the claim's status; must return at once and must not raise."""

    def prepared(self, claim: ClaimReference, devices: tuple[PreparedDevice, ...]) -> None:
        """The claim's devices are prepared; the kubelet gets the same answer."""

    def refused(self, claim: ClaimReference, problem: str, reason: str) -> None:
        """The claim is not prepared: the kubelet gets the same text, the claim's condition the reason."""

    def released(self, claim: ClaimReference) -> None:
        """The claim is about to be released: stop writing its status."""


class KubeletClaim(Protocol):
    """A claim as every version of the contract names it."""

    namespace: str
    name: str
    uid: str


class Operation(StrEnum):
    """The methods that the kubelet calls."""

    PREPARE = "NodePrepareResources"
    UNPREPARE = "NodeUnprepareResources"


_NOT_DONE = {Operation.PREPARE: "claim refused", Operation.UNPREPARE: "claim not released"}


class Method(Generic[Answer]):
    """One method of one version: ``service`` is its full name, ``encode`` makes the answer from claims' outcomes."""

    def __init__(
        self,
        version: str,
        service: str,
        operation: Operation,
        answer: type[Answer],
        encode: Callable[[Mapping[str, Outcome]], Answer],
    ) -> None:
        self.version = version
        self.path = f"/{service}/{operation.value}"
        self.operation = operation
        self.answer = answer
        self.encode = encode


class _Refused(Exception):
    """Nothing was done; the call ends with this status."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class ClaimCalls:
    """Answers the calls of all versions by ``claims``."""

    def __init__(
        self,
        claims: ClaimPreparer,
        observer: DraDoorObserver,
        *,
        clocks: Clocks,
        reporter: ClaimReporter | None = None,
    ) -> None:
        self._claims = claims
        self._observer = observer
        self._monotonic = clocks.monotonic
        self._reporter = reporter
        self._begun: dict[tuple[Operation, str], asyncio.Task[Outcome]] = {}
        self._successor: Successor | None = None
        """The instance that every call is passed to."""
        self._refuses = False
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def answer(
        self, method: Method[Answer], request: Message, claims: Iterable[KubeletClaim], context: Context
    ) -> Answer:
        """Answer one call about these claims, which ``request`` names."""
        began = self._monotonic()
        code, fault = grpc.StatusCode.OK, ""
        self._calls += 1
        self._idle.clear()
        try:
            return await self._answer(method, request, tuple(claims), context.time_remaining())
        except _Refused as refused:
            code, fault = refused.code, str(refused)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:  # a bug of ours: the kubelet learns of it, and the log says where
            code, fault = grpc.StatusCode.INTERNAL, f"{method.operation.value} failed: {error!r}"
            log.exception("call failed", extra={"method": method.path})
        finally:
            self._calls -= 1
            if not self._calls:
                self._idle.set()
            self._observer.called(method.operation.value, method.version, code.name, self._monotonic() - began)
        await context.abort(code, fault)
        raise AssertionError("abort returned")  # It always raises; this line is for the type checker.

    def hand_over(self, successor: Successor) -> None:
        """Pass every call to ``successor`` from now on, including pending calls that could not be finished."""
        self._successor = successor

    def give_up_handover(self) -> None:
        """Fail the calls that still wait for a successor."""
        if self._successor is not None:
            self._successor.give_up()

    def refuse_new(self) -> None:
        """Refuse new calls from now on; pending calls continue."""
        self._refuses = True

    async def idle(self) -> None:
        """Return when no call is pending."""
        await self._idle.wait()

    async def close(self) -> None:
        """End work that nobody waits for any more."""
        begun = tuple(self._begun.values())
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)

    async def _answer(
        self, method: Method[Answer], request: Message, claims: tuple[KubeletClaim, ...], seconds: float | None
    ) -> Answer:
        began = self._monotonic()
        if self._successor is None and not self._refuses:
            outcomes = await self._outcomes(method.operation, claims, seconds)
            undone = any(isinstance(outcome, Unavailable) for outcome in outcomes.values())
            if not (undone and self._successor is not None):
                failed = sum(isinstance(outcome, ClaimError) for outcome in outcomes.values())
                self._observer.answered(method.operation.value, len(outcomes), failed)
                return method.encode(outcomes)
        left = None if seconds is None else seconds - (self._monotonic() - began)
        return await self._left_to_successor(method, request, _patience(left))

    async def _left_to_successor(self, method: Method[Answer], request: Message, seconds: float | None) -> Answer:
        if self._successor is None:
            raise _Refused(
                grpc.StatusCode.UNAVAILABLE, "ostler is stopping on this node; the kubelet asks again when it is back"
            )
        code = grpc.StatusCode.OK
        try:
            return await self._successor.call(method.path, request, method.answer, seconds)
        except NoSuccessor as error:
            code = grpc.StatusCode.UNAVAILABLE
            raise _Refused(code, f"ostler hands over on this node, and {error}") from error
        except grpc.aio.AioRpcError as error:
            code = error.code()
            raise _Refused(code, f"left to the instance that takes over: {error.details()}") from error
        finally:
            # Not counted: metrics are no longer served by then.
            log.info("call left to the instance that takes over", extra={"method": method.path, "code": code.name})

    async def _outcomes(
        self, operation: Operation, claims: tuple[KubeletClaim, ...], seconds: float | None
    ) -> dict[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        tasks: dict[str, asyncio.Task[Outcome]] = {}
        for named in claims:
            fault = _fault(named)
            if fault:
                log.warning(_NOT_DONE[operation], extra={"uid": named.uid[:_SHOWN], "reason": fault})
                outcomes[named.uid] = ClaimError(fault)
            else:
                tasks[named.uid] = self._begin(operation, ClaimReference(named.namespace, named.name, named.uid))
        patience = _patience(seconds)
        if tasks:
            await asyncio.wait(tasks.values(), timeout=patience)
        late = Unavailable(
            f"not finished within {round(patience or 0, 1):g} s; the work continues, and the kubelet asks again"
        )
        for uid, task in tasks.items():
            outcomes[uid] = task.result() if task.done() else late
        return outcomes

    def _begin(self, operation: Operation, claim: ClaimReference) -> asyncio.Task[Outcome]:
        """The work for one claim: the pending one, or new."""
        key = operation, claim.uid
        task = self._begun.get(key)
        if task is None:
            task = self._begun[key] = asyncio.create_task(self._work(operation, claim))
            task.add_done_callback(lambda _: self._begun.pop(key, None))
        return task

    async def _work(self, operation: Operation, claim: ClaimReference) -> Outcome:
        """The outcome of one claim, which is also logged."""
        began = self._monotonic()

        def named(**fields: object) -> dict[str, object]:
            seconds = round(self._monotonic() - began, 4)
            return {"claim": str(claim), "uid": claim.uid, **fields, "seconds": seconds}

        try:
            devices = await self._done(operation, claim)
        except ClaimError as error:
            if self._reporter is not None and error.condition and operation is Operation.PREPARE:
                self._reporter.refused(claim, str(error), error.condition)
            log.warning(_NOT_DONE[operation], extra=named(reason=str(error)))
            return error
        except Exception as error:  # a bug of ours: the claim's error says so, and the log says where
            log.exception("claim failed", extra=named(method=operation.value))
            return ClaimError(f"internal error: {error!r}; the log of ostler on this node says where")
        if operation is Operation.PREPARE:
            log.info("claim prepared", extra=named(devices=[device.device for device in devices]))
        else:
            log.info("claim released", extra=named())
        return devices

    async def _done(self, operation: Operation, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        if operation is Operation.PREPARE:
            devices = await self._claims.prepare(claim)
            if self._reporter is not None:
                self._reporter.prepared(claim, devices)
            return devices
        if self._reporter is not None:
            self._reporter.released(claim)
        await self._claims.unprepare(claim)
        return ()


def _patience(seconds: float | None) -> float | None:
    """How many seconds to spend on a call whose deadline is ``seconds`` away."""
    return None if seconds is None else max(seconds - MARGIN, seconds / 2)


def _fault(named: KubeletClaim) -> str:
    """The fault of a claim's name or UID; empty if there is none."""
    if not is_uid(named.uid):
        return f"uid: {named.uid[:_SHOWN]!r} is not a claim's UID"
    missing = [field for field in ("namespace", "name") if not getattr(named, field)]
    return f"{missing[0]}: is empty; the kubelet must name the claim" if missing else ""
