"""The controller of a node's own slices: the library's, with the fault of its watch to be seen.

A module of its own, because it is loaded after registration: it brings the reflector and the rules for objects.
"""

from __future__ import annotations

from collections.abc import Callable

from driver.slices.api import SliceApi, Watching
from driver.slices.controller import Controller
from driver.slices.model import node_owner
from driver.slices.options import Options
from kube.reflector import Handler, Reflector

WATCHING = "watching slices"


class NodeController(Controller):
    """Keeps the slices that belong to a Node; writes nothing before the first ``update``."""

    def __init__(
        self,
        api: SliceApi,
        driver_name: str,
        node_name: str,
        tell: Callable[[Exception, str], None],
        random: Callable[[], float],
    ) -> None:
        """``tell`` hears of every fault of writing and watching, with the work it arose in, in any thread."""
        self._tell_watch_fault = lambda error: tell(error, WATCHING)
        self._chance = random
        self._reflector: Reflector | None = None
        super().__init__(
            Options(
                api,
                driver_name,
                owner=node_owner(node_name),
                wait_for_update=True,
                error_handler=tell,
                watch=self._reflected,
                random=random,
            )
        )

    def watch_fault(self) -> str:
        """Why slices cannot be listed or watched at the moment, empty where they can."""
        return "" if self._reflector is None else self._reflector.status().failing

    def _reflected(self, client: SliceApi, selector: str, handler: Handler) -> Watching:
        source = client.slices({"fieldSelector": selector})
        self._reflector = Reflector(
            source, handler, random=self._chance, told=self._tell_watch_fault, name="slices of the node"
        )
        return self._reflector
