"""The moments of a pod's start are read from the lines that the components of a traced cluster write."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from bench.cluster.moments import Moment, moments, pod_of
from bench.cluster.trace import table

UID = "b0741a03-e1fd-442f-a62d-cf740bdbb37c"
CLAIM = "claim-1-devices-xhfz5"
YEAR = datetime.now(UTC).year


def stamp(milliseconds: float) -> str:
    """A moment of noon's first second."""
    return f"{YEAR}-11-26T12:00:00.{round(1000 * milliseconds):06d}"


def audited(verb: str, resource: str, at: float, *, name: str = "", code: int = 201, **more: Any) -> str:
    """A request that was answered after 1 ms."""
    target, _, part = resource.partition("/")
    event = {
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": more.pop("user", "admin")},
        "userAgent": more.pop("agent", ""),
        "objectRef": {"resource": target, "subresource": part, "name": name},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"{stamp(at)}Z",
        "stageTimestamp": f"{stamp(at + 1)}Z",
        **more,
    }
    return json.dumps(event)


def kubelet(at: float, text: str) -> str:
    local = datetime.fromisoformat(f"{stamp(at)}+00:00").astimezone()
    return f"I{local:%m%d %H:%M:%S.%f}     115 file.go:97] {text}"


def containerd(at: float, text: str, level: str = "info") -> str:
    quoted = text.replace('"', '\\"')
    return f'time="{stamp(at)}993Z" level={level} msg="{quoted}"'


def step(at: float, name: str) -> str:
    seconds = datetime.fromisoformat(f"{stamp(at)}+00:00").timestamp()
    return f'time=x level=debug logger=claims msg="claim step" step={name} uid={UID} at={seconds}'


NODE, SCHEDULER = "system:node:node-1", "system:kube-scheduler"
CONTROLLER = "system:serviceaccount:kube-system:resource-claim-controller"
AUDIT = "\n".join(
    [
        audited("create", "pods", 0, name="claim-1"),
        audited("create", "resourceclaims", 5, responseObject={"metadata": {"name": CLAIM, "uid": UID}}),
        audited(
            "patch", "pods/status", 7, name="claim-1", code=200, user=CONTROLLER,
            requestObject={"status": {"resourceClaimStatuses": [{"name": "devices"}]}},
        ),
        audited("update", "resourceclaims/status", 9, name=CLAIM, code=409, user=SCHEDULER),
        audited("update", "resourceclaims/status", 10, name=CLAIM, code=200, user=SCHEDULER),
        audited("create", "pods/binding", 14, name="claim-1"),
        # The driver's own look at a new pod's claims is not the read of the call.
        audited("get", "resourceclaims", 16, name=CLAIM, code=200, user=NODE, agent="ostler/1.0"),
        audited("get", "resourceclaims", 19, name=CLAIM, code=200, user=NODE, agent="kubelet/v1"),
        audited("get", "resourceclaims", 22, name=CLAIM, code=200, user=NODE, agent="ostler/1.0"),
        audited(
            "patch", "pods/status", 90, name="claim-1", code=200, user=NODE,
            requestObject={"status": {"phase": "Running"}},
        ),
        audited("create", "pods", 200, name="floor-1"),
        audited("create", "pods/binding", 202, name="floor-1"),
        audited("create", "pods", 300, name="floor-2", code=403),
    ]
)  # fmt: skip
KUBELET = "\n".join(
    [
        kubelet(17, '"SyncLoop ADD" source="api" pods=["default/claim-1"]'),
        kubelet(18, '"SyncPod enter" pod="default/claim-1" podUID="190c"'),
        kubelet(
            21, f'"Calling NodePrepareResources rpc" request="claims:{{namespace:\\"default\\"  uid:\\"{UID}\\"}}"'
        ),
        kubelet(
            30, f'"Done calling NodePrepareResources rpc" response="claims:{{key:\\"{UID}\\"  value:{{}}}}" err=null'
        ),
        kubelet(99, '"SyncPod enter" pod="default/claim-1" podUID="190c"'),
        kubelet(204, '"Making allocation request for device plugin" devices=["a"] pod="default/floor-1"'),
        "half a li",
    ]
)
CONTAINERD = "\n".join(
    [
        containerd(31, 'RunPodSandbox for name:"claim-1" uid:"190c" namespace:"default"'),
        containerd(60, 'RunPodSandbox for name:"claim-1" uid:"190c" namespace:"default" returns sandbox id "298c"'),
        containerd(61, 'CreateContainer within sandbox "298c" for container name:"main"'),
        containerd(
            64, f"Container d794: CDI devices from CRI Config.CDIDevices: [ostler.dev/claim={UID}-gpu]", "debug"
        ),
        containerd(66, 'CreateContainer within sandbox "298c" for name:"main" returns container id "d794"'),
        containerd(67, 'StartContainer for "d794"'),
        containerd(80, 'StartContainer for "d794" returns successfully'),
    ]
)
OSTLER = "\n".join(
    [step(at, name) for at, name in ((24, "fetched"), (25, "taken"), (28, "completed"), (28.5, "unheard-of"))]
)


def test_each_moment_is_found() -> None:
    traces = moments(AUDIT, KUBELET, CONTAINERD, OSTLER)
    begin = traces["claim-1"][Moment.ASKED]
    assert {each.name: round(1000 * (at - begin), 3) for each, at in traces["claim-1"].items()} == {
        "ASKED": 0,
        "STORED": 1,
        "CLAIM_MADE": 6,
        "CLAIM_NAMED": 8,
        "ALLOCATED": 11,
        "BOUND": 15,
        "SEEN": 17,
        "SYNCED": 18,
        "KUBELET_READ": 20,
        "PREPARING": 21,
        "READ_BEGUN": 22,
        "READ": 23,
        "FETCHED": 24,
        "TAKEN": 25,
        "COMPLETED": 28,
        "PREPARED": 30,
        "SANDBOX": 31,
        "SANDBOX_MADE": 60,
        "CREATING": 61,
        "INJECTED": 64,
        "CREATED": 66,
        "STARTING": 67,
        "RUNS": 80,
        "REPORTED": 90,
        "RUNNING": 91,
    }
    assert list(traces["floor-1"]) == [Moment.ASKED, Moment.STORED, Moment.BOUND, Moment.ADMITTING]
    assert "floor-2" not in traces, "the API server refused it"


def test_the_table_has_the_hop_and_the_time_since_the_creation() -> None:
    lines = table(moments(AUDIT, KUBELET, CONTAINERD, OSTLER)).splitlines()
    assert lines[0] == (
        "| moment | claim, ostler: hop | claim, ostler: since | claim, Go driver: hop | claim, Go driver: since "
        "| bare plugin: hop | bare plugin: since |"
    )
    cells = {line.split(" | ")[0].removeprefix("| "): line.split(" | ")[1:] for line in lines[2:]}
    assert cells["the pod is bound"] == ["4.0", "15.0", "", "", "2.0", "3.0 |"]
    assert cells["the kubelet has the answer"] == ["2.0", "30.0", "", "", "", " |"]
    assert "the record says started" not in cells, "no pod has it"


def test_the_first_pod_of_a_kind_warms_up() -> None:
    first = moments(AUDIT.replace("claim-1", "claim-0"), "", "", "")
    assert "| the pod is stored | 1.0 | 1.0 |" not in table({name: first[name] for name in ("claim-0",)})


def test_a_claim_is_its_pods() -> None:
    assert pod_of("peer-claim-12-devices-x2b5q") == "peer-claim-12"
