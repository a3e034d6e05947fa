"""Claims that just do not fit, or just do: where a search turns back most.

Devices differ little and are fewer than one would like; requests overlap; counters, capacity and values run short.
Now and then a selector fails or an alternative is too large for a claim, since these must not be hidden by pruning.
"""

from __future__ import annotations

from tests.judge.chance import Chance
from tests.making.claims import claim, distinct, exactly, first_available, match
from tests.making.slices import Json, device, of, slices

ATTRIBUTES = ("model", "numa", "index")


class Tight:
    """One case: its slices and claims. `size` scales the number of devices."""

    def __init__(self, seed: int, number: int, size: int) -> None:
        self._chance = chance = Chance(f"tight {seed} {number}")
        chance.bend = chance.one((0.0, 0.0, 1.0))
        self.lists = chance.maybe(0.2)
        self._shared = chance.maybe(0.35)
        self._sets = [f"set-{each}" for each in range(chance.number(1, 4))] if chance.maybe(0.4) else []
        self._values = chance.number(2, 4)
        self._budget = chance.number(2, 7)
        made = [self._device(each) for each in range(chance.number(3, 3 + size))]
        counters = {each: {"x": self._budget, "y": chance.number(2, 5)} for each in self._sets}
        if counters and chance.oddly(0.1):
            made[0]["consumesCounters"][0]["counters"]["x"]["value"] = "-1"
        self.slices = slices(made, counters)
        self.claims = [self._claim(each, size) for each in range(chance.one((1, 1, 2, 3)))]

    def _device(self, number: int) -> Json:
        chance = self._chance
        attributes: dict[str, object] = {
            "model": chance.one(("a", "b")),
            "numa": chance.number(0, self._values),
            "index": number,
        }
        if self.lists:
            attributes["numa"] = [chance.number(0, self._values) for _ in range(chance.number(1, 2))]
        if chance.maybe(0.1):
            del attributes[chance.one(ATTRIBUTES)]
        return device(
            f"d{number}",
            attributes,
            counters={chance.one(self._sets): {"x": chance.number(1, 3), "y": chance.number(0, 2)}}
            if self._sets
            else None,
            capacity={"mem": chance.number(1, 4)} if self._shared else None,
            shared=self._shared and chance.maybe(0.6),
        )

    def _claim(self, number: int, size: int) -> Json:
        chance = self._chance
        names = [f"r{each}" for each in range(chance.number(1, 2 + size // 3))]
        constraints = [
            chance.one((match, distinct))(chance.one(ATTRIBUTES), *(chance.some(names) if chance.maybe(0.7) else ()))
            for _ in range(chance.number(0, 2))
        ]
        return claim([self._request(each) for each in names], *constraints, name=f"claim-{number}")

    def _request(self, name: str) -> Json:
        chance = self._chance
        if chance.maybe(0.2):
            return first_available(name, *(self._demand(sub=True) for _ in range(chance.number(1, 3))))
        return {"name": name, "exactly": self._demand(sub=False)}

    def _demand(self, *, sub: bool) -> Json:
        chance = self._chance
        made = exactly(chance.one((1, 1, 1, 2, 2, 3)))
        if chance.maybe(0.1):
            made = exactly(0)
        elif chance.oddly(0.15) and sub:
            made = exactly(chance.one((31, 33)))
        if chance.maybe(0.4):
            made["selectors"] = [{"cel": {"expression": self._selector()}}]
        if self._shared and chance.maybe(0.6):
            made["capacity"] = {"requests": {"mem": str(chance.number(1, 3))}}
        if not sub and chance.maybe(0.07):
            made["adminAccess"] = True
        return made

    def _selector(self) -> str:
        chance = self._chance
        if chance.oddly(0.15):
            return f"{of('nosuch')} == 1 || {of('index')} < 5"
        if chance.oddly(0.1):
            return f"{of('index')} != {chance.number(3, 9)} || {of('nosuch')} == 1"
        model = f'{of("?model")}.orValue("") == "{chance.one(("a", "b"))}"'
        index = f"{of('?index')}.orValue(0)"
        return chance.one((model, model, f"{index} < {chance.number(1, 6)}", f"{index} % 2 == {chance.number(0, 1)}"))
