"""Everything but regular expressions works without the extra; those say what to install. In a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

VECTORS = Path(__file__).parent / "recorded" / "evaluations.jsonl"
PATTERNS = ("matches(", ".find(", ".findAll(")
SCRIPT = """
import json, sys

class Refuser:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("re2", "_re2"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuser())

from scheduling.cel.compiler import compile
from scheduling.cel.device import CelDevice
from scheduling.cel.environment import CelFeatures
from scheduling.cel.errors import CelError

first, *cases = sys.stdin.read().splitlines()
device = CelDevice("gpu.example.com", json.loads(first)["device"])
for case in cases:
    try:
        found = compile(json.loads(case)["expr"], CelFeatures(list_attributes=True)).evaluate(device)
        print(json.dumps({"result": found.result, "cost": found.cost}))
    except CelError as error:
        print(json.dumps({"error": error.message}))
"""


def _answers(lines: list[str]) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_everything_but_patterns_is_answered_as_recorded() -> None:
    device, *cases = VECTORS.read_text().splitlines()
    plain = [case for case in cases if not any(each in json.loads(case)["expr"] for each in PATTERNS)]
    found = _answers([device, *plain])
    assert len(found) == len(plain) > 500
    for case, answer in zip(plain, found, strict=True):
        wanted = json.loads(case)
        if "result" in wanted["answer"]:
            assert answer == wanted["answer"], wanted["expr"]
        else:
            assert "re2" not in str(answer["error"]), wanted["expr"]


def test_a_pattern_says_what_to_install() -> None:
    device = VECTORS.read_text().splitlines()[0]
    expressions = [
        "device.driver.matches('a')",
        "device.driver.find('a') == ''",
        "device.driver.findAll('a') == []",
        "device.driver.matches(device.driver)",
        "matches('a', 'a')",
    ]
    found = _answers([device, *(json.dumps({"expr": each}) for each in expressions)])
    text = "regular expressions need the library google-re2: pip install 'ostler[explain]'"
    assert found == [{"error": text}] * len(expressions)
