"""The prompt's commands about claims, typed at the real command."""

from __future__ import annotations

from pathlib import Path

from tests.making.tours import executed_sandbox
from tests.sandbox.sessions import SERVED, SESSIONS, session

NOBODY = "   no device is held, and none is withheld from a door because of a hold\n"


def test_prompt_runs_pods_with_claims(run_dir: Path) -> None:
    answers = session("verbose", run_dir).scenes["pods"]
    said = "".join(answers)
    assert (
        ": pool h100-sxm-8, generation 3, 18 devices\n     gpu-0000-df-00-0  NVIDIA H100 80GB HBM3  memory=81559Mi  "
        in said
    )
    assert "name: gpu-0000-9d-00-0\n   addressingMode: None\n" in said
    assert "no slice has a device 'nothing'" in said
    assert '→ it would fit here with count: 3 in request "gpu"' in said
    assert "   all 2 pods fit on h100-sxm-8\n" in said
    assert "   1 copy fits on h100-sxm-8\n" in said
    assert "usage: fit FILE [COPIES]" in said
    assert "h100-sxm-8, gpu NVIDIA H100 80GB HBM3 [" in said
    assert "claims[0] (type gpu): 8 of 18 devices suit, " in said
    assert "for claims, pool h100-sxm-8: 18/18 without a taint" in said
    assert "reservedFor:\n     - claim-pod-1\n" in said
    assert "message: '0/1 nodes are available: 1 cannot allocate all claims'" in said
    assert "claim-pod-3: Pending\n" in said
    assert said.count("phase: Running") == 4
    assert "pod: mine" in said
    assert "   ResourceClaim shared created\n" in said
    assert "   /nonexistent.yaml: No such file or directory\n" in said
    assert "kind 'Deployment' is not served here; must be one of " in said
    assert said.count("usage: claim [COUNT [MATCH]]") == 2
    assert 'pods "nobody" not found' in said
    assert "killed and started again" in said
    assert answers[-1] == "   - claim: shared\n"


def test_prompt_tells_who_has_what_and_how_devices_are(run_dir: Path) -> None:
    typed = SESSIONS["both doors"].scenes["holds"]
    said = dict(zip(enumerate(typed), session("both doors", run_dir).scenes["holds"], strict=True))
    assert said[0, "holds"] == said[8, "holds"] == NOBODY
    held = said[4, "holds"]
    assert "held through the plugin door by default/pod-10" in held
    assert "held through the dra door by default/claim-pod-1-" in held
    assert said[3, "slices"].count("taint ostler.dev/other-door=plugin:NoSchedule") == 1
    assert "nvidia.com/gpu:\n     capacity: 8\n     allocatable: 7\n" in said[5, "capacity"]
    assert "  unhealthy  lost   " in said[10, "health --faults"]
    assert said[12, "health --faults"] == "   every device is healthy\n"
    assert "gpu-0000-df-00-0 healthy -> unhealthy (a noise)" in said[13, typed[13]]
    assert "ostler.dev/health=unhealthy:NoSchedule" in said[14, typed[14]]
    assert "allocatable: 7" in said[15, "capacity"]
    assert "gpu-0000-df-00-0 unhealthy -> healthy" in said[16, typed[16]]
    assert "allocatable: 8" in said[17, "capacity"]
    assert "device gpu-0000-df-00-0 is not held" in said[18, typed[18]]
    assert "'ostler holds nonsense' failed: " in said[19, "holds nonsense"]


def test_prompt_goes_on_when_what_an_evicted_pod_had_is_free(run_dir: Path) -> None:
    running, evicting, holds, seven, one = session("both doors", run_dir).scenes["evicted"]
    assert "phase: Running\n" in running
    evicted = "pod claim-pod-2 is evicted: device ostler.dev/h100-sxm-8/gpu-0000-df-00-0 of claim claim-pod-2-devices-"
    assert evicted in evicting
    assert " has the taint example.com/noise=heard:NoExecute\n" in evicting
    assert holds == NOBODY
    assert "phase: Running\n" in seven
    assert "phase: Pending\n" in one


def test_prompt_waits_for_what_a_pod_of_another_namespace_had(run_dir: Path) -> None:
    _, held, _, ended = session("verbose", run_dir).scenes["namespace"]
    assert " team/shared " in held
    assert ended == NOBODY


def test_node_without_claims_says_so() -> None:
    # Of this machine's own devices none is given to claims, unless a configuration says so. This one is
    # the prompt of a new process, whose standard input is a pipe.
    out, _ = executed_sandbox("--node", "here", typed="slices\nclaims\nclaim\nend p\nquit\n")
    said = out.partition("Commands:")[2]
    assert said.count("   none\n") == 2
    assert "0/1 nodes are available: 1 cannot allocate all claims" in said
    assert "there is no pod 'p'" in said


def test_examples_run_at_the_prompt(run_dir: Path) -> None:
    assert len(SERVED) == 6
    found = session("both doors", run_dir)
    said = found.said("examples")
    assert said.count("phase: Running") == 6, said
    assert found.scenes["examples"][-1] == "   none\n"
