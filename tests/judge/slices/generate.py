"""Scenarios of the kinds that tests/vectors/slices has, from a seed."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from tests.judge.chance import Chance, Json
from tests.judge.slices.content import Content

NAMES = ("p", "q", "zone/rack-1")
_SUFFIXES = ("aaaaa", "bbbbb", "ccccc", "ddddd", "eeeee", "fffff", "ggggg", "hhhhh")
_PATCHES: tuple[Json, ...] = (
    {"metadata": {"labels": {"somebody": "else"}}},
    {"spec": {"pool": {"resourceSliceCount": 9}}},
    {"spec": {"devices": None}},
    {"spec": {"devices": [{"name": "other"}]}},
    {"metadata": {"annotations": {"note": "x"}}, "spec": {"devices": [{"name": "other"}]}},
    {"metadata": {"ownerReferences": None}},
    {"metadata": {"finalizers": ["example.com/hold"]}},
)


def scenarios(seed: str, first: int, count: int) -> Iterator[Json]:
    """So many of the seed's scenarios from number ``first`` on."""
    for number in range(first, first + count):
        yield Making(seed, number).scenario()


class Making:
    """One scenario on its way."""

    def __init__(self, seed: str, number: int) -> None:
        self.chance = chance = Chance(f"slices/{seed}/{number}")
        self.id = f"s{seed}-{number}"
        self.driver = f"{self.id}.example.com"
        self.node = f"{self.id}-n1"
        self.content = Content(chance)
        self.target = chance.one(("all", "all", "all", "node", "node", "selector", "device"))
        self.pools: Json = {}
        self.initial: list[Json] = []
        self.steps: list[Json] = []
        self._suffix = iter(_SUFFIXES)
        self.owner: Json | None = None
        if self.target == "node":
            uid = chance.one(("", f"$uid:{self.node}"))
            self.owner = {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}
        elif chance.maybe(0.15):
            uid = "11111111-2222-4333-8444-555555555555"
            self.owner = {"apiVersion": "apps.example.com/v1", "kind": "Fleet", "name": "east", "uid": uid}
        self.only = chance.maybe(0.08)
        self.late = self.owner is not None and not self.owner["uid"] and chance.maybe(0.15)
        """Whether the Node comes after the controller."""
        self.server = "gates-off" if chance.maybe(0.15) else "default"

    def scenario(self) -> Json:
        """The scenario, of two to six steps."""
        chance = self.chance
        names = ["p"] if self.only else chance.some(NAMES, chance.one((1, 1, 2, 3)))
        self.pools = {name: self.content.pool(self.target) for name in names}
        if chance.maybe(0.4) and self.storable() and not self.late:
            self._earlier_life()
        start: Json = {"do": "start", "resources": self._resources()}
        if self.owner:
            start["owner"] = self.owner
        if self.only:
            start["reconcilePoolWithName"] = "p"
        if chance.maybe(0.1):
            self._faulted(start)
        self.steps.append(start)
        if self.late:
            self.steps.append({"do": "createNode", "node": self.node})
        for _ in range(chance.number(1, 4)):
            self._next()
        return {
            "id": self.id,
            "title": "generated",
            "server": self.server,
            "driver": self.driver,
            "nodes": [self.node][self.late :],
            "initial": self.initial,
            "steps": [{"action": each} for each in self.steps],
        }

    def storable(self) -> bool:
        """Whether what is wanted could have been stored before."""
        if (self.target == "device" and self.server == "gates-off") or (self.target == "node" and self.only):
            return False
        lists = any(
            "l" in device.get("attributes", {})
            for pool in self.pools.values()
            for each in pool["slices"]
            for device in each.get("devices", [])
        )
        return not (self.content.faulty or lists)

    def _resources(self) -> Json:
        return {"pools": copy.deepcopy(self.pools)}

    def _next(self) -> None:
        chance = self.chance
        kind = chance.one(("update",) * 6 + ("updates", "restart", "same", "stop") + ("others",) * 5)
        if kind == "update":
            self.pools = self.content.changed(self.pools)
            action: Json = {"do": "update", "resources": self._resources()}
            if chance.maybe(0.3):
                self._faulted(action)
            self.steps.append(action)
        elif kind == "same":
            self.steps.append({"do": "update", "resources": self._resources()})
        elif kind == "updates":
            wishes = []
            for _ in range(chance.number(2, 4)):
                self.pools = self.content.changed(self.pools)
                wishes.append(self._resources())
            self.steps.append({"do": "updates", "list": wishes})
        elif kind == "restart":
            if chance.maybe(0.5):
                self.pools = self.content.changed(self.pools)
            self.steps.append({"do": "restart", "resources": self._resources()})
        elif kind == "stop":
            self.steps.append({"do": "stop"})
            if chance.maybe(0.6):
                self.steps.append(self._interference())
            again: Json = {"do": "start", "resources": self._resources()}
            if self.owner:
                again["owner"] = self.owner
            if self.only:
                again["reconcilePoolWithName"] = "p"
            self.steps.append(again)
        else:
            self.steps.append(self._interference())

    def _interference(self) -> Json:
        chance = self.chance
        known = [
            {"pool": name, "index": index}
            for name, pool in sorted(self.pools.items())
            for index in range(len(pool["slices"]))
        ]
        kinds = ("delete", "delete", "edit", "edit", "edit", "create", "wipe", "both") if known else ("create",)
        kind = chance.one(kinds)
        if kind == "create":
            return {"do": "create", "object": self._foreign()}
        target = chance.one(known)
        if kind == "wipe":
            return {"do": "delete", "target": {"pool": target["pool"], "all": True}}
        if kind == "both":
            steps = [self._edit(each) if chance.maybe(0.5) else {"do": "delete", "target": each} for each in known[:3]]
            return {"do": "all", "steps": steps}
        return self._edit(target) if kind == "edit" else {"do": "delete", "target": target}

    def _edit(self, target: Json) -> Json:
        patch = copy.deepcopy(self.chance.one(_PATCHES if not self.content.sets else _PATCHES[:2]))
        if self.target == "device" and (patch.get("spec") or {}).get("devices"):
            patch["spec"]["devices"][0]["allNodes"] = True
        return {"do": "edit", "target": target, "patch": patch}

    def _faulted(self, action: Json) -> None:
        chance = self.chance
        fault: Json = {"verb": chance.one(("create", "update", "delete")), "count": 1, "skip": chance.one((0, 0, 1))}
        fault["kind"] = chance.one(("status", "status", "lost-response", "race"))
        fault["status"] = chance.one((500, 403, 409, 503, 429)) if fault["kind"] == "status" else 500
        if fault["kind"] == "status":
            fault["count"] = chance.one((1, 1, 2, 3))
        if fault["kind"] == "race":
            if fault["verb"] == "create" or not self.pools:
                fault["then"] = {"do": "create", "object": self._foreign()}
            else:
                name = chance.one(sorted(self.pools))
                fault["then"] = self._edit({"pool": name, "index": 0})
        action["faults"] = [fault]

    def _earlier_life(self) -> None:
        """Slices of the same driver from before, more or less like what is wanted."""
        chance = self.chance
        base = self.content.changed(self.pools) if chance.maybe(0.4) else copy.deepcopy(self.pools)
        generation = chance.one((1, 1, 2, 5))
        for name, pool in base.items():
            for index, each in enumerate(pool["slices"]):
                if chance.maybe(0.15):
                    continue
                self.initial.append(self._old(name, pool, index, each, generation))
        if chance.maybe(0.2):
            self.initial.append(self._foreign())

    def _old(self, name: str, pool: Json, index: int, each: Json, generation: int) -> Json:
        chance = self.chance
        old = generation - (1 if generation > 1 and chance.maybe(0.15) else 0)
        entry = {
            "name": name,
            "generation": old,
            "resourceSliceCount": len(pool["slices"]) + (1 if chance.maybe(0.1) else 0),
        }
        spec: Json = {"driver": self.driver, "pool": entry, **copy.deepcopy(each)}
        for field in ("nodeSelector", "allNodes"):
            if pool.get(field):
                spec[field] = pool[field]
        if self.target == "node" and not self.only:
            spec["nodeName"] = self.node
        metadata: Json = {"name": self._fixed_name(index)}
        if self.owner and chance.maybe(0.8):
            fields = {field: self.owner[field] for field in ("apiVersion", "kind", "name")}
            uid = self.owner["uid"] or f"$uid:{self.node}"
            metadata["ownerReferences"] = [{**fields, "uid": uid, "controller": True}]
        return {"metadata": metadata, "spec": spec}

    def _fixed_name(self, index: int) -> str:
        suffix = next(self._suffix, "zzzzz") + str(len(self.initial))
        if self.chance.maybe(0.15):
            return f"{self.id}-{self.driver}-{suffix}"
        return f"{index:05x}-{self.driver}-{suffix}"

    def _foreign(self) -> Json:
        """A slice that somebody else makes."""
        chance = self.chance
        name = chance.one([*sorted(self.pools), "stranger"])
        pool = self.pools.get(name, {})
        index = chance.number(0, max(len(pool.get("slices", [])), 1))
        entry = {
            "name": name,
            "generation": chance.one((1, 1, 2, 9)),
            "resourceSliceCount": max(len(pool.get("slices", [])), 1),
        }
        driver = self.driver if chance.maybe(0.85) else f"{self.id}.foreign.example.com"
        spec: Json = {"driver": driver, "pool": entry, "allNodes": True, "devices": [{"name": "stray"}]}
        if self.target == "node" and not self.only:
            del spec["allNodes"]
            spec["nodeName"] = self.node
        # Behind all others in the order of names: of two slices with one index the reference keeps the first.
        suffix = f"{len(self.steps)}-{chance.number(1, 99999)}"
        return {"metadata": {"name": f"{index:05x}-zz-{self.id}-{suffix}"}, "spec": spec}
