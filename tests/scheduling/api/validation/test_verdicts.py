"""What a real API server (1.36) said to more objects: status, templates, taint rules, updates, features on and off.

`verdicts.jsonl` was recorded with dry runs against three servers: `default` features, `all` (also list attributes and
node allocatable resources) and `none` of the optional ones. First come the stored objects that updates refer to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduling.api.validation.cause import TYPE_INVALID, StatusCause
from scheduling.api.validation.objects import VALIDATORS, validate_claim_status
from scheduling.api.validation.shapes import Gates
from scheduling.api.validation.storing import as_stored, status_as_stored
from tests.making.recorded_cases import cases_in

GATES = {
    "default": Gates(),
    "all": Gates(list_attributes=True, node_allocatable_resources=True),
    "none": Gates(
        device_taints=False,
        partitionable_devices=False,
        consumable_capacity=False,
        binding_conditions=False,
        prioritized_list=False,
        extended_resource=False,
        device_status=False,
    ),
}
LINES = cases_in(Path(__file__).parent / "verdicts.jsonl")
STORED = {line["stored as"]: line["object"] for line in LINES if "stored as" in line}
VERDICTS = [pytest.param(line, id=f"{line['rules']}-{at}") for at, line in enumerate(LINES) if "rules" in line]


def judged(verdict: Any) -> tuple[list[StatusCause], Any]:
    """The causes, and how to get the stored object."""
    gates, old, resource = GATES[verdict["gates"]], STORED.get(verdict.get("old")), verdict["object"]
    if verdict["rules"].startswith("status"):
        whole = {**STORED[verdict["old"]], **resource}
        causes = validate_claim_status(whole, STORED[verdict["old"]], gates)
        return causes, lambda: status_as_stored(whole, STORED[verdict["old"]], gates)
    return VALIDATORS[resource["kind"]](resource, old, gates), lambda: as_stored(resource, gates, old=old)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_verdict_is_that_of_the_api_server(verdict: Any) -> None:
    causes, stored = judged(verdict)
    if "causes" in verdict:
        assert {(cause.field, cause.reason) for cause in causes} == {
            (field, reason) for field, reason in verdict["causes"]
        }
    elif "undecodable" in verdict:
        assert [cause.reason for cause in causes] == [TYPE_INVALID]
    else:
        assert causes == []
        found = stored()
        assert {name: without_times(found[name]) for name in verdict["stored"]} == without_times(verdict["stored"])


def without_times(part: Any) -> Any:
    """Without times of taints: those that the server set."""
    if isinstance(part, dict):
        return {name: without_times(entry) for name, entry in part.items() if name != "timeAdded"}
    return [without_times(entry) for entry in part] if isinstance(part, list) else part
