"""What a NIC's claim says in its status, by an agent of its own process: once it is prepared, and after a restart."""

from __future__ import annotations

from typing import Any

from sandbox.cluster import samples
from sandbox.nodes import path
from tests.ostler.agent.claimed_node import ClaimedNode
from tests.waiting import eventually

ANNOTATION = "resource.kubernetes.io/pod-claim-name"
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


async def test_annotation_of_200_kib_on_a_claim_makes_small_files_that_the_agent_reads_after_a_restart() -> None:
    async with ClaimedNode(path("sriov-2"), resources=[RULE]) as box:
        made = samples.template("nics", 8, kind="nic")
        metadata = {"name": "mine", "namespace": "default", "annotations": {ANNOTATION: "x" * (200 << 10)}}
        await box.control.apply([{**made, "kind": "ResourceClaim", "metadata": metadata, "spec": made["spec"]["spec"]}])
        pod = samples.pod("p", "")
        pod["spec"]["resourceClaims"] = [
            {"name": each["name"], "resourceClaimName": "mine"} for each in pod["spec"]["resourceClaims"]
        ]
        outcome = await box.control.run(pod)
        assert outcome.running, outcome.message
        (file,) = box.cdi_files()
        assert "PCIDEVICE_MINE__NIC=" in file.read_text()
        (record,) = (box.root / "state" / "claims").iterdir()
        assert file.stat().st_size + record.stat().st_size < 128 << 10
        await box.agent.stop()
        await box.agent.start()
        await box.registered()
        assert [each.name for each in record.parent.iterdir()] == [record.name]
        await box.control.end("p")
