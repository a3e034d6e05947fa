"""Admission policies of the chart, decided by ostler's own CEL as an API server decides on a write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from scheduling.cel.checker import check
from scheduling.cel.device import CelDevice
from scheduling.cel.environment import CelFeatures, environment
from scheduling.cel.frame import Frame
from scheduling.cel.interpreter import EvaluationPlan, plan
from scheduling.cel.parser import parse
from scheduling.cel.program import DEFAULT_LIMIT
from scheduling.cel.validators import validate
from scheduling.cel.values import Texts

Object = Mapping[str, Any]
NAMES = ("object", "oldObject", "request", "namespaceObject", "variables")


class PolicyAdmission:
    """A write, as policies see it."""

    def __init__(
        self,
        written: Object | None,
        stored: Object | None = None,
        *,
        user: str = "somebody",
        groups: Sequence[str] = (),
        node: str = "",
        subresource: str = "",
        namespace: Object | None = None,
    ) -> None:
        extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
        name = namespace["metadata"]["name"] if namespace else "default"
        self._values: dict[str, Any] = {
            "variables": Texts(),
            "object": written,
            "oldObject": stored,
            "request": {
                "userInfo": {"username": user, "extra": extra, **({"groups": groups} if groups else {})},
                "namespace": name,
                **({"subResource": subresource} if subresource else {}),
            },
            "namespaceObject": namespace or {"metadata": {"name": name}},
        }

    def refusals(self, policy: Object) -> list[str]:
        """What each validation says that does not hold; none if the policy does not match or allows the write."""
        spec = policy["spec"]
        variables = self._values["variables"] = Texts()
        if not all(self._value(each["expression"]) for each in spec.get("matchConditions", [])):
            return []
        for each in spec.get("variables", []):
            variables[each["name"]] = self._value(each["expression"])
        return [self._message(each) for each in spec["validations"] if self._value(each["expression"]) is not True]

    def _message(self, validation: Object) -> str:
        expression: str | None = validation.get("messageExpression")
        return str(validation["message"] if expression is None else self._value(expression))

    def _value(self, expression: str) -> Any:
        """Raises what the evaluation raises, also above the cost that an API server allows."""
        made = _planned(expression)
        device = CelDevice("write", {})
        device.attributes["write"] = Texts({name: _cel(value) for name, value in self._values.items()})
        return made.run(Frame(device, DEFAULT_LIMIT, made.slots))


@cache
def _planned(expression: str) -> EvaluationPlan:
    text = expression
    for name in NAMES:
        text = f'cel.bind({name}, device.attributes["write"].{name}, {text})'
    checked = check(parse(text), environment(CelFeatures(list_attributes=True)))
    assert not validate(checked), expression
    return plan(checked)


def _cel(value: Any) -> Any:
    if isinstance(value, Mapping):
        return Texts({str(key): _cel(each) for key, each in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_cel(each) for each in value]
    return value
