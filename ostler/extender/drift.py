"""Reports differences between the configuration and the cluster, once they have lasted.

The sentences are those of ``ostler cells check --cluster``. A difference counts once it has lasted for a while: the
kubelet deletes its node's slices when it restarts, and a new node publishes its GPUs some time after it is there. While
no node of the cluster publishes any GPU, nothing can be compared.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

from ostler.cells.drift import ConfiguredNode, configured_by_name, node_drift
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.published import PublishedDevices
from scheduling.cells.configuration import CellsConfiguration

log = logging.getLogger("ostler.extender")

SETTLED = 60.0
"""Seconds that a difference must last before it is reported."""
_LOGGED = 20
"""Differences that one look logs; a rack that goes off differs at every node."""
_SHOWN = 5
"""Differences that the page for probes shows."""


class CellsDrift:
    """Keeps the differences. Thread-safe; ``look`` is called by one thread."""

    def __init__(
        self,
        configuration: CellsConfiguration,
        devices: PublishedDevices,
        metrics: ExtenderMetrics,
        settled: float = SETTLED,
    ) -> None:
        self._devices = devices
        self._metrics = metrics
        self._settled = settled
        self._lock = threading.Lock()
        self._configured: dict[str, list[ConfiguredNode]] = {}
        self._sentences: dict[str, tuple[str, ...]] = {}
        self._since: dict[str, float] = {}
        self._lasting: tuple[str, ...] = ()
        self.configure(configuration)

    def configure(self, configuration: CellsConfiguration) -> None:
        """Compare with another configuration."""
        with self._lock:
            self._configured = configured_by_name(configuration)
            self._sentences = {}
            self._compare({*self._configured, *self._devices.nodes()})

    def devices_changed(self, nodes: Iterable[str]) -> None:
        """See ``DevicesFollower``."""
        with self._lock:
            self._compare(nodes)

    def look(self, now: float) -> None:
        """Tell the differences that have lasted, and those that ended; ``now``: seconds of any clock that runs on."""
        with self._lock:
            found = [each for name in sorted(self._sentences) for each in self._sentences[name]]
        if not self._devices.nodes():
            found = []
        self._since = {each: self._since.get(each, now) for each in found}
        lasting = tuple(each for each in found if now - self._since[each] >= self._settled)
        new, ended = [each for each in lasting if each not in self._lasting], set(self._lasting).difference(lasting)
        for each in new[:_LOGGED]:
            log.warning("the configuration differs from the cluster", extra={"difference": each})
        if len(new) > _LOGGED:
            log.warning("the configuration differs from the cluster elsewhere, too", extra={"more": len(new) - _LOGGED})
        if ended:
            log.info("differences from the cluster ended", extra={"differences": len(ended), "left": len(lasting)})
        self._lasting = lasting
        self._metrics.drift.set(len(lasting))

    @property
    def lines(self) -> tuple[str, ...]:
        """The differences for people, none if there are none."""
        lasting = self._lasting
        more = (f"and {len(lasting) - _SHOWN} more differences: run ostler cells check FILE --cluster",)
        return (*lasting[:_SHOWN], *(more if len(lasting) > _SHOWN else ()))

    def _compare(self, nodes: Iterable[str]) -> None:
        for name in nodes:
            configured, found = self._configured.get(name, ()), self._devices.of_node(name)
            if not found.is_complete:
                continue
            sentences = tuple(node_drift(name, configured, found.nodes)) if configured or found.nodes else ()
            if sentences:
                self._sentences[name] = sentences
            else:
                self._sentences.pop(name, None)
