"""Asking for ``/healthz`` over plain HTTP: the page that both the kubelet and the agent have."""

from __future__ import annotations

import http.client
from dataclasses import dataclass

TIMEOUT = 3.0
"""Seconds for each step."""
_MOST = 2000
"""Bytes of a page that are read; what is bad stands in its first lines."""


@dataclass(frozen=True, slots=True)
class HealthPage:
    """``fault``: why there is no answer, empty for an answer; then its ``status`` and the beginning of its text."""

    fault: str = ""
    status: int = 0
    text: str = ""

    @property
    def well(self) -> bool:
        """Whether the answer is a good one."""
        return not self.fault and self.status == http.HTTPStatus.OK


def ask(host: str, port: int) -> HealthPage:
    """The page at an address; whatever goes wrong is told in it."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        text = answer.read(_MOST).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return HealthPage(fault=str(error) or type(error).__name__)
    finally:
        connection.close()
    return HealthPage(status=answer.status, text=text.strip())
