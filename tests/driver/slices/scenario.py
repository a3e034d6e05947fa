"""Carries out the steps of one vector: our controller against the stand-in, everybody else directly on its objects."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from driver.slices.controller import Controller
from driver.slices.model import DriverResources, Owner, Pool, Slice
from driver.slices.options import Options
from driver.slices.queue import PoolQueue
from kube.backoff import BackoffPolicy
from sandbox.apiserver.server import GATES_OFF, ApiServer
from tests.making.resource_api import api_of

SLICES = "resourceslices"
Json = dict[str, Any]

_SYNC_DELAY = 0.03
_RETRIES = BackoffPolicy(first=0.005, most=0.05)
_AHEAD = 0.15
"""Seconds: longer than every delay of ours, so nothing that is still to come is missed."""
_GIVEN_UP = 12
"""Failures in a row, more than any scenario lets pass, after which a controller counts as at rest."""
_DEADLINE = 120.0


class Run:
    """One scenario with a server of its own."""

    def __init__(self, scenario: Json) -> None:
        self.server = ApiServer(GATES_OFF) if scenario["server"] == "gates-off" else ApiServer()
        self.server.start()
        self.api = api_of(self.server)
        self.driver: str = scenario["driver"]
        self.errors: list[Exception] = []
        self.uids: dict[str, str] = {}
        self.fixed_names = {each["metadata"]["name"] for each in scenario["initial"]}
        self._controller: Controller | None = None
        self._settings: Json = {}
        for name in scenario["nodes"]:
            self._create_node(name)
        for each in scenario["initial"]:
            self.server.store.create(SLICES, self._with_uids(each))

    def close(self) -> None:
        if self._controller is not None:
            self._controller.stop()
        self.api.close()
        self.server.stop()

    def step(self, action: Json) -> None:
        """Carry out one step and wait for rest."""
        self.errors.clear()
        self.server.requests.clear()
        for fault in action.get("faults", []):
            then = fault.get("then")
            self.server.faults.add(
                fault["verb"],
                fault["kind"],
                fault.get("status"),
                skip=fault.get("skip", 0),
                count=fault.get("count", 1),
                then=self._doing(then) if then else None,
                resource=SLICES,
            )
        self.act(action)
        self.rest()
        self.server.faults.clear()

    def act(self, action: Json) -> None:
        verb = action["do"]
        if verb == "start":
            self._start(action)
        elif verb == "restart":
            self._stop()
            self._start({**self._settings, **action})
        elif verb == "stop":
            self._stop()
        elif verb == "update":
            self.controller.update(resources_of(action.get("resources")))
        elif verb == "updates":
            for each in action["list"]:
                self.controller.update(resources_of(each))
        elif verb == "all":
            for each in action["steps"]:
                self.act(each)
        elif verb == "createNode":
            self._create_node(action["node"])
        elif verb == "create":
            self.fixed_names.add(action["object"]["metadata"]["name"])
            self.server.store.create(SLICES, self._with_uids(action["object"]))
        elif verb in ("edit", "delete"):
            for name in self._targets(action["target"]):
                if verb == "edit":
                    self.server.store.patch(SLICES, name, action["patch"])
                else:
                    self.server.store.delete(SLICES, name)
        else:
            assert verb == "wait", verb

    @property
    def controller(self) -> Controller:
        assert self._controller is not None
        return self._controller

    def rest(self) -> None:
        """Wait until the controller knows all there is and has nothing to do, or only fails."""
        end = time.monotonic() + _DEADLINE
        seen, since = -1, 0
        while self._controller is not None:
            if self._caught_up() and self.controller.wait_idle(0.02, _AHEAD) and self._caught_up():
                return
            done = len(self.successes())
            if done != seen:
                seen, since = done, len(self.errors)
            if len(self.errors) - since > _GIVEN_UP:
                return
            assert time.monotonic() < end, "the controller does not come to rest"
            time.sleep(0.005)

    def successes(self) -> list[Any]:
        return [each for each in self.server.requests.writes(SLICES) if 200 <= each.code < 300]

    def slices(self) -> list[Json]:
        return self.server.store.list(SLICES)

    def _caught_up(self) -> bool:
        node = self._node
        there = {
            each["metadata"]["name"]: each["metadata"]["resourceVersion"]
            for each in self.server.store.list(SLICES, fields=f"spec.driver={self.driver},spec.nodeName={node}")
            if not self._only or each["spec"]["pool"]["name"] == self._only
        }
        return self.controller.store.versions() == there

    @property
    def _only(self) -> str:
        return str(self._settings.get("reconcilePoolWithName") or "")

    @property
    def _node(self) -> str:
        owner = self._settings.get("owner") or {}
        return owner["name"] if owner.get("kind") == "Node" and not self._only else ""

    def _start(self, action: Json) -> None:
        self._settings = {key: action[key] for key in ("owner", "reconcilePoolWithName") if action.get(key)}
        owner = self._with_uids(action.get("owner"))
        options = Options(
            client=self.api,
            driver_name=self.driver,
            owner=Owner(owner["apiVersion"], owner["kind"], owner["name"], owner.get("uid", "")) if owner else None,
            resources=resources_of(action.get("resources")),
            queue=PoolQueue(policy=_RETRIES),
            sync_delay=_SYNC_DELAY,
            mutation_cache_ttl=1.5,
            error_handler=lambda error, _: self.errors.append(error),
            reconcile_pool_with_name=self._only,
        )
        self._controller = Controller(options).start()

    def _stop(self) -> None:
        self.controller.stop()
        self._controller = None

    def _doing(self, action: Json) -> Callable[[], None]:
        return lambda: self.act(action)

    def _create_node(self, name: str) -> None:
        made = self.server.store.create("nodes", {"metadata": {"name": name}})
        self.uids[name] = made["metadata"]["uid"]

    def _targets(self, target: Json) -> list[str]:
        if "name" in target:
            return [target["name"]]
        found = [
            each["metadata"]["name"]
            for each in self.slices()
            if each["spec"]["driver"] == self.driver and each["spec"]["pool"]["name"] == target["pool"]
        ]
        if target.get("all"):
            return found
        return [name for name in found if name.startswith(f"{target['index']:05x}-")][:1]

    def _with_uids(self, part: Any) -> Any:
        if isinstance(part, str) and part.startswith("$uid:"):
            return self.uids[part.removeprefix("$uid:")]
        if isinstance(part, Mapping):
            return {key: self._with_uids(value) for key, value in part.items()}
        return [self._with_uids(each) for each in part] if isinstance(part, list) else part


def resources_of(found: Json | None) -> DriverResources | None:
    if found is None:
        return None
    return DriverResources({name: _pool(pool) for name, pool in (found.get("pools") or {}).items()})


def _pool(found: Json) -> Pool:
    slices = [
        Slice(
            devices=tuple(each.get("devices") or ()),
            shared_counters=tuple(each.get("sharedCounters") or ()),
            per_device_node_selection=each.get("perDeviceNodeSelection"),
        )
        for each in found.get("slices") or ()
    ]
    return Pool(
        tuple(slices), found.get("nodeSelector"), bool(found.get("allNodes")), generation=found.get("generation") or 0
    )
