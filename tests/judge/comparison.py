"""Says where two answers differ, by the rules of the vectors' README (chapters 1.4 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scheduling.api.quantities import Quantity, parse

Json = dict[str, Any]

DEFAULT_COST_LIMIT = 1_000_000
UNJUDGED = ("timeout", "panic", "died", "input_error")
CEL_VERDICTS = ("compile_error", "runtime_error", "result")


def allocation_differences(ours: Json, theirs: Json) -> list[str]:
    """Each difference as one line that names its place; empty when the answers are equal.

    `ours` may carry real share IDs, `theirs` carries `*` for each. Error texts are not compared.
    """
    found: list[str] = []
    kinds = ours.get("errorKind"), theirs.get("errorKind")
    if kinds[0] != kinds[1]:
        found.append(f"errorKind: {kinds[0]} ({ours.get('error')}), not {kinds[1]} ({theirs.get('error')})")
    found += _different("results", _hidden(ours.get("results")), theirs.get("results"))
    found += _repeated_shares(ours.get("results"))
    for number, (one, other) in enumerate(zip(ours.get("more", ()), theirs.get("more", ()), strict=False), 2):
        if not unjudged(other):
            found += [f"node {number}: {each}" for each in allocation_differences(one, other)]
    return found


def unjudged(answer: Json) -> str | None:
    """Why the judge has no answer, None where it has one."""
    return next((why for why in UNJUDGED if why in answer), None)


def expected(case: Json) -> Json | None:
    """What Kubernetes 1.37 answers to a case of the allocator's vectors; None where it is not known."""
    answer: Json | None = case.get("expect_1_37", case.get("expect"))
    return answer


def cel_differences(ours: Json, theirs: Json, *, cost: bool = True) -> list[str]:
    """Each difference as one line; texts of errors are not compared. `cost`: compare costs and estimates exactly."""
    if cel_verdict(ours) != cel_verdict(theirs):
        return [f"{_said(ours)}, not {_said(theirs)}"]
    if theirs.get("result_varies"):
        return []
    fields = ["result", "compile_error_type", "estimate_exceeds_limit", "cost_exceeded_at_runtime"]
    # Not every answer has these.
    fields += [
        field for field in ("output_type", "max_cost", "cost") if field in theirs and (cost or "cost" not in field)
    ]
    differing = (field for field in fields if ours.get(field) != theirs.get(field))
    return [f"{field}: {ours.get(field)}, not {theirs.get(field)}" for field in differing]


def cel_expected(case: Json) -> Json:
    """What Kubernetes 1.37 answers to a case of the vectors of CEL."""
    answer = {name: case[name] for name in (*CEL_VERDICTS, *_CEL_FIELDS) if name in case}
    newer: Json = case.get("v1_37", {})
    if any(verdict in newer for verdict in CEL_VERDICTS):
        for name in (*CEL_VERDICTS, "compile_error_type"):
            answer.pop(name, None)
    answer.update(newer)
    if "output_type" not in newer and answer.get("output_type") != "bool":
        # The vectors do not say what an attribute's type became.
        answer.pop("output_type", None)
    if answer.get("max_cost", 0) > case.get("cost_limit", DEFAULT_COST_LIMIT):
        answer["estimate_exceeds_limit"] = True
    return answer


_CEL_FIELDS = (
    "compile_error_type",
    "output_type",
    "max_cost",
    "estimate_exceeds_limit",
    "cost_exceeded_at_runtime",
    "cost",
    "cost_varies",
)


def cel_verdict(answer: Json) -> str:
    """Which of compile error, runtime error and result an answer is; its keys where it is none of them."""
    return next((verdict for verdict in CEL_VERDICTS if verdict in answer), ",".join(answer))


def _said(answer: Json) -> str:
    verdict = cel_verdict(answer)
    return f"{verdict} {answer.get(verdict)!r}"


def _different(place: str, ours: Any, theirs: Any) -> Iterator[str]:
    """Places where two JSON values differ; quantities compare by value."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if place.endswith(".consumedCapacity") and _quantities(ours) == _quantities(theirs):
            return
        for key in sorted({*ours, *theirs}):
            if key not in ours:
                yield f"{place}.{key}: missing, must be {theirs[key]!r}"
            elif key not in theirs:
                yield f"{place}.{key}: {ours[key]!r}, must not be there"
            else:
                yield from _different(f"{place}.{key}", ours[key], theirs[key])
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{place}: {len(ours)} entries, not {len(theirs)}: {ours!r}, not {theirs!r}"
            return
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _different(f"{place}[{index}]", one, other)
    elif type(ours) is not type(theirs) or ours != theirs:
        yield f"{place}: {ours!r}, not {theirs!r}"


def _quantities(values: Json) -> dict[str, Quantity]:
    return {name: parse(str(value)) for name, value in values.items()}


def _hidden(value: Any) -> Any:
    """The same with `*` for each share ID."""
    if isinstance(value, dict):
        return {key: "*" if key == "shareID" and each else _hidden(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(each) for each in value]
    return value


def _repeated_shares(results: Any) -> Iterator[str]:
    seen: set[str] = set()
    for result in results or ():
        for device in result.get("devices", {}).get("results", ()):
            share = device.get("shareID")
            # The judge has looked itself before it hid them.
            if share in seen and share != "*":
                yield f"share ID {share} was given twice"
            if share:
                seen.add(share)
