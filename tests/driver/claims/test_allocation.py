from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.allocation import allocation_of, name_in_pod, still_here
from driver.claims.model import ClaimError, ConfigSource, DeviceToleration
from kube.bodies import Json
from tests.making.claim_service import DRIVER, GPU0, POOL, claim, opaque, reference, result

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "uid", "status", "allocation", "devices", "results", "config", "reservedFor", "driver"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def test_only_what_is_ours_is_taken() -> None:
    body = claim(
        1,
        result(GPU0, "main/fast", shareID="s1", adminAccess=True, consumedCapacity={"memory": "10Gi"}),
        {**result("disk-0"), "driver": "disk.example.com"},
        config=(
            {"source": "FromClass", "opaque": {"driver": "disk.example.com", "parameters": {}}},
            opaque({"kind": "GpuConfig"}, "main", source="FromClass"),
            opaque({"kind": "GpuConfig"}),
        ),
    )
    allocation = allocation_of(body, reference(), DRIVER)
    [device] = allocation.devices
    assert (device.request, device.main_request, device.key) == ("main/fast", "main", ("node-1", GPU0, "s1"))
    assert device.admin_access
    assert device.amounts == (("memory", 10 << 30),)
    assert [(config.source, config.requests, config.place) for config in allocation.configs] == [
        (ConfigSource.CLASS, ("main",), "status.allocation.devices.config[1].opaque.parameters"),
        (ConfigSource.CLAIM, (), "status.allocation.devices.config[2].opaque.parameters"),
    ]
    assert allocation.reserved_for == ("pod-1",)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (claim(1, {**result(GPU0), "device": 5}), "status.allocation.devices.results[0].device: 5 must be a string"),
        (
            claim(1, {**result(GPU0), "request": ""}),
            "status.allocation.devices.results[0].request: '' must be a string",
        ),
        (claim(1, result(GPU0, shareID=5)), "results[0].shareID: 5 must be a string"),
        (claim(1, result(GPU0, consumedCapacity=[])), "results[0].consumedCapacity: [] must be an object"),
        (
            claim(1, result(GPU0, shareID="s", consumedCapacity={"memory": "much"})),
            'status.allocation.devices.results[0].consumedCapacity.memory: "much" is not a quantity',
        ),
        (claim(1, result(GPU0, tolerations={})), "results[0].tolerations: {} must be a list"),
        (
            claim(1, result(GPU0), config=(opaque("x"),)),  # type: ignore[arg-type]
            "status.allocation.devices.config[0].opaque.parameters: 'x' must be an object",
        ),
        (
            claim(1, result(GPU0), config=({"requests": "r", "opaque": {"driver": DRIVER, "parameters": {}}},)),
            "status.allocation.devices.config[0].requests: 'r' must be a list of names",
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_named(body: dict[str, Json], text: str) -> None:
    with pytest.raises(ClaimError) as refused:
        allocation_of(body, reference(), DRIVER)
    assert text in str(refused.value)


@given(_json)
def test_whatever_the_server_sends_is_an_allocation_or_a_named_error(body: Json) -> None:
    assert still_here(body if isinstance(body, dict) else {}, reference(), DRIVER, POOL) in (True, False)


@pytest.mark.parametrize("value", [None, False, "true", 1, []])
def test_only_true_is_admin_access(value: Json) -> None:
    [device] = allocation_of(claim(1, result(GPU0, adminAccess=value)), reference(), DRIVER).devices
    assert not device.admin_access


def test_a_claim_made_from_a_template_has_the_name_that_the_pod_knows() -> None:
    body = claim(1, result(GPU0))
    assert name_in_pod(body, reference()) == "claim-1"
    body["metadata"] = {"annotations": {"resource.kubernetes.io/pod-claim-name": "gpus"}}
    assert name_in_pod(body, reference()) == "gpus"


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (DeviceToleration(operator="Exists"), True),
        (DeviceToleration("ostler.dev/health", "Exists"), True),
        (DeviceToleration("ostler.dev/health", "Equal", "unhealthy"), True),
        (DeviceToleration("ostler.dev/health", "", "unhealthy", "NoSchedule"), True),
        (DeviceToleration("ostler.dev/health", "Equal", "unknown"), False),
        (DeviceToleration("ostler.dev/gone", "Exists"), False),
        (DeviceToleration("ostler.dev/health", "Exists", effect="NoExecute"), False),
        (DeviceToleration(operator="Equal", value="unhealthy"), False),
        (DeviceToleration(), False),
    ],
)
def test_tolerations_match_as_in_kubernetes(toleration: DeviceToleration, covers: bool) -> None:
    assert toleration.covers("ostler.dev/health", "unhealthy", "NoSchedule") is covers
