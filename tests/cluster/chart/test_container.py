"""The chart with its defaults, seen from inside the agent's container."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from tests.cluster.chart.release import Release
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.processes import ProcessNotReady, wait_until

pytestmark = pytest.mark.timeout(1200)  # the first test may have to build the image

MOUNTS = {
    "/var/lib/kubelet/device-plugins": "rw",
    "/var/lib/kubelet/plugins_registry": "rw",
    "/var/lib/kubelet/pod-resources": "ro",
    "/var/lib/ostler": "rw",
    "/run": "rw",
    "/etc/ostler": "ro",
    "/host/dev": "ro",
    "/etc/machine-id": "ro",
}
"""The table of the chart's page, for its defaults."""
RUNTIMES = {
    "/": "ro",
    "/etc/hosts": "rw",
    "/etc/hostname": "rw",
    "/etc/resolv.conf": "rw",
    "/dev/termination-log": "rw",
    "/run/termination-log": "rw",
    "/run/secrets/kubernetes.io/serviceaccount": "ro",
    "/var/run/secrets/kubernetes.io/serviceaccount": "ro",
}
"""What kubelet and container runtime mount in every container."""
LOOK = """
import json, os
status = dict(line.split(':', 1) for line in open('/proc/1/status').read().splitlines())
mounts = [line.split() for line in open('/proc/1/mountinfo').read().splitlines()]
def written(path):
    try:
        open(path, 'w').close()
        return ''
    except OSError as error:
        return error.strerror
def opened(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
        return ''
    except OSError as error:
        return error.strerror
print(json.dumps({
    'status': {name: value.split() for name, value in status.items()},
    'mounts': {mount[4]: mount[5].split(',')[0] for mount in mounts},
    'root': written('/etc/strange'),
    'machine id': written('/etc/machine-id'),
    'device': opened('/host/dev/strange'),
    'shared memory': written('/host/dev/shm/strange'),
}))
"""
"""Run by the image's own Python: what process 1 is and may do."""


@pytest.fixture(scope="module")
def inside(installed: Release, cluster: RigCluster) -> Any:
    """What ``LOOK`` finds, where the node has a device that containers have no rule for: the kernel's log."""
    cluster.nodes[0].run("sh", "-c", "test -e /dev/strange || mknod /dev/strange c 1 11")
    return json.loads(installed.execute("python3", "-c", LOOK))


def test_the_agent_has_no_capability_and_cannot_get_any(inside: Any) -> None:
    status = inside["status"]
    assert status["Uid"] == status["Gid"] == ["0"] * 4
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name][0], 16) == 0, name
    assert status["NoNewPrivs"] == ["1"]
    assert status["Seccomp"] == ["2"]


def test_the_container_has_the_mounts_of_the_table_and_no_other(inside: Any) -> None:
    ours = {
        path: mode
        for path, mode in inside["mounts"].items()
        if path not in RUNTIMES and not path.startswith(("/proc", "/sys", "/dev", "/host/dev/"))
    }
    assert ours == MOUNTS
    assert inside["mounts"]["/"] == "ro"
    assert {mode for path, mode in inside["mounts"].items() if path.startswith("/host/dev/")} <= {"ro"}


def test_nothing_of_the_node_can_be_written_or_opened(inside: Any) -> None:
    assert inside["root"] == "Read-only file system"
    assert inside["machine id"] == "Read-only file system"
    assert inside["shared memory"] == "Read-only file system"
    assert inside["device"] == "Operation not permitted"


def test_status_has_nothing_to_complain_of_where_no_rule_is_about_nics(installed: Release) -> None:
    wait_until("the agent listens to hardware", lambda: {"events", "network", "sysfs"} <= working(installed))
    status = installed.ask("status")
    assert (status["role"], status["ready"]) == ("active", True)
    states = {source["name"]: source["state"] for source in status["sources"]}
    assert states["events"] == states["network"] == states["sysfs"] == "ok"
    assert not [reason for reason in status["reasons"] if reason.startswith(("events", "network", "sysfs"))]
    assert "active, ready" in installed.execute("ostler", "status")


def working(release: Release) -> set[str]:
    """The names of the agent's sources that work."""
    return {source["name"] for source in release.ask("status")["sources"] if source["state"] == "ok"}


def test_devices_of_the_node_are_shown(installed: Release) -> None:
    assert [source["name"] for source in installed.ask("devices")["sources"] if source["state"] == "failed"] == []
    shown = installed.execute("ostler", "devices")
    assert "network:" not in shown, "what is not seen of interfaces is no matter without rules about NICs"


def test_doctor_finds_what_it_needs_and_nothing_wrong(installed: Release, node: RigNode) -> None:
    well = {
        "configuration", "machine-id", "rights", "uevents", "rtnetlink", "agent-socket", "agent-ready", "agent-lock",
        "agent-http", "state-folder", "kubelet-device-plugins", "kubelet-registry", "kubelet-socket",
        "kubelet-pod-resources", "registration", "foreign-plugins", "kubernetes-api", "kubernetes-node",
        "holds-containers", "agent-kubelet-lock",
    }  # fmt: skip
    results: dict[str, Any] = {}

    def is_well() -> bool:
        results.update({result["name"]: result for result in installed.ask("doctor")["checks"]})
        return all(results[name]["verdict"] == "ok" for name in well)

    # An agent that has just begun still looks for some of it.
    with contextlib.suppress(ProcessNotReady):
        wait_until("all is well", is_well)
    assert {name: results[name]["found"] for name in well if results[name]["verdict"] != "ok"} == {}
    assert [name for name, result in results.items() if result["verdict"] in {"failed", "error"}] == []
    assert node.name in results["kubernetes-api"]["found"]


def test_what_people_must_know_is_told_on_the_node(installed: Release, cluster: RigCluster, node: RigNode) -> None:
    installed.execute("ostler", "quiesce", "--reason", "new driver")
    try:
        wait_until("kubectl shows it", lambda: "new driver" in cluster.kubectl("describe", "node", node.name))
        shown = cluster.kubectl("describe", "node", node.name)
        # Other tests have quiesced agents of this node for other reasons.
        (line,) = [line for line in shown[shown.index("Events:") :].splitlines() if "new driver" in line]
        assert line.split()[:2] == ["Normal", "Quiesced"]
        before = resumed(installed.api, node)
    finally:
        installed.execute("ostler", "resume")
    wait_until("the end of it is told, too", lambda: resumed(installed.api, node) > before)
    assert "Resumed" in cluster.kubectl("describe", "node", node.name)


def resumed(api: RigApi, node: RigNode) -> int:
    """How often people were told that an agent of this node was resumed."""
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={node.name},reason=Resumed"
    return sum(event.get("count") or 1 for event in api.items(path))
