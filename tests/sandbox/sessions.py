"""What is typed at the sandbox's prompt and what it answers: a sandbox serves every test that types at its node.

Each scene leaves the node as the next one needs it: nothing is held when it ends, but claims and taints may stay.
Names of pods count on over all scenes of a session. Standard input is a pipe, a file and /dev/null in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.making.tours import made_once, sandbox

EXAMPLES = Path(__file__).parents[2] / "examples" / "dra"
OWN_CONFIGURATION = {"mig", "extended-resource", "gpu-share", "mps", "mig-on-demand", "moved-nic"}
SERVED = sorted({each.parent.name for each in EXAMPLES.glob("*/manifest.yaml")} - OWN_CONFIGURATION)
"""Examples that need no MIG device and no configuration of their own."""
PROMPT = "ostler> "

_SHARED = """
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
MANIFESTS = {
    "pod.yaml": _SHARED,
    "team.yaml": "kind: Namespace\nmetadata: {name: team}\n---"
    + _SHARED.replace("metadata: {name:", "metadata: {namespace: team, name:"),
    "fit.yaml": """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec:
  spec:
    devices:
      requests:
        - {name: gpu, exactly: {deviceClassName: gpu.ostler.dev}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  template:
    spec:
      containers: [{name: main, image: none}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
""",
    "other.yaml": "kind: Deployment\n---\n---\njust text\n",
    "rule.yaml": """
apiVersion: resource.k8s.io/v1beta2
kind: DeviceTaintRule
metadata: {name: noise}
spec:
  deviceSelector: {driver: ostler.dev, pool: h100-sxm-8, device: gpu-0000-df-00-0}
  taint: {key: example.com/noise, value: heard, effect: NoExecute}
""",
}
"""Files of a folder that ``{}`` stands for."""


@dataclass(frozen=True, slots=True)
class Typed:
    """How a sandbox is started, and what is typed at its prompt, by scene."""

    words: Sequence[str]
    scenes: Mapping[str, Sequence[str]]
    by_file: bool = False


SESSIONS: Mapping[str, Typed] = {
    "both doors": Typed(
        ("--node", "h100-sxm-8"),
        {
            "examples": [
                *(word for name in SERVED for word in (f"apply {EXAMPLES}/{name}/manifest.yaml", f"end {name}")),
                "claims",
            ],
            "holds": [
                "holds", "give nvidia.com/gpu 1", "claim", "slices", "holds", "capacity",
                "end pod-10", "end claim-pod-1", "holds",
                "fail 0", "health --faults", "heal 0", "health --faults",
                'health set gpu-0000-df-00-0 unhealthy --reason "a noise"', "slices gpu-0000-df-00-0", "capacity",
                "health clear gpu-0000-df-00-0", "capacity", "holds release gpu-0000-df-00-0", "holds nonsense",
            ],
            "evicted": ["claim 8", "apply {}/rule.yaml", "holds", "claim 7", "claim"],
            "end": ["quit"],
        },
    ),
    "verbose": Typed(
        ("--node", "h100-sxm-8", "--verbose"),
        {
            "pods": [
                "slices", "slices gpu-0000-9d-00-0", "slices nothing", "claim 4 cell4", "claim", "claims",
                "claim 4 cell4", "explain claim-pod-3", "pods", "status",
                "fit {}/fit.yaml", "fit {}/fit.yaml max", "fit",
                "pools", 'pools explain "9 gpu, same numaNode"',
                "end claim-pod-1", "retry claim-pod-3", "end claim-pod-3", "end claim-pod-2",
                "apply {}/pod.yaml", "apply /nonexistent.yaml", "apply {}/other.yaml",
                "claim none", "claim 0", "retry nobody", "restart-kubelet", "kill-agent", "end mine", "claims",
            ],
            "namespace": ["apply {}/team.yaml", "holds", "end mine", "holds"],
        },
        by_file=True,
    ),
    "nics": Typed(
        ("--node", "sriov-2"),
        {
            "nics": [
                "give ostler.dev/roce 1 ostler.dev/nic 2", "pods", "fail ens1f0np0", "heal 0000:17:00.0",
                "fail 0000:17:00.6", "take ens1f0v0", "heal ens1f0v0", "unplug ens2", "slices", "heal ens2",
                "unplug ens1f0np0", "capacity",
            ],
            "end": ["quit"],
        },
    ),
    "nothing": Typed(("--node", "a100-mig-4"), {}, by_file=True),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Session:
    """``story``: what is printed up to the first prompt; ``scenes``: the answer to each line that was typed."""

    story: str
    scenes: Mapping[str, Sequence[str]]

    def said(self, scene: str) -> str:
        """All answers of a scene."""
        return "".join(self.scenes[scene])


def session(name: str, run_dir: Path) -> _Session:
    """One of ``SESSIONS`` as it went."""
    typed = SESSIONS[name]
    out = made_once(run_dir / f"session-{name.replace(' ', '-')}.txt", lambda: _made(name, run_dir))
    assert out.endswith(PROMPT), "nothing follows 'quit' or the end of the file"
    story, *answers = out.split(PROMPT)
    assert len(answers) == sum(map(len, typed.scenes.values())) + ("end" not in typed.scenes)
    rest = iter(answers)
    return _Session(story, {scene: [next(rest) for _ in lines] for scene, lines in typed.scenes.items()})


def _made(name: str, run_dir: Path) -> str:
    typed = SESSIONS[name]
    folder = run_dir / f"session-{name.replace(' ', '-')}"
    folder.mkdir()
    for file, text in MANIFESTS.items():
        (folder / file).write_text(text)
    lines = "".join(f"{line}\n" for scene in typed.scenes.values() for line in scene).replace("{}", str(folder))
    if typed.by_file:
        (folder / "typed").write_text(lines)
    given = (folder / "typed" if lines else Path("/dev/null")) if typed.by_file else lines
    out, err = sandbox(*typed.words, typed=given)
    assert err == ""
    return out
