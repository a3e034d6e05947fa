"""The extender's paths: which routine answers what, and how its errors look.

A filter or bind call is always answered with status 200, with the error in its field ``Error``. The answer to preempt
has no such field, so the HTTP status says it, as for the pages for people. Every error body is a JSON string.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import unquote

from kube.bodies import Json, JsonObject, one_line
from node.clocks import SYSTEM, Clocks
from ostler.extender.binding import Binder
from ostler.extender.deciding import Decider
from ostler.extender.inspecting import group, groups, physical_cluster, virtual_cluster, virtual_clusters
from ostler.extender.lease import ActiveReplica
from ostler.extender.metrics import RequestMetrics
from ostler.extender.server import HttpAnswer
from ostler.extender.tracking import CellTracker
from ostler.extender.wire import (
    ExtenderError,
    bind_answer,
    decoded,
    filter_failure,
    prioritize_answer,
    read_bind,
    read_filter,
    read_preempt,
)
from scheduling.cells.decision import CellsUserError

FILTER, BIND, PREEMPT = "/v1/extender/filter", "/v1/extender/bind", "/v1/extender/preempt"
PRIORITIZE = "/v1/extender/prioritize"
GROUPS, STATUS = "/v1/inspect/affinitygroups/", "/v1/inspect/clusterstatus"
PHYSICAL, VIRTUAL = f"{STATUS}/physicalcluster", f"{STATUS}/virtualclusters/"
PATHS: list[Json] = ["/", FILTER, BIND, PREEMPT, GROUPS, STATUS, PHYSICAL, VIRTUAL]
"""The paths that ``/`` lists, as HiveD's does; prioritize is ours."""
_SHOWN = 200
"""Characters of a path that an error repeats."""


class ExtenderApi:
    """Answers requests; ``pause`` waits that many seconds while a pod must wait, without any lock held."""

    def __init__(
        self,
        tracker: CellTracker,
        decider: Decider,
        binder: Binder,
        active: ActiveReplica,
        metrics: RequestMetrics,
        *,
        pause: Callable[[], None],
        clocks: Clocks = SYSTEM,
    ) -> None:
        self._tracker = tracker
        self._decider = decider
        self._binder = binder
        self._active = active
        self._metrics = metrics
        self._pause = pause
        self._monotonic = clocks.monotonic

    def answer(self, method: str, path: str, body: bytes) -> HttpAnswer:
        """The answer to any request; never raises for what a client sends."""
        routine = _routine(path)
        begun = self._monotonic()
        try:
            made, result = self._answered(routine, method, path, body), "ok"
        except ExtenderError as error:
            result = "user_error" if error.code < HTTPStatus.INTERNAL_SERVER_ERROR else "platform_error"
            made = _error(routine, error)
        if routine:
            self._metrics.answered(routine, result, self._monotonic() - begun)
        return made

    def _answered(self, routine: str, method: str, path: str, body: bytes) -> HttpAnswer:
        if path == "/":
            return HttpAnswer(HTTPStatus.OK, {"paths": PATHS})
        if not routine:
            if path == GROUPS.rstrip("/"):
                return HttpAnswer(HTTPStatus.MOVED_PERMANENTLY, b"", "text/html; charset=utf-8", location=GROUPS)
            raise ExtenderError(f"Path not found: {one_line(path, _SHOWN)}", HTTPStatus.NOT_FOUND)
        if routine == "inspect" and method not in ("GET", "HEAD"):
            raise ExtenderError(f"NotImplemented: {method}: {one_line(path, _SHOWN)}")
        if reason := self._active.why_not():
            raise ExtenderError(reason, HTTPStatus.SERVICE_UNAVAILABLE)
        if routine == "inspect":
            return HttpAnswer(HTTPStatus.OK, self._inspected(path))
        return HttpAnswer(HTTPStatus.OK, getattr(self, f"_{routine}")(decoded(body)))

    def _filter(self, body: JsonObject) -> Json:
        outcome = self._decider.filter(read_filter(body))
        if outcome.is_waiting:
            self._pause()
        return outcome.answer

    def _prioritize(self, body: JsonObject) -> Json:
        arguments = read_filter(body)
        return prioritize_answer(arguments, self._decider.prioritize(arguments.pod))

    def _bind(self, body: JsonObject) -> Json:
        self._binder.bind(self._decider.binding(read_bind(body)))
        return bind_answer()

    def _preempt(self, body: JsonObject) -> Json:
        return self._decider.preempt(read_preempt(body))

    def _inspected(self, path: str) -> Json:
        try:
            if path.startswith(GROUPS):
                name = unquote(path.removeprefix(GROUPS))
                return self._tracker.look(lambda cells: group(cells, name) if name else groups(cells))
            if path == STATUS:
                return self._tracker.look(
                    lambda cells: {
                        "physicalCluster": physical_cluster(cells),
                        "virtualClusters": virtual_clusters(cells),
                    }
                )
            if path == PHYSICAL:
                return self._tracker.look(physical_cluster)
            name = unquote(path.removeprefix(VIRTUAL))
            return self._tracker.look(lambda cells: virtual_cluster(cells, name) if name else virtual_clusters(cells))
        except CellsUserError as error:
            raise ExtenderError(str(error), error.code) from error


def _routine(path: str) -> str:
    for name, known in (("filter", FILTER), ("bind", BIND), ("preempt", PREEMPT), ("prioritize", PRIORITIZE)):
        if path == known:
            return name
    if path in (STATUS, PHYSICAL) or path.startswith((GROUPS, VIRTUAL)):
        return "inspect"
    return ""


def _error(routine: str, error: ExtenderError) -> HttpAnswer:
    if routine == "filter":
        return HttpAnswer(HTTPStatus.OK, filter_failure(error))
    if routine == "bind":
        return HttpAnswer(HTTPStatus.OK, bind_answer(error))
    return HttpAnswer(error.code, error.text)
