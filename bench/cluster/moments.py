"""The moments of a pod's start, as the logs of a traced cluster have them. Pure.

Sources: the API server's audit log, the kubelet's log (``--v=5``), containerd's and ostler's debug logs. All are
written on one machine, so their clocks are one. Logs name pods, claims, UIDs, sandboxes or containers; each line that
names two of them connects them.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from enum import Enum
from typing import Any


class Moment(Enum):
    """In the order in which they come; the value says what has just happened."""

    ASKED = "the API server gets the pod"
    STORED = "the pod is stored"
    CLAIM_MADE = "the controller has made the claim"
    CLAIM_NAMED = "the pod's status names the claim"
    ALLOCATED = "the scheduler has written allocation and reservation"
    BOUND = "the pod is bound"
    SEEN = "the kubelet sees the pod"
    ADMITTING = "the kubelet asks the device plugin"
    SYNCED = "the kubelet starts to sync the pod"
    KUBELET_READ = "the kubelet has read the claim"
    PREPARING = "the kubelet calls NodePrepareResources"
    READ_BEGUN = "the API server gets the driver's GET of the claim"
    READ = "the GET is answered"
    FETCHED = "ostler has the claim"
    TAKEN = "the ledger has the devices"
    STARTED = "the record says started"
    DESCRIBED = "the CDI file is written"
    COMPLETED = "the record says completed, on disk"
    ANSWERED = "the answer is made"
    PREPARED = "the kubelet has the answer"
    SANDBOX = "containerd begins the sandbox"
    SANDBOX_MADE = "the sandbox runs"
    CREATING = "containerd begins the container"
    INJECTED = "containerd injects the CDI devices"
    CREATED = "the container is created"
    STARTING = "containerd starts the container"
    RUNS = "the container runs"
    REPORTED = "the kubelet reports the pod running"
    RUNNING = "the API server shows the pod running"


_STEPS = {each.name: each for each in Moment}
_KUBELET = re.compile(r"^[IWE](\d{4} \d\d:\d\d:\d\d\.\d{6}) .*?\] (.*)")
_KUBELETS = {
    '"SyncLoop ADD"': Moment.SEEN,
    '"Making allocation request for device plugin"': Moment.ADMITTING,
    '"SyncPod enter"': Moment.SYNCED,
}
_CALLS = {
    '"Calling NodePrepareResources rpc"': Moment.PREPARING,
    '"Done calling NodePrepareResources rpc"': Moment.PREPARED,
}
_POD = re.compile(r"default/([a-z0-9-]+)")
_UID = re.compile(r'(?:uid|key):\\"([0-9a-f-]+)\\"')
_CONTAINERD = re.compile(r'^time="([^"]+)" level=\S+ msg="((?:[^"\\]|\\.)*)"')
_CONTAINERDS = (
    (re.compile(r'RunPodSandbox for name:"(\S+)" .* returns sandbox id "(\w+)"'), Moment.SANDBOX_MADE),
    (re.compile(r'RunPodSandbox for name:"(\S+)"'), Moment.SANDBOX),
    (re.compile(r'CreateContainer within sandbox "(\w+)" for .* returns container id "(\w+)"'), Moment.CREATED),
    (re.compile(r'CreateContainer within sandbox "(\w+)" for container'), Moment.CREATING),
    (re.compile(r"Container (\w+): CDI devices from CRI"), Moment.INJECTED),
    (re.compile(r'StartContainer for "(\w+)" returns successfully'), Moment.RUNS),
    (re.compile(r'StartContainer for "(\w+)"$'), Moment.STARTING),
)
"""Each names a pod, a sandbox or a container first; a second name belongs to the first from then on."""
Trace = dict[Moment, float]


def moments(audit: str, kubelet: str, containerd: str, ostler: str) -> dict[str, Trace]:
    """When each moment of each pod of the default namespace was, in Unix seconds."""
    traces: dict[str, Trace] = {}
    uids: dict[str, str] = {}  # of claims; the values are their pods
    reads: dict[str, list[tuple[float, float]]] = {}
    for event in map(json.loads, audit.splitlines()):
        _audited(event, traces, uids, reads)
    _kubelets(kubelet, traces, uids)
    _containerds(containerd, traces)
    _ostlers(ostler, traces, uids)
    for pod, found in reads.items():
        trace = traces.get(pod, {})
        begun = trace.get(Moment.PREPARING)
        within = [read for read in found if begun is not None and begun <= read[0] <= trace.get(Moment.PREPARED, begun)]
        if within:
            trace[Moment.READ_BEGUN], trace[Moment.READ] = within[0]
    return traces


def pod_of(claim: str) -> str:
    """The pod for which a claim was made from a template: the controller appends the pod's name for it, and letters."""
    return re.sub(r"-devices-\w{5}$", "", claim)


def _audited(
    event: dict[str, Any], traces: dict[str, Trace], uids: dict[str, str], reads: dict[str, list[tuple[float, float]]]
) -> None:
    target = event.get("objectRef", {})
    if event.get("stage") != "ResponseComplete" or event.get("responseStatus", {}).get("code", 500) >= 300:
        return
    began, ended = (_time(event[key]) for key in ("requestReceivedTimestamp", "stageTimestamp"))
    kind = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
    name = target.get("name") or event.get("responseObject", {}).get("metadata", {}).get("name", "")
    agent, verb, user = event.get("userAgent", ""), event["verb"], event["user"]["username"]
    if kind == "resourceclaims" and verb == "create":
        uids[event["responseObject"]["metadata"]["uid"]] = pod_of(name)
        traces.setdefault(pod_of(name), {})[Moment.CLAIM_MADE] = ended
    elif kind == "resourceclaims" and verb == "get":
        if agent.startswith("kubelet"):
            traces.setdefault(pod_of(name), {}).setdefault(Moment.KUBELET_READ, ended)
        elif not user.startswith("system:kube-"):
            reads.setdefault(pod_of(name), []).append((began, ended))
    elif kind == "resourceclaims/status" and user == "system:kube-scheduler":
        traces.setdefault(pod_of(name), {})[Moment.ALLOCATED] = ended
    elif kind == "pods/status":
        trace = traces.setdefault(name, {})
        sent = event.get("requestObject", {}).get("status", {})
        if sent.get("resourceClaimStatuses") and user.endswith("resource-claim-controller"):
            trace.setdefault(Moment.CLAIM_NAMED, ended)
        if sent.get("phase") == "Running" and user.startswith("system:node:"):
            trace.setdefault(Moment.REPORTED, began)
            trace.setdefault(Moment.RUNNING, ended)
    elif kind == "pods" and verb == "create":
        trace = traces.setdefault(name, {})
        trace[Moment.ASKED], trace[Moment.STORED] = began, ended
    elif kind == "pods/binding":
        traces.setdefault(name, {})[Moment.BOUND] = ended


def _kubelets(log: str, traces: dict[str, Trace], uids: dict[str, str]) -> None:
    year = datetime.now(UTC).year
    for line in log.splitlines():
        match = _KUBELET.match(line)
        if match is None:
            continue
        at = datetime.strptime(f"{year}{match[1]}", "%Y%m%d %H:%M:%S.%f").astimezone().timestamp()
        for words, moment in _KUBELETS.items():
            if match[2].startswith(words):
                for pod in _POD.findall(match[2]):
                    traces.setdefault(pod, {}).setdefault(moment, at)
        for words, moment in _CALLS.items():
            if match[2].startswith(words):
                for pod in {uids[uid] for uid in _UID.findall(match[2]) if uid in uids}:
                    traces.setdefault(pod, {}).setdefault(moment, at)


def _containerds(log: str, traces: dict[str, Trace]) -> None:
    found: list[tuple[str, Moment, float]] = []
    owner: dict[str, str] = {}
    for line in log.splitlines():
        match = _CONTAINERD.match(line)
        if match is None:
            continue
        text = match[2].replace('\\"', '"')
        for pattern, moment in _CONTAINERDS:
            named = pattern.search(text)
            if named is not None:
                first, *more = named.groups()
                owner.update(dict.fromkeys(more, first))
                found.append((first, moment, _time(match[1])))
                break
    for name, moment, at in found:
        pod = owner.get(name, name)
        traces.setdefault(owner.get(pod, pod), {}).setdefault(moment, at)


def _ostlers(log: str, traces: dict[str, Trace], uids: dict[str, str]) -> None:
    for found in re.finditer(r'msg="claim step" step=(\w+) uid=(\S+) at=([\d.]+)', log):
        step, uid, at = found.groups()
        moment = _STEPS.get(step.upper())
        if moment is not None and uid in uids:
            traces.setdefault(uids[uid], {}).setdefault(moment, float(at))


def _time(text: str) -> float:
    """Unix seconds; Go writes up to nine digits of a second."""
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp()
