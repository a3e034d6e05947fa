"""Plugins that are broken on purpose: each fails the rule that it breaks, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.conformance.plugin_life import AT_ONCE
from sandbox.conformance.plugin_rules import PLUGIN_RULES
from sandbox.conformance.plugin_testbed import PluginTestbed
from sandbox.conformance.rule import RuleVerdict, judge
from sandbox.conformance.testbed import ConformancePace
from tests.sandbox.conformance.flawed_plugin import (
    CRASHES,
    EARLY,
    ENDS_ITSELF,
    ENDS_WITH_STREAM,
    REGISTERS_ONCE,
    PluginInProcess,
)
from tests.sandbox.conformance.judging import Seen, judged_once

# The first test makes all runs, for every worker.
pytestmark = pytest.mark.timeout(1800)

PACE = ConformancePace(patience=240, call=240, quiet=0.05, grace=1.0, away=0.2, calls=AT_ONCE + 1, streams=1)
"""Of plugins that are never waited for in vain, however slow the machine is.

Their sizes are made up and grow with Allocate calls alone, so that one stream proves as much as ten. One call more
than the rules make at once has them go on after the first wave; the flaw under load is to refuse the ninth call while
eight are open.
"""
IMPATIENT = replace(PACE, patience=8, call=4)
SILENT = (
    "registers-after-lost-stream",
    "registers-after-lost-socket",
    "answers-while-registering",
    "registers-after-kubelet",
    "starts-before-kubelet",
    "reports-changes",
    EARLY,
    REGISTERS_ONCE,
)
"""Flaws that are seen by what does not come, and plugins that register without a socket, which the kubelet dials.

They begin first, for they take longest, as do those in plugins_registry, of which a rule waits for Register in vain.
"""

GPU = "a.example/gpu"
SEEN = {
    "resource-name": "resource name 'gpu' has no domain; write it as domain/name, for example example.com/gpu",
    "api-version": f"{GPU}: Register.version is 'v1alpha1'; it must be 'v1beta1'",
    "endpoint": "it must be the socket's file name in device-plugins, without a folder",
    "own-socket": f"{GPU}, a.example/nic are served on one socket, ",
    "options-agree": f"{GPU}: Register.options.pre_start_required is True, GetDevicePluginOptions answers False",
    "options-implemented": f"{GPU}: the options announce PreStartContainer, but it is not implemented",
    "list-stays-open": f"{GPU}: ListAndWatch did not stay open: the plugin ended the stream",
    "full-lists": f"{GPU}: a later message lists 1 devices, a new stream's first 4 (they differ in 'gpu-1', 'gpu-2', "
    "'gpu-3'); every message must list all devices",
    "device-ids": f"{GPU}: IDs are listed more than once: 'gpu-0'",
    "device-health": f"{GPU}: device 'gpu-3' has the health 'healthy'; it must be 'Healthy' or 'Unhealthy'",
    "device-numa": f"{GPU}: device 'gpu-3' has the NUMA node -1; leave topology out of a device without a NUMA node",
    "list-size": f"{GPU}: the list of 4 devices has 52429",
    "allocates": f"{GPU}: for 'gpu-2', which the plugin lists as healthy: Allocate failed with FAILED_PRECONDITION: "
    "not this one",
    "answers-each-container": f"{GPU}: Allocate for 2 containers has 1 container responses",
    "keeps-order": f"{GPU}: Allocate for the containers ('gpu-0') and ('gpu-3') does not answer in this order",
    "repeats-allocate": f"{GPU}: a further Allocate for 'gpu-0': Allocate failed with FAILED_PRECONDITION: in use",
    "refuses-unknown": f"{GPU}: Allocate for 'conformance-no-such-device' succeeds, though one id is unknown",
    "empty-requests": f"{GPU}: Allocate for no container: Allocate failed with UNAVAILABLE: as after a crash",
    CRASHES: f"{GPU}: Allocate for no container: Allocate failed with UNAVAILABLE: ",
    "container-paths": f"{GPU}: Allocate for 'gpu-0': a device's container_path is 'dev/gpu-0'; it must be an absolute",
    "cdi-names": f"{GPU}: Allocate for 'gpu-0': the CDI device 'a.example=gpu-0' is not of the form vendor/class=name",
    "preferred-size": f"{GPU}: of 4 devices 1 are asked for; the answer has 4 ids, 4 of them different",
    "preferred-required": f"{GPU}: of 4 devices 2 are asked for, 'gpu-3' among them; the answer lacks 'gpu-3'",
    "preferred-foreign": f"{GPU}: of 3 devices 1 are asked for; the answer has 'gpu-0', which is not available",
    "preferred-odd": f"{GPU}: for 5 of 4 devices, 0 of them required: GetPreferredAllocation failed with UNAVAILABLE",
    "repeats-pre-start": f"{GPU}: for 'gpu-0': PreStartContainer failed with FAILED_PRECONDITION: started already",
    "serves-load": f"{GPU}: of 17 calls, 16 at once: Allocate failed with RESOURCE_EXHAUSTED: no worker is free",
    "serves-streams": f"{GPU}: with 7 ListAndWatch streams open, a further one is ended",
    "serves-after-lost-stream": f"{GPU}: after the end of a ListAndWatch stream: ListAndWatch: the plugin ended",
    "registers-after-lost-stream": f"after the kubelet lost its ListAndWatch streams: {GPU} did not register again",
    "registers-after-lost-socket": f"after its sockets were deleted: {GPU} did not register again within 8 s",
    "does-not-grow": "memory grew in every round of calls, streams and a restart of the kubelet: by ",
    "answers-while-registering": f"{GPU}: while its Register call was pending: GetDevicePluginOptions failed with "
    "DEADLINE_EXCEEDED: no answer within 4 s; serve the socket before the call, and do not block what answers",
    EARLY: f"{GPU}: while its Register call was pending: the plugin gave its Register call up before it answered; ",
    "registers-after-kubelet": "the kubelet was killed and made a new kubelet.sock at its start: a.example/gpu did",
    "starts-before-kubelet": f"the kubelet started after the plugin: {GPU} did not register within 8 s",
    "keeps-ids": f"{GPU}: after a restart of the plugin, the devices ",
    "ends-in-grace": "it still ran 1 s after SIGTERM, and was killed",
    "removes-sockets": "device-plugins/a.example-gpu.sock",
    "reports-changes": "a device was changed, and no new list came within 8 s",
    "registry-calls": f"{GPU}: NotifyRegistrationStatus failed with UNIMPLEMENTED: (no text); kubelets from 1.36 on",
    "registry-after-kubelet": "after a restart of the kubelet, which looks into plugins_registry: a.example/gpu did",
}
"""What is seen of each flaw. A flaw has the name of its rule, but for those of which one rule sees several."""
RULE = dict.fromkeys(("preferred-size", "preferred-required", "preferred-foreign"), "preferred-legal") | {
    CRASHES: "empty-requests",
    EARLY: "answers-while-registering",
}
NONE, NONE_WATCHED = "none", "none-watched"
NOT_APPLICABLE = {
    NONE: {"registry-calls", "repeats-pre-start", "registry-after-kubelet"},
    NONE_WATCHED: {
        "repeats-pre-start",
        "registers-after-lost-socket",
        "answers-while-registering",
        "options-agree",
        "registers-after-kubelet",
    },
}
"""The rules that do not concern plugins without flaws."""
HABITS = {
    ENDS_ITSELF: {
        "registers-after-lost-socket",
        "does-not-grow",
        "registers-after-kubelet",
        "starts-before-kubelet",
    },
    ENDS_WITH_STREAM: {
        "serves-after-lost-stream",
        "registers-after-lost-stream",
        "registers-after-lost-socket",
        "does-not-grow",
        "registers-after-kubelet",
    },
    REGISTERS_ONCE: {"starts-before-kubelet"},
}
"""What plugins do that break no rule, and the rules in which it is seen."""
WATCHED = ("registry-calls", "registry-after-kubelet")
"""Flaws of plugins that have their socket in plugins_registry."""


async def judged(root: Path, name: str) -> list[RuleVerdict]:
    flaws = () if name in (NONE, NONE_WATCHED) else (name,)
    watched = name in (*WATCHED, NONE_WATCHED)
    program = PluginInProcess(root, *flaws, watched=watched)
    pace = IMPATIENT if watched or name in SILENT else PACE
    bed = PluginTestbed(root, program, pace, change=program.change)
    try:
        return await judge(PLUGIN_RULES, bed)
    finally:
        await bed.discard()


@pytest.fixture
def seen(run_dir: Path) -> Mapping[str, Seen]:
    names = dict.fromkeys((*SILENT, *WATCHED, NONE_WATCHED, *SEEN, *HABITS, NONE))
    return judged_once(run_dir / "flawed-plugins.json", names, judged)


@pytest.mark.parametrize("name", [NONE, NONE_WATCHED])
def test_a_plugin_without_flaws_keeps_every_rule(seen: Mapping[str, Seen], name: str) -> None:
    assert seen[name]["failed"] == {}
    assert seen[name]["not judged"] == {}
    assert set(seen[name]["not applicable"]) == NOT_APPLICABLE[name]


@pytest.mark.parametrize("habit", HABITS)
def test_a_plugin_may_leave_it_to_kubernetes_to_start_it_again(seen: Mapping[str, Seen], habit: str) -> None:
    assert seen[habit]["failed"] == {}
    assert seen[habit]["not judged"] == {}
    again = "it registered when it was started again, as a DaemonSet does: the plugin ended with exit code 1"
    assert {rule for rule, text in seen[habit]["passed"].items() if again in text} == HABITS[habit]


@pytest.mark.parametrize("flaw", SEEN)
def test_a_flawed_plugin_fails_its_rule_and_no_other(seen: Mapping[str, Seen], flaw: str) -> None:
    failed = seen[flaw]["failed"]
    assert list(failed) == [RULE.get(flaw, flaw)], failed
    assert SEEN[flaw] in failed[RULE.get(flaw, flaw)]
    if flaw == CRASHES:
        assert failed["empty-requests"].endswith("; the plugin ended with exit code 1 and wrote no log")
    assert seen[flaw]["not judged"] == {}


def test_every_rule_has_a_plugin_that_breaks_it() -> None:
    assert {RULE.get(flaw, flaw) for flaw in SEEN} == {rule.name for rule in PLUGIN_RULES} - {"registers"}
