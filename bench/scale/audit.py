"""Counts requests by the API server's own audit log, and says what the counts mean. Pure but for reading the file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.figures import percentile

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/readyz*", "/metrics"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""Requests of service accounts, which the agents and the helper are; not those of the benchmark and of the server."""
WATCH = "watch"


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """A request as the API server had it; ``at``: Unix seconds. ``lasts``: seconds that a watch asked for, else 0."""

    at: float
    user: str
    verb: str
    resource: str
    code: int
    lasts: float = 0.0

    @property
    def kind(self) -> str:
        """Verb and resource."""
        return f"{self.verb} {self.resource}"


class AuditLog:
    """The log in ``path``; ``take`` returns each request once, a watch when it begins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._begun: set[str] = set()

    def take(self) -> list[AuditedRequest]:
        """Those that were logged since the last call."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        # The server may be in the middle of a line.
        whole = data.rfind(b"\n") + 1
        self._offset += whole
        return [found for line in data[:whole].splitlines() if (found := self._read(json.loads(line))) is not None]

    def _read(self, entry: dict[str, Any]) -> AuditedRequest | None:
        identifier, verb = entry["auditID"], entry["verb"]
        if verb == WATCH:
            if identifier in self._begun:
                self._begun.discard(identifier)
                return None
            if entry["stage"] == "ResponseStarted":
                self._begun.add(identifier)
        reference, uri = entry.get("objectRef", {}), urlsplit(entry["requestURI"])
        resource = "/".join(filter(None, (reference.get("resource", uri.path), reference.get("subresource"))))
        asked = parse_qs(uri.query).get("timeoutSeconds", ["0"])[0]
        return AuditedRequest(
            datetime.fromisoformat(entry["requestReceivedTimestamp"]).timestamp(),
            entry["user"]["username"],
            verb,
            resource,
            entry.get("responseStatus", {}).get("code", 0),
            float(asked) if verb == WATCH else 0.0,
        )


def of_user(requests: Iterable[AuditedRequest], user: str) -> list[AuditedRequest]:
    """Those of one user."""
    return [each for each in requests if each.user == user]


def kinds(requests: Iterable[AuditedRequest]) -> Counter[str]:
    """How many there are of each verb and resource."""
    return Counter(each.kind for each in requests)


def renewed_each_minute(requests: Iterable[AuditedRequest]) -> float:
    """How many watches a minute must begin anew because these end when they asked to."""
    return sum(60 / each.lasts for each in requests if each.lasts)


def spread(times: Sequence[float]) -> float:
    """Seconds in which nine of ten of these times lie: the first and the last twentieth do not count."""
    return percentile(times, 95) - percentile(times, 5)


def busiest_second(times: Iterable[float]) -> int:
    """The most of these times that lie in one second."""
    return max(Counter(int(time) for time in times).values(), default=0)
