"""Parameters for sharing that a device or claim cannot have are refused; the claim's go before its class's."""

from __future__ import annotations

from typing import Any

import pytest

from driver.names import Peer
from driver.parameters.errors import ParameterError
from kube.bodies import JsonObject
from node.inventory.model import Attribute, Version
from tests.making.claim_service import GPU0, GPU1, claim, offered, opaque, reference, result
from tests.making.claim_sharing import LIMITED, LONG, NVIDIA, OURS, SHARED_RULE, Sharer
from tests.making.devices import gpu

OLD = (Attribute("cudaComputeCapability", Version("6.1.0")),)


@pytest.mark.parametrize(
    ("parameters", "changes", "text"),
    [
        (LONG, {"device": gpu(0, attributes=OLD)}, r"interval: \"Long\": device .* has compute capability 6.1"),
        (LIMITED, {"device": gpu(0, attributes=OLD)}, "MPS limits its clients from 7.0 on; leave the limits out"),
        (LONG, {"rule": SHARED_RULE}, "is a share, and others have the rest of the GPU"),
        (LONG, {"device": gpu(0, vendor="amd")}, "is not an NVIDIA GPU; name the requests of such GPUs"),
        ({**NVIDIA, "sharing": {"strategy": "MPS"}, "kind": "MigDeviceConfig"}, {}, "write kind GpuConfig"),
        ({**OURS, "sharing": {"strategy": "mps", "interval": "long"}}, {}, "strategy mps has no such field; it has"),
        ({**OURS, "sharing": {"strategy": "MPS"}}, {}, '"MPS" is not known; write timeSlicing or mps'),
    ],
)
async def test_what_a_device_cannot_do_is_refused_by_field_value_and_fix(
    sharer: Sharer, parameters: JsonObject, changes: dict[str, Any], text: str
) -> None:
    sharer.node.devices = (offered(**{"device": gpu(0), **changes}),)
    driver = str(Peer.NVIDIA) if parameters is not OURS and "nvidia" in str(parameters["apiVersion"]) else "ostler.dev"
    sharer.node.reader.put(claim(1, result(GPU0), config=(opaque(parameters, "gpu", driver=driver),)))
    async with sharer.process() as service:
        with pytest.raises(ParameterError, match=text) as refused:
            await service.prepare(reference())
    assert str(refused.value).startswith("status.allocation.devices.config[0].opaque.parameters.sharing.")
    assert refused.value.condition == "ParametersRefused"
    assert sharer.smi.slices == {}


@pytest.mark.parametrize("requests", [(), ("gpu",)])
async def test_sharing_that_is_for_no_device_of_the_claim_is_refused(sharer: Sharer, requests: tuple[str, ...]) -> None:
    own: JsonObject = {**OURS, "kind": "MigConfig", "sharing": {"strategy": "mps"}}
    peers: JsonObject = {**NVIDIA, "kind": "MigDeviceConfig", "sharing": {"strategy": "MPS"}}
    for parameters, driver in ((own, "ostler.dev"), (peers, str(Peer.NVIDIA))):
        sharer.node.reader.put(claim(1, result(GPU0), config=(opaque(parameters, *requests, driver=driver),)))
        async with sharer.process() as service:
            with pytest.raises(ParameterError, match=r"write (kind )?GpuConfig"):
                await service.prepare(reference())


async def test_looking_on_changes_nothing(sharer: Sharer) -> None:
    sharer.put(1, GPU0, adminAccess=True)
    async with sharer.process() as service:
        with pytest.raises(ParameterError, match="is only monitored"):
            await service.prepare(reference())


async def test_one_claim_has_one_daemon(sharer: Sharer) -> None:
    first: JsonObject = {**NVIDIA, "sharing": {"strategy": "MPS"}}
    configs = (opaque(first, "a", driver=str(Peer.NVIDIA)), opaque(LIMITED, "b", driver=str(Peer.NVIDIA)))
    sharer.node.reader.put(claim(1, result(GPU0, "a"), result(GPU1, "b"), config=configs))
    async with sharer.process() as service:
        with pytest.raises(ParameterError, match=r"another section for MPS .* a claim for each"):
            await service.prepare(reference())


async def test_the_claims_section_counts_before_that_of_its_class(sharer: Sharer) -> None:
    of_class = opaque(LONG, driver=str(Peer.NVIDIA), source="FromClass")
    sharer.node.reader.put(claim(1, result(GPU0), config=(opaque(NVIDIA, driver=str(Peer.NVIDIA)), of_class)))
    async with sharer.process() as service:
        await service.prepare(reference())
        assert sharer.smi.slices == {}
