"""How results are shown to people and programs."""

from __future__ import annotations

import json

import jsonschema

from ostler.doctor.check import CheckFinding, CheckResult, CheckVerdict, failed, ok, skipped, warning
from ostler.doctor.examination import document, summary, text, worst

RESULTS = (
    CheckResult("clock", "machine", ok("synchronised"), 0.001),
    CheckResult("rights", "machine", warning("user 1000", "run it as root"), 0.002),
    CheckResult("kubelet-socket", "kubelet", failed("nobody listens", "start the kubelet"), 0.5),
    CheckResult("nvml", "drivers", skipped("no GPU"), 0.0),
)
SCHEMA: dict[str, object] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["schema", "version", "nodeName", "verdict", "counts", "checks"],
    "properties": {
        "schema": {"const": "ostler.dev/doctor/v1"},
        "version": {"type": "string"},
        "nodeName": {"type": "string"},
        "verdict": {"enum": ["skipped", "ok", "warning", "error", "failed"]},
        "counts": {
            "type": "object",
            "required": ["skipped", "ok", "warning", "error", "failed"],
            "patternProperties": {".": {"type": "integer", "minimum": 0}},
        },
        "checks": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "subject", "verdict", "found", "fix", "seconds"],
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z-]+$"},
                    "subject": {"type": "string", "pattern": "^[a-z]+$"},
                    "verdict": {"enum": ["skipped", "ok", "warning", "error", "failed"]},
                    "found": {"type": "string", "minLength": 1},
                    "fix": {"type": "string"},
                    "seconds": {"type": "number", "minimum": 0},
                },
            },
        },
    },
}


def test_lines_are_aligned_and_grouped_by_subject_with_the_fix_below() -> None:
    assert text(RESULTS, colour=False).splitlines() == [
        "machine",
        "  ok       clock           synchronised",
        "  warning  rights          user 1000",
        "                           fix: run it as root",
        "",
        "kubelet",
        "  failed   kubelet-socket  nobody listens",
        "                           fix: start the kubelet",
        "",
        "drivers",
        "  skipped  nvml            no GPU",
        "",
        "1 failed, 1 warning, 1 ok, 1 skipped (look at: kubelet-socket)",
    ]


def test_colour_changes_nothing_but_colour() -> None:
    coloured = text(RESULTS, colour=True)
    assert "\x1b[31mfailed " in coloured
    plain = coloured
    for code in ("31", "32", "33", "2", "0"):
        plain = plain.replace(f"\x1b[{code}m", "")
    assert plain == text(RESULTS, colour=False)


def test_control_characters_of_a_finding_do_not_reach_the_terminal() -> None:
    hostile = (CheckResult("clock", "machine", CheckFinding(CheckVerdict.FAILED, "\x1b[2Jgone", "rm \x07"), 0.0),)
    assert "\x1b" not in text(hostile, colour=False)
    assert "\\x1b[2Jgone" in text(hostile, colour=False)


def test_the_data_has_the_form_that_its_schema_says() -> None:
    data = document(RESULTS, "node-1")
    jsonschema.validate(json.loads(json.dumps(data)), SCHEMA)
    assert data["verdict"] == "failed"
    assert data["counts"] == {"skipped": 1, "ok": 1, "warning": 1, "error": 0, "failed": 1}


def test_nothing_checked_is_said() -> None:
    assert summary(()) == "nothing was checked"
    assert worst(()) is CheckVerdict.SKIPPED


def test_warnings_alone_are_not_bad() -> None:
    assert not worst(RESULTS[:2]).bad
    assert worst(RESULTS).bad
