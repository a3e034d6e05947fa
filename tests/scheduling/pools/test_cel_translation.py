"""Constraints of pools as selectors of Kubernetes, and the way back: what each becomes, and what is refused."""

from __future__ import annotations

import pytest

from scheduling.pools.flat_cel import AttributeKind, SliceName, UntranslatableConstraint, selector_of
from scheduling.pools.selector_cel import FlatSelector, flat_selector
from tests.making.clusters import GPU, MODEL, ROOT

KINDS = {"release": AttributeKind.VERSION, "ecc": AttributeKind.FLAG, "size": AttributeKind.QUANTITY}


def resolved(name: str) -> SliceName:
    domain, _, identifier = name.rpartition("/")
    return SliceName(domain or "d", identifier, KINDS.get(identifier, AttributeKind.PLAIN))


@pytest.mark.parametrize(
    ("constraint", "selector"),
    [
        ("device.model == 'a'", "device.attributes[\"d\"].model == 'a'"),
        ("has(device.model) && (device).n > 1", 'has(device.attributes["d"].model) && device.attributes["d"].n > 1'),
        (f"device['{ROOT}'] != ''", "device.attributes[\"resource.kubernetes.io\"].pcieRoot != ''"),
        (
            "'x' in device || device.?y.orValue(1) == 2",
            '"x" in device.attributes["d"] || device.attributes["d"].?y.orValue(1) == 2',
        ),
        ("device[?'y'].hasValue()", 'device.attributes["d"][?"y"].hasValue()'),
        ("[1].exists(each, device.n == each)", '[1].exists(each, device.attributes["d"].n == each)'),
        ("device.release == '1.2.3'", 'device.attributes["d"].release.compareTo(semver("1.2.3")) == 0'),
        ("'1.2.3' != device.release", 'device.attributes["d"].release.compareTo(semver("1.2.3")) != 0'),
        ("device.ecc == 'true'", "string(device.attributes[\"d\"].ecc) == 'true'"),
        ("has(device.size)", 'has(device.capacity["d"].size)'),
        ("device['in'] == 1", 'device.attributes["d"]["in"] == 1'),
    ],
)
def test_constraints_become_selectors(constraint: str, selector: str) -> None:
    assert selector_of(constraint, resolved) == selector


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ("device.model = 'a'", "is no expression: unexpected character '='"),
        ("device", "uses the whole map device; read its attributes by name"),
        ("device.all(key, key != '')", "uses the whole map device; read its attributes by name"),
        ("device['a' + 'b'] == 1", "computes the name of an attribute; write the name"),
        ("[1].all(device, device > 0)", "calls a variable of its own device; give it another name"),
        ("device.size > 1", "uses the value of size, which is a quantity; request an amount"),
        ("device.release.startsWith('1')", "uses the version release as a text; compare it by == or != with a version"),
        ("device.release == '1'", "uses the version release as a text; compare it by == or != with a version such as"),
        ("device.?ecc.hasValue()", "reads ecc as an optional, which v1 holds as true or false"),
    ],
)
def test_what_no_selector_says_is_refused(constraint: str, message: str) -> None:
    with pytest.raises(UntranslatableConstraint) as caught:
        selector_of(constraint, resolved)
    assert str(caught.value).startswith(message)


def flat(domain: str, name: str) -> str:
    return name if domain == GPU else f"{domain}/{name}"


@pytest.mark.parametrize(
    ("selector", "driver", "constraint"),
    [
        (f'device.driver == "{GPU}"', GPU, ""),
        (f"{MODEL} == 'a' && '{GPU}' == device.driver", GPU, "device.model == 'a'"),
        (f"{MODEL} == 'a' || {MODEL} == 'b'", "", "device.model == 'a' || device.model == 'b'"),
        (
            f"device.driver == '{GPU}' && ({MODEL} == 'a' || has({MODEL}))",
            GPU,
            "(device.model == 'a' || has(device.model))",
        ),
        (f"'model' in device.attributes['{GPU}']", "", '"model" in device'),
        ("device.attributes['x.com'].y == 1", "", 'device["x.com/y"] == 1'),
        ("has(device.attributes['x.com'].y)", "", '"x.com/y" in device'),
        (f"device.attributes['{GPU}'].?n.orValue(1) == 1", "", "device.?n.orValue(1) == 1"),
    ],
)
def test_selectors_become_constraints(selector: str, driver: str, constraint: str) -> None:
    assert flat_selector(selector, flat) == FlatSelector(driver, constraint)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("device.driver = 'a'", "is no expression: unexpected character '='"),
        ("device.driver == 'a' && device.driver == 'b'", "names several drivers: a, b"),
        ("device.driver == 'a' || true", "reads more of the device than attributes by name"),
        (f"device.capacity['{GPU}'].memory.isGreaterThan(quantity('1'))", "reads more of the device than attributes"),
        ("[1].all(device, device > 0)", "calls a variable of its own device"),
    ],
)
def test_what_no_constraint_says_is_refused(selector: str, message: str) -> None:
    with pytest.raises(UntranslatableConstraint) as caught:
        flat_selector(selector, flat)
    assert str(caught.value).startswith(message)
