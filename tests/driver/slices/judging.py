"""Compares what our controller did in a step with what the reference did, by the rules of the vectors' README."""

from __future__ import annotations

import time
from typing import Any

from driver.slices.content import instant
from driver.slices.errors import DroppedFieldsError, InvalidPool, InvalidSlice, WrongPools
from kube.errors import RequestError
from tests.driver.slices.scenario import Json, Run

_NAME_KEPT = 58
_NOW = 3600.0


def judge(
    run: Run,
    expect: Json,
    *,
    generations: bool,
    failed: bool,
    earlier: list[Json],
    asked: bool = True,
    names: bool = True,
) -> list[str]:
    """What is not as it should be. ``generations``: they are compared; ``failed``: lower ones are allowed.

    ``earlier``: errors of the step before, of which the last may be told late. ``asked``: the step asked the controller
    for something; otherwise what was told before need not be told again. ``names``: names and metadata are compared,
    which fewer writes leave as they were where the reference replaces slices.
    """
    faults = [*_state(run, expect, generations=generations, failed=failed, names=names)]
    done = run.successes()
    most = expect["counts"]["total"][1]
    if len(done) > most:
        faults.append(f"{len(done)} writes, the reference needs {most}: {[(each.verb, each.name) for each in done]}")
    pools = {each["pool"] for each in expect["writes"] if "pool" in each}
    wrong = {each.body["spec"]["pool"]["name"] for each in done if each.verb in ("create", "update")} - pools
    if wrong:
        faults.append(f"pools {wrong} were written, none of them concerned")
    expected, told = _expected_kinds(expect["errors"]), _kinds(run.errors)
    before = _expected_kinds(earlier)
    known = told if asked else told + before
    untold = [kind for kind in expected if not any(_same_kind(kind, one) for one in known)]
    made_up = [kind for kind in told if not any(_same_kind(one, kind) for one in expected + before)]
    if untold or made_up:
        faults.append(f"errors: expected {expected}, told {told}: {[str(error) for error in run.errors]}")
    return faults


def _state(run: Run, expect: Json, *, generations: bool, failed: bool, names: bool) -> list[str]:
    found = [_seen(run, each) for each in run.slices()]
    verdicts = []
    for state in [expect["state"], *expect.get("otherStates", [])]:
        verdict = _same_state(run, state, found, exact=generations and not failed, names=names)
        verdict += [] if not (generations and failed) else _lower(state, found)
        verdicts.append(verdict)
    return min(verdicts, key=len)


def _same_state(run: Run, state: list[Json], found: list[Json], *, exact: bool, names: bool) -> list[str]:
    rest = [*found]
    faults = []
    for each in state:
        wanted = _wanted(run, each)
        match = next((one for one in rest if _matches(wanted, one, exact=exact, names=names)), None)
        if match is None:
            faults.append(f"missing: {wanted}")
        else:
            rest.remove(match)
    return faults + [f"not expected: {one}" for one in rest]


def _matches(wanted: Json, found: Json, *, exact: bool, names: bool) -> bool:
    if names and not _same_name(wanted, found):
        return False
    if not exact:
        return bool(_without_generation(wanted["spec"]) == _without_generation(found["spec"]))
    return bool(wanted["spec"] == found["spec"])


def _same_name(wanted: Json, found: Json) -> bool:
    if wanted["name"] is None:
        same = not found["fixed"] and found["name"].startswith(wanted["prefix"])
    else:
        same = wanted["name"] == found["name"]
    return same and all(wanted["metadata"].get(key) == found["metadata"].get(key) for key in _METADATA)


_METADATA = ("ownerReferences", "labels", "annotations", "finalizers")


def _wanted(run: Run, each: Json) -> Json:
    new = each["slice"].startswith("new/")
    metadata = {key: _uids(run, each[key]) for key in _METADATA if key in each}
    prefix = each.get("generateName", "")[:_NAME_KEPT]
    return {"name": None if new else each["slice"], "prefix": prefix, "metadata": metadata, "spec": each["spec"]}


def _seen(run: Run, body: Json) -> Json:
    metadata = body["metadata"]
    return {
        "name": metadata["name"],
        "fixed": metadata["name"] in run.fixed_names,
        "metadata": {key: metadata[key] for key in _METADATA if metadata.get(key)},
        "spec": _undated({key: value for key, value in body["spec"].items() if value is not None}),
    }


def _lower(state: list[Json], found: list[Json]) -> list[str]:
    """After a failure fewer writes may have been needed: lower, but one generation for a pool, and the right number."""
    faults = []
    for place in {_place(each) for each in state}:
        most = max(each["spec"]["pool"]["generation"] for each in state if _place(each) == place)
        pool = [each["spec"]["pool"] for each in found if _place(each) == place]
        if len({each["generation"] for each in pool}) > 1 or any(each["generation"] > most for each in pool):
            faults.append(f"generations of pool {place}: {pool}")
    return faults


def _place(each: Json) -> tuple[str, str]:
    return each["spec"]["driver"], each["spec"]["pool"]["name"]


def _without_generation(spec: Json) -> Json:
    return {**spec, "pool": {**spec["pool"], "generation": 0}}


def _undated(part: Any) -> Any:
    if isinstance(part, dict):
        return {
            key: "<now>" if key == "timeAdded" and _recent(value) else _undated(value) for key, value in part.items()
        }
    return [_undated(each) for each in part] if isinstance(part, list) else part


def _recent(text: str) -> bool:
    moment = instant(text)
    return moment is not None and abs(time.time() - moment.timestamp()) < _NOW


def _uids(run: Run, part: Any) -> Any:
    if isinstance(part, str) and part.startswith("$uid:"):
        return run.uids[part.removeprefix("$uid:")]
    if isinstance(part, dict):
        return {key: _uids(run, value) for key, value in part.items()}
    return [_uids(run, each) for each in part] if isinstance(part, list) else part


Kind = tuple[Any, ...]

_UNTOLD = ("DRAListTypeAttributes", "DRANodeAllocatableResources")
"""Gates that the reference does not name though their fields were dropped."""


def _expected_kinds(errors: list[Json]) -> list[Kind]:
    kinds: list[Kind] = []
    for each in errors:
        dropped = each.get("droppedFields")
        if dropped:
            features = dropped["disabledFeatures"]
            kinds.append(("dropped", dropped["pool"], dropped["sliceIndex"], tuple(features) if features else None))
        elif "code" in each:
            kinds.append(("refused", each["code"]))
        else:
            kinds.append(("connection",) if "connection lost" in each["error"] else ("checked",))
    return kinds


def _kinds(errors: list[Exception]) -> list[Kind]:
    kinds: list[Kind] = []
    for error in errors:
        if isinstance(error, DroppedFieldsError):
            features = tuple([gate for gate in error.disabled_features() if gate not in _UNTOLD])
            kinds.append(("dropped", error.pool_name, error.slice_index, features or None))
        elif isinstance(error, InvalidSlice):
            # Found before the server was asked, which would have answered as it did to the reference.
            kinds.append(("refused", 422))
        elif isinstance(error, InvalidPool | WrongPools):
            kinds.append(("checked",))
        elif isinstance(error, RequestError):
            kinds.append(("refused", error.status) if error.status else ("connection",))
        else:
            kinds.append(("unexpected", repr(error)))
    return kinds


def _same_kind(expected: Kind, told: Kind) -> bool:
    """Where the reference has no explanation for dropped fields, ours is welcome."""
    unexplained = expected[0] == "dropped" and expected[3] is None
    return expected == told or (unexplained and expected[:3] == told[:3])
