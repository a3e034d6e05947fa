"""A node whose devices are at both doors: claims as the stock scheduler allocates them, pods as the plugin prefers."""

from __future__ import annotations

from node.eligibility import offer
from node.inventory.model import Snapshot
from node.ledger.holds import Hold, HoldState, plugin_owner, wholes_of
from node.ledger.ledger import Ledger
from node.ledger.offer_context import OfferContext, by_place
from node.rules import Door, Rule
from plugin.preferred import PlacementMap, Preference
from tests.driver.devices.scheduling import DeviceScheduler, Json, island, slices
from tests.making.dra_door import door_view


class ScheduledDoors:
    """Gives devices through either door. What a door chooses next can be asked before anything is given."""

    def __init__(self, snapshot: Snapshot, *rules: Rule) -> None:
        self.snapshot = snapshot
        self.rules = rules
        self.ledger = Ledger()
        self._placement = PlacementMap(snapshot.topology)
        self._within = {device.name: wholes_of(device) for device in snapshot.devices}
        self._claims: dict[int, Json] = {}
        self._number = 0

    @property
    def context(self) -> OfferContext:
        return OfferContext(by_place(self.ledger.all))

    def plugin_choice(self, count: int) -> list[str]:
        """Names of what the plugin door prefers for so many devices; none where there are not enough."""
        (resource,) = offer(self.snapshot, self.rules, self.context, Door.PLUGIN).resources
        held = self.ledger.by_device()
        devices = {item.id: item for item in resource.devices}
        free = [id_ for id_, item in devices.items() if item.healthy and item.device.name not in held]
        if len(free) < count:
            return []
        return [devices[id_].device.name for id_ in Preference(devices, self._placement).prefer(free, [], count)]

    def claim_choice(self, wanted: Json) -> list[str]:
        """Names of what the scheduler gives this claim; none where it waits."""
        scheduler = DeviceScheduler(slices(door_view(self.snapshot, self.rules, self.context).devices))
        scheduler.held = dict(self._claims)
        found = scheduler.allocate(wanted)
        return found[1] if found is not None else []

    def island_choice(self, count: int) -> list[str]:
        return self.claim_choice(island(count))

    def to_pod(self, names: list[str]) -> None:
        self.ledger.take_each(
            Hold(
                name,
                Door.PLUGIN,
                "team/pod",
                0.0,
                plugin_owner(name),
                within=self._within[name],
                state=HoldState.LISTED,
            )
            for name in names
        )

    def to_claim(self, names: list[str]) -> int:
        self._number += 1
        owner = f"claim-{self._number}"
        self.ledger.take(
            owner, (Hold(name, Door.DRA, "team/claim", 0.0, owner, within=self._within[name]) for name in names)
        )
        results: list[Json] = [
            {"request": "gpus", "driver": "ostler.dev", "pool": "node-1", "device": name} for name in names
        ]
        self._claims[self._number] = {
            **island(1),
            "status": {"allocation": {"devices": {"results": results}}},
        }
        return self._number

    def free(self) -> int:
        """How many devices nobody holds."""
        (resource,) = offer(self.snapshot, self.rules, self.context, Door.PLUGIN).resources
        held = self.ledger.by_device()
        return sum(item.healthy and item.device.name not in held for item in resource.devices)
