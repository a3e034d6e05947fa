"""The controller of a node's own slices, which writes nothing until the Node has proved to be this machine.

A wrong node name would publish this machine's devices on another node, and would treat that node's own slices as
surplus. So neither slices are read nor anything is written before the Node has been read and checked (``OwnNode``).
Every later read checks it again, because by then another machine may have a Node of that name.

A module of its own, because it is loaded after registration: it imports the reflector and the rules for objects.
"""

from __future__ import annotations

from typing import Protocol

from driver.node_watch.following import NodeCheck
from driver.publishing.publication import ErrorHandler
from driver.slices.controller import Controller
from driver.slices.model import node_owner
from driver.slices.options import NodeReader, Options, SliceApi, Watching
from kube.bodies import JsonObject
from kube.pace import AGENTS
from kube.reflector import Handler, Reflector, ReflectorLimits
from node.clocks import Clocks

WATCHING = "watching slices"


class NodeController(Controller):
    """Keeps the slices that belong to a Node; writes nothing before the first ``update``."""

    def __init__(
        self,
        api: SliceApi,
        driver_name: str,
        node_name: str,
        report: ErrorHandler,
        clocks: Clocks,
        *,
        nodes: NodeReader | None = None,
    ) -> None:
        """``report``: called in any thread with every fault of writing and watching, and the work in which it arose."""
        self._report = report
        self._random = clocks.random
        self._reflector: Reflector | None = None
        super().__init__(
            Options(
                api,
                driver_name,
                owner=node_owner(node_name),
                wait_for_update=True,
                error_handler=report,
                watch=self._reflected,
                clocks=clocks,
                nodes=nodes,
            )
        )

    def watch_fault(self) -> str:
        """Why slices cannot be listed or watched at the moment, empty if they can."""
        return "" if self._reflector is None else self._reflector.status().failing

    def _report_watch_fault(self, error: Exception) -> None:
        self._report(error, WATCHING)

    def _reflected(self, client: SliceApi, selector: str, handler: Handler) -> Watching:
        source = client.slices({"fieldSelector": selector})
        self._reflector = Reflector(
            source,
            handler,
            random=self._random,
            limits=ReflectorLimits(herd=AGENTS, streams_lists=True),
            on_failure=self._report_watch_fault,
            name="slices of the node",
        )
        return self._reflector


class OwnNodeApi(SliceApi, Protocol):
    """Slices, and the Node that other parts of the process prove to be this machine as well."""

    def own_node(self, name: str, check: NodeCheck) -> JsonObject:
        """The Node, which ``check`` accepts, now or a moment ago."""


class OwnNode:
    """Reads one Node with ``api``; ``check`` raises ``KubeError`` if it is another machine's."""

    def __init__(self, api: OwnNodeApi, check: NodeCheck) -> None:
        self._api = api
        self._check = check
        self._proved: dict[str, JsonObject] = {}

    def prove(self, name: str) -> None:
        """Read and check the Node; raises what reading or ``check`` raises."""
        self._proved[name] = self._api.own_node(name, self._check)

    def node(self, name: str) -> JsonObject:
        """The Node, which is ours. The first call returns what was read for the proof."""
        return self._proved.pop(name, None) or self._read(name)

    def _read(self, name: str) -> JsonObject:
        node = self._api.node(name)
        self._check(node)
        return node
