"""Every alert fires when it must, not before its time and not for what is well, and says what it is about."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.ostler.metrics.alert_cases import AGENT, CASES, FURTHER, Case, Series
from tests.ostler.metrics.promtool import run
from tests.ostler.metrics.test_table import documented, documented_values

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy/alerts/ostler.rules.yaml"
PAGE = ROOT / "docs/metrics.md"
SEVERITIES = ("critical", "warning", "info")


@cache
def alerts() -> dict[str, dict[str, object]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def texts_of(name: str) -> dict[str, str]:
    found = alerts()[name]["annotations"]
    assert isinstance(found, dict)
    return found


def rendered(template: str, labels: dict[str, str], value: str) -> str:
    """What Prometheus makes of the two forms that our templates use."""
    text = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels.get(found[1], ""), template)
    return re.sub(r"{{ \$value( \| \w+)? }}", value, text)


def seconds(duration: object) -> int:
    found = re.fullmatch(r"(\d+)([smhd])", str(duration))
    assert found is not None
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def scraped(series: Series) -> list[dict[str, str]]:
    found = []
    for name, values in series.items():
        bare, _, labels = name.partition("{")
        own = ",".join(f'{label}="{value}"' for label, value in AGENT.items() if f'{label}="' not in labels)
        found.append({"series": f"{bare}{{{own}{',' if labels else ''}{labels or '}'}", "values": values})
    return found


def expected(name: str, case: Case) -> dict[str, object]:
    rule = alerts()[name]
    assert isinstance(rule["labels"], dict)
    labels = {**(AGENT if case.scraped else {}), **case.labels}
    return {
        "exp_labels": {name: value for name, value in {**labels, **rule["labels"]}.items() if value},
        "exp_annotations": {key: rendered(text, labels, case.value) for key, text in texts_of(name).items()},
    }


def runs(name: str, case: Case) -> list[dict[str, object]]:
    """promtool's runs for one alert: the one in which it fires and those in which it stays quiet."""
    pending = seconds(alerts()[name]["for"]) - 60

    def asked(at: int, *alert: dict[str, object]) -> dict[str, object]:
        return {"eval_time": f"{at}s", "alertname": name, "exp_alerts": list(alert)}

    fires = [asked(case.at * 60, expected(name, case))]
    found = [(case.fires, [asked(pending), *fires] if pending else fires)]
    found += [(series, [asked(case.at * 60)]) for series in (case.quiet, *case.quiet_too)]
    return [{"interval": "1m", "input_series": scraped(series), "alert_rule_test": tests} for series, tests in found]


def judged(folder: Path, tests: Mapping[str, Sequence[Mapping[str, object]]]) -> tuple[int, str]:
    """What promtool says of each alert's tests. It evaluates every rule that it is given, so an alert's alone is."""
    paths = []
    # JSON is YAML, and nothing in it is taken for something else.
    for name, its_tests in tests.items():
        rules, path = folder / f"{name}.rules.yaml", folder / f"{name}.test.yaml"
        rules.write_text(json.dumps({"groups": [{"name": name, "rules": [alerts()[name]]}]}))
        path.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": its_tests}))
        paths.append(path)
    return run("test", "rules", *paths)


def test_prometheus_takes_the_rules() -> None:
    code, said = run("check", "rules", "--lint-fatal", RULES)
    assert code == 0, said
    assert f"SUCCESS: {len(alerts())} rules found" in said


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == list(alerts())


def test_each_fires_when_it_must_and_only_then(tmp_path: Path) -> None:
    tests: dict[str, list[dict[str, object]]] = {}
    for name, case in (*CASES.items(), *FURTHER):
        tests.setdefault(name, []).extend(runs(name, case))
    code, said = judged(tmp_path, tests)
    assert code == 0, said


def test_a_case_that_is_wrong_is_seen(tmp_path: Path) -> None:
    case = CASES["OstlerNotReady"]
    quiet_is_loud = {
        "interval": "1m",
        "input_series": scraped(case.quiet),
        "alert_rule_test": [
            {"eval_time": "5m", "alertname": "OstlerNotReady", "exp_alerts": [expected("OstlerNotReady", case)]}
        ],
    }
    code, said = judged(tmp_path, {"OstlerNotReady": [quiet_is_loud]})
    assert code != 0
    assert "alertname: OstlerNotReady" in said


@pytest.mark.parametrize("name", CASES)
def test_it_says_how_bad_what_and_where_to_read_on(name: str) -> None:
    rule = alerts()[name]
    assert seconds(rule["for"]) > 0
    assert isinstance(rule["labels"], dict)
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in SEVERITIES
    texts = texts_of(name)
    assert texts.keys() == {"summary", "description", "runbook_url"}
    assert not texts["summary"].endswith(".")
    assert texts["description"].endswith(".")
    assert texts["runbook_url"] == f"docs/metrics.md#{name.lower()}"
    assert re.search(
        rf"^### {name}\n\n\*{rule['labels']['severity']}, after {rule['for']}\.\*", PAGE.read_text(), re.MULTILINE
    )


def test_alerts_ask_only_for_metrics_that_there_are() -> None:
    known = documented().keys()
    for name, rule in alerts().items():
        asked = set(re.findall(r"\b(?:ostler|process)_[a-z_]+", str(rule["expr"])))
        assert asked or name == "OstlerDown"
        plain = {re.sub(r"_(bucket|sum|count)$", "", metric) for metric in asked}
        assert plain <= known | asked & known, f"{name}: {plain - known}"


def test_alerts_ask_only_for_labels_and_values_that_there_are() -> None:
    labels = {name: set(re.findall(r"`(\w+)`", row["labels"])) for name, row in documented().items()}
    values = documented_values()
    for name, rule in alerts().items():
        for metric, matchers in re.findall(r"\b(ostler_[a-z_]+){(.*?)}", str(rule["expr"])):
            for label, _, value in re.findall(r"(\w+)(=~|!~|!=|=)\"(.*?)\"", matchers):
                assert label in labels[re.sub(r"_bucket$", "", metric)], f"{name}: {label}"
                assert label not in values or set(value.split("|")) <= values[label], f"{name}: {value}"


def test_no_runbook_is_left_without_its_alert() -> None:
    headings = re.findall(r"^### (Ostler\w+)$", PAGE.read_text(), re.MULTILINE)
    assert headings == list(alerts())
