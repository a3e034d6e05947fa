"""Compares our controller with Kubernetes' on generated scenarios.

``python -m tests.judge.slices.contest --seed 1 --count 200``

Both play the same scenarios: the reference against real API servers, ours against the stand-in, so that a difference of
the two servers shows as well. What differs is played again by the reference, whose order of updates is random, before
it counts. Exit status 1 when there was a difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from driver.slices.errors import InvalidSlice
from tests.driver.slices.judging import judge
from tests.driver.slices.scenario import Run
from tests.judge.chance import Json
from tests.judge.slices.build import judge as built
from tests.judge.slices.generate import scenarios
from tests.judge.slices.servers import TOKEN, Servers, servers

OPINIONS = 4
"""How often the reference plays a scenario in which ours differs."""
_ASKING = ("start", "restart", "update", "updates")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0, help="number of the first scenario")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="a file for the differing scenarios, in the vectors' format")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    with servers() as running:
        played = play(running, list(scenarios(options.seed, options.first, options.count)))
        problems = [each for each in played if "problem" in each]
        differing = differences(running, [each for each in played if "problem" not in each])
    for each, step, faults in differing:
        print(f"{each['id']}, step {step}, {each['steps'][step]['action']['do']}:", *faults, sep="\n  ")
    for each in problems:
        print(f"{each['id']} cannot be played: {each['problem']}")
    if options.keep and differing:
        options.keep.write_text(json.dumps([each for each, _, _ in differing], indent=1))
    print(
        f"{len(played) - len(problems)} scenarios played, {len(differing)} differ, {time.monotonic() - start:.0f} s;"
        f" {len(problems)} could not be played"
    )
    return 1 if differing else 0


def play(running: Servers, given: Sequence[Json]) -> list[Json]:
    """What the reference does, in the order of the scenarios: each with its expectations, or a ``problem``."""
    command: list[str | Path] = [built(), "-default", running.default, "-gates-off", running.gates_off, "-token", TOKEN]
    # With it on, the reference never finishes its first list of a single pool.
    environment = {**os.environ, "KUBE_FEATURE_WatchListClient": "false"}
    with tempfile.TemporaryFile("w+") as lines:
        lines.write("\n".join([json.dumps(each) for each in given]))
        lines.seek(0)
        done = subprocess.run(command, stdin=lines, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    answers = {each["id"]: each for each in map(json.loads, done.stdout.splitlines())}
    return [answers[each["id"]] for each in given]


def differences(running: Servers, played: Sequence[Json]) -> list[tuple[Json, int, list[str]]]:
    """The scenarios in which ours differs, with the step and how; the reference is asked again about them."""
    differing = [each for each in played if compare(each) is not None]
    for _ in range(OPINIONS - 1):
        again = play(running, [unjudged(each) for each in differing])
        differing = [merged(each, other) for each, other in zip(differing, again, strict=True)]
        differing = [each for each in differing if compare(each) is not None]
    found = [(each, compare(each)) for each in differing]
    return [(each, *fault) for each, fault in found if fault is not None]


def unjudged(played: Json) -> Json:
    """The scenario without the expectations."""
    return {**played, "steps": [{"action": each["action"]} for each in played["steps"]]}


def merged(one: Json, other: Json) -> Json:
    """One scenario that either playing of it fulfils."""
    steps = [
        {"action": first["action"], "expect": _merged(first["expect"], second["expect"])}
        for first, second in zip(one["steps"], other["steps"], strict=True)
    ]
    return {**one, "steps": steps}


def _merged(one: Json, other: Json) -> Json:
    counts = {
        what: [min(least, other["counts"][what][0]), max(most, other["counts"][what][1])]
        for what, (least, most) in one["counts"].items()
    }
    states = [*one.get("otherStates", []), other["state"]]
    never = one.get("neverIdle", False) or other.get("neverIdle", False)
    return {**one, "counts": counts, "otherStates": states, "neverIdle": never, "alsoTold": other["errors"]}


def compare(played: Json) -> tuple[int, list[str]] | None:
    """The first step in which ours does otherwise, and how; None where it does the same."""
    run = Run(played)
    generations = not any(each["expect"].get("neverIdle") for each in played["steps"])
    earlier: list[Json] = []
    failed, replaced, step = False, False, 0
    try:
        for step, each in enumerate(played["steps"]):
            action, expect = each["action"], each["expect"]
            if _blocked(expect):
                return None
            run.step(action)
            failed = failed or bool(expect["errors"] or action.get("faults"))
            asked = action["do"] in _ASKING and not action.get("faults")
            if played["server"] != "default" and any(isinstance(error, InvalidSlice) for error in run.errors):
                # Ours goes by the rules of a server with all features; this one may accept it without the fields.
                return None
            replaced = replaced or failed or len(run.successes()) < expect["counts"]["total"][0]
            expect = _without_accidents(run, expect, action)
            faults = judge(
                run, expect, generations=generations, failed=failed, earlier=earlier, asked=asked, names=not replaced
            )
            if faults:
                return step, faults
            earlier = [*earlier, *each["expect"]["errors"]]
    except Exception:  # noqa: BLE001 - the report tells it
        return step, [traceback.format_exc()]
    finally:
        run.close()
    return None


def _blocked(expect: Json) -> bool:
    """Whether a contradiction in one pool keeps the reference from all pools, which ours must not do."""
    return any("code" not in each and "found" in each["error"] for each in expect["errors"])


def _without_accidents(run: Run, expect: Json, action: Json) -> Json:
    """Leave out what is told of faults that were made and of conflicts: fewer writes meet fewer of them.

    Of several wishes at once, those in between may never be looked at.
    """
    codes = {404, 409, *[each["status"] for each in action.get("faults", [])]}
    codes |= {0} if action.get("faults") else set()
    run.errors[:] = [each for each in run.errors if getattr(each, "status", 422) not in codes]
    told = [each for each in expect["errors"] if each.get("droppedFields") or each.get("code", 0) not in codes]
    if action["do"] == "updates":
        run.errors.clear()
        told = []
    return {**expect, "errors": told}


if __name__ == "__main__":
    sys.exit(main())
