"""DRA drivers that are broken on purpose: each fails the rule that it breaks, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.apiserver.server import ApiServer
from sandbox.conformance.driver_rules import DRIVER_RULES
from sandbox.conformance.driver_testbed import DriverTestbed
from sandbox.conformance.rule import RuleVerdict, judge
from sandbox.conformance.testbed import ConformancePace
from tests.sandbox.conformance.flawed_driver import ENDS_ITSELF, DriverInProcess
from tests.sandbox.conformance.judging import Seen, judged_once

# The first test makes all runs, for every worker.
pytestmark = pytest.mark.timeout(1800)

NONE = "none"
PACE = ConformancePace(patience=60, call=60, quiet=0.05, grace=1.0, away=0.2, slices=60, calls=50)
"""Of drivers that are never waited for in vain, however slow the machine is.

Their sizes are made up and grow with every claim, so that one claim a round proves as much as two.
"""
IMPATIENT = replace(PACE, patience=8, call=8, slices=8)
SILENT = ("publishes", "restores-slices", "registry-after-kubelet", "starts-before-kubelet")
"""Flaws that are seen by what does not come; they begin first, for they take longest."""
SEEN = {
    "driver-name": "GetInfo.name is 'GPU.example.com'; it must be a DNS subdomain of at most 63 characters, such as",
    "endpoint": "it must be the socket's absolute path, without a scheme such as unix://",
    "services": "GetInfo.supported_versions is ['v1', 'v1.DRAResourceHealth']; it must name services: one of "
    "v1.DRAPlugin, v1beta1.DRAPlugin",
    "serves-what-it-lists": "it lists v1.DRAResourceHealth, but NodeWatchResources is not implemented",
    "registry-calls": "NotifyRegistrationStatus failed with UNIMPLEMENTED: (no text); kubelets from 1.36 on deregister",
    "publishes": "no ResourceSlice has spec.driver 'gpu.example.com' 8 s after its registration",
    "unique-devices": "pool conformance has the device 'gpu-0' twice",
    "owned-by-node": "slice gpu.example.com-0 has no owner reference to the Node conformance and its UID ",
    "prepares": "a claim with the device conformance/gpu-0 is answered with the devices conformance/gpu-9",
    "repeats-prepare": "a second NodePrepareResources for the same claim: it is prepared already",
    "answers-every-claim": "NodePrepareResources for 2 claims lacks 0 and has 1 others",
    "judges-each-claim": "2 claims in one call: NodePrepareResources failed with INTERNAL: there is no device ",
    "checks-claims": "a claim that was replaced by another of its name is prepared; it must be refused",
    "guards-devices": "a second claim with the device conformance/gpu-0, which a claim has, is prepared; it must be ",
    "prepares-in-parallel": "a claim: NodePrepareResources failed with UNAVAILABLE: one claim at a time",
    "unprepares-unknown": "a claim that was never prepared: the claim is not known",
    "repeats-unprepare": "a second NodeUnprepareResources for the same claim: it was released",
    "unprepares-deleted": "a claim that is gone at the API server: resourceclaims.resource.k8s.io ",
    "cdi-files": ".json has no cdiVersion",
    "removes-cdi-files": "after NodeUnprepareResources gpu.example.com-claim_",
    "health-reports": "a health report has 2 devices and lacks 'gpu-2' of 4 published ones",
    "does-not-grow": "memory grew in every round of 1 claim that came and went: by 2000 KiB, 2000 KiB, 2000 KiB",
    "restores-slices": "its slices were deleted, and none is back after 8 s",
    "registry-after-kubelet": "after a restart of the kubelet, which looks into plugins_registry: gpu.example.com did",
    "restarts-between": "after a restart of the driver, the claim cannot be prepared again: a predecessor prepared it",
    "killed-between": "a claim that was prepared before the driver was killed: gpu.example.com-claim_",
    "starts-before-kubelet": "the kubelet started after the driver: gpu.example.com did not register within 8 s",
    "ends-in-grace": "it still ran 1 s after SIGTERM, and was killed",
    "removes-sockets": "it ended and left ",
    "keeps-slices": "it deleted slices at its end; a driver that is updated would take its devices away meanwhile",
}
"""What is seen of each flaw, which has the name of its rule."""


async def judged(root: Path, name: str) -> list[RuleVerdict]:
    flaws = () if name == NONE else (name,)
    folders = [root / part for part in ("kubelet", "cdi", "state")]
    for folder in folders:
        folder.mkdir()
    kubelet, cdi, state = folders
    with ApiServer() as server:
        program = DriverInProcess(kubelet, server, cdi, state, *flaws)
        pace = IMPATIENT if name in SILENT else PACE
        bed = DriverTestbed(kubelet, program, pace, server, cdi=[cdi], state=state)
        try:
            return await judge(DRIVER_RULES, bed)
        finally:
            await bed.discard()


@pytest.fixture
def seen(run_dir: Path) -> Mapping[str, Seen]:
    names = dict.fromkeys((*SILENT, *SEEN, ENDS_ITSELF, NONE))
    return judged_once(run_dir / "flawed-drivers.json", names, judged)


def test_a_driver_without_flaws_keeps_every_rule(seen: Mapping[str, Seen]) -> None:
    assert set(seen[NONE]["passed"]) == {rule.name for rule in DRIVER_RULES}, seen[NONE]


def test_a_driver_may_leave_it_to_kubernetes_to_start_it_again(seen: Mapping[str, Seen]) -> None:
    assert seen[ENDS_ITSELF]["failed"] == {}
    again = "it registered when it was started again, as a DaemonSet does: the driver ended with exit code 1"
    assert {rule for rule, text in seen[ENDS_ITSELF]["passed"].items() if again in text} == {"starts-before-kubelet"}


@pytest.mark.parametrize("flaw", SEEN)
def test_a_flawed_driver_fails_its_rule_and_no_other(seen: Mapping[str, Seen], flaw: str) -> None:
    failed = seen[flaw]["failed"]
    assert list(failed) == [flaw], failed
    assert SEEN[flaw] in failed[flaw]
    assert seen[flaw]["not judged"] == {}


def test_every_rule_has_a_driver_that_breaks_it() -> None:
    assert set(SEEN) == {rule.name for rule in DRIVER_RULES} - {"registers"}
