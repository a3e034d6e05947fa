"""What a NIC's claim says in its status, by an agent of its own process: once it is prepared, and after a restart."""

from __future__ import annotations

from typing import Any

from sandbox.cluster import samples
from sandbox.nodes import path
from tests.agent.claimed_node import ClaimedNode
from tests.waiting import eventually

RULE = {"name": "example.com/nic", "door": "dra", "devices": {"kind": "nic"}}


def entries(box: ClaimedNode) -> list[dict[str, Any]]:
    """Of the one claim there is."""
    (claim,) = box.api.store.list("resourceclaims")
    return list(claim["status"].get("devices") or ())


async def test_status_of_a_nic_s_claim_is_written_and_written_again_after_a_restart_where_it_is_missing() -> None:
    async with ClaimedNode(path("sriov-2"), resources=[RULE]) as box:
        await box.control.apply([samples.template("nic", kind="nic")])
        await box.running("p", "nic")
        (entry,) = await eventually(lambda: entries(box), "the entry")
        assert (entry["driver"], entry["pool"]) == ("ostler.dev", "sandbox")
        conditions = {each["type"]: (each["status"], each["reason"]) for each in entry["conditions"]}
        assert conditions == {"Ready": ("True", "DevicePrepared"), "NetworkReady": ("False", "InterfaceNotMoved")}
        (claim,) = box.api.store.list("resourceclaims")
        await box.agent.stop()
        box.api.store.patch("resourceclaims", claim["metadata"]["name"], {"status": {"devices": None}}, part="status")
        assert not entries(box)
        await box.agent.start()
        (again,) = await eventually(lambda: entries(box), "the entry again")
        assert again["device"] == entry["device"]
        await box.control.end("p")


async def test_status_that_may_not_be_written_is_told_and_costs_the_pod_nothing() -> None:
    async with ClaimedNode(path("sriov-2"), resources=[RULE]) as box:
        await box.control.apply([samples.template("nic", kind="nic")])
        # The first one is the scheduler's.
        fault = box.api.faults.add("update", "status", 403, skip=1, count=-1, resource="resourceclaims")
        await box.running("p", "nic")

        async def told() -> bool:
            events = (await box.agent.status()).events
            return any(
                "give the agent's account the verbs update and patch on resourceclaims/status" in each.message
                for each in events
            )

        await eventually(told, "an event names the right")
        assert fault.hits == 1, "it is not fought"
        assert not entries(box)
