"""The prompt's commands about claims, typed at the real command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "dra"


def prompt(typed: str, node: str = "h100-sxm-8") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ostler", "sandbox", "--node", node],
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("Commands:")[2]


def test_prompt_runs_pods_with_claims(tmp_path: Path) -> None:
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(_MANIFEST)
    empty = tmp_path / "other.yaml"
    empty.write_text("kind: Deployment\n---\n---\njust text\n")
    typed = [
        "slices", "slices gpu-0000-9d-00-0", "slices nothing", "claim 4 cell4", "claim", "claims", "claim 4 cell4",
        "explain claim-pod-3", "pods", "status",
        "end claim-pod-1", "retry claim-pod-3", "end claim-pod-3", "end claim-pod-2",
        f"apply {manifest}", "apply /nonexistent.yaml", f"apply {empty}", "claim none", "claim 0", "retry nobody",
        "restart-kubelet", "kill-agent", "end mine", "claims", "quit",
    ]  # fmt: skip
    said = prompt("\n".join(typed) + "\n")
    assert (
        ": pool h100-sxm-8, generation 1, 18 devices\n     gpu-0000-df-00-0  NVIDIA H100 80GB HBM3  memory=81559Mi  "
        in said
    )
    assert "name: gpu-0000-9d-00-0\n   addressingMode: None\n" in said
    assert "no slice has a device 'nothing'" in said
    assert '→ it would fit here with count: 3 in request "gpu"' in said
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
    assert said.endswith("ostler>    - claim: shared\nostler> ")


_MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec:
  devices:
    requests:
      - {name: gpu, exactly: {deviceClassName: gpu.ostler.dev}}
---
apiVersion: v1
kind: Pod
metadata: {name: mine}
spec:
  containers:
    - name: main
      image: none
      resources: {claims: [{name: gpu}]}
  resourceClaims:
    - {name: gpu, resourceClaimName: shared}
"""


def test_prompt_tells_who_has_what_and_how_devices_are() -> None:
    typed = [
        "holds", "give nvidia.com/gpu 1", "claim", "slices", "holds", "capacity",
        "end pod-8", "end claim-pod-1", "holds",
        "fail 0", "health --faults", "heal 0", "health --faults",
        'health set gpu-0000-df-00-0 unhealthy --reason "a noise"', "slices gpu-0000-df-00-0", "capacity",
        "health clear gpu-0000-df-00-0", "capacity", "holds release gpu-0000-df-00-0", "holds nonsense", "quit",
    ]  # fmt: skip
    answers = prompt("\n".join(typed) + "\n").split("ostler> ")[1:]
    said = dict(zip(enumerate(typed), answers, strict=True))
    nobody = "   no device is held, and none is withheld from a door because of a hold\n"
    assert said[0, "holds"] == said[8, "holds"] == nobody
    held = said[4, "holds"]
    assert "held through the plugin door by default/pod-8" in held
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


def test_prompt_goes_on_when_what_an_evicted_pod_had_is_free(tmp_path: Path) -> None:
    rule = tmp_path / "rule.yaml"
    rule.write_text(_RULE)
    typed = ["claim 8", f"apply {rule}", "holds", "claim 7", "claim", "quit"]
    said = prompt("\n".join(typed) + "\n").split("ostler> ")[1:]
    evicted = "pod claim-pod-1 is evicted: device ostler.dev/h100-sxm-8/gpu-0000-df-00-0 of claim claim-pod-1-devices-"
    assert evicted in said[1]
    assert " has the taint example.com/noise=heard:NoExecute\n" in said[1]
    assert said[2] == "   no device is held, and none is withheld from a door because of a hold\n"
    assert "phase: Running\n" in said[3]
    assert "phase: Pending\n" in said[4]


def test_prompt_waits_for_what_a_pod_of_another_namespace_had(tmp_path: Path) -> None:
    manifest = tmp_path / "team.yaml"
    team = _MANIFEST.replace("metadata: {name:", "metadata: {namespace: team, name:")
    manifest.write_text(f"kind: Namespace\nmetadata: {{name: team}}\n---{team}")
    said = prompt(f"apply {manifest}\nholds\nend mine\nholds\nquit\n").split("ostler> ")[1:]
    assert " team/shared " in said[1]
    assert said[3] == "   no device is held, and none is withheld from a door because of a hold\n"


_RULE = """
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: noise}
spec:
  deviceSelector: {driver: ostler.dev, pool: h100-sxm-8, device: gpu-0000-df-00-0}
  taint: {key: example.com/noise, value: heard, effect: NoExecute}
"""


def test_node_without_claims_says_so() -> None:
    # Of this machine's own devices none is given to claims, unless a configuration says so.
    said = prompt("slices\nclaims\nclaim\nend p\nquit\n", node="here")
    assert said.count("   none\n") == 2
    assert "0/1 nodes are available: 1 cannot allocate all claims" in said
    assert "there is no pod 'p'" in said


def test_examples_run_at_the_prompt() -> None:
    """Those that need no MIG device and no resource's name at both doors."""
    examples = sorted(each.parent.name for each in EXAMPLES.glob("*/manifest.yaml"))
    served = [name for name in examples if name not in ("mig", "extended-resource")]
    assert len(served) == 6
    lines = [f"apply {EXAMPLES / name / 'manifest.yaml'}\nend {name}" for name in served]
    said = prompt("\n".join([*lines, "claims", "quit"]) + "\n")
    assert said.count("phase: Running") == 6, said
    assert said.endswith("ostler>    none\nostler> ")
