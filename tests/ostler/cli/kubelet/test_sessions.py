"""``ostler kubelet``: whole sessions, as scripts, of a plain plugin and of our own plugin and driver."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.kubelet.generations import GENERATIONS
from sandbox.nodes import path
from sandbox.standalone import node
from tests.making.kubelet_scripts import PLAIN, THING, KubeletScript, manifest
from tests.making.namespaces import needs_namespaces


@needs_namespaces
def test_script_shows_what_containers_get_as_json(script: KubeletScript) -> None:
    resources, admitted, again, pods, one, checkpoint, plugins, deleted, early, _ = script.answers(
        "resources", "admit {}/two.yaml", "! admit {}/both.yaml", "pods", "pods two", "checkpoint", "plugins",
        "delete two one many", "admit {}/early.yaml", "log",
        options=("--numa", "2"),
    )  # fmt: skip
    (thing,) = resources["resources"]
    assert (thing["resource"], thing["capacity"], thing["allocatable"], thing["inUse"]) == (THING, 4, 4, 0)
    assert thing["devices"][1] == {"id": "dev-1", "health": "Healthy", "numa": [1]}
    assert admitted == {
        "command": "admit {}/two.yaml",
        "ok": True,
        "pods": [
            {
                "pod": "two",
                "namespace": "default",
                "phase": "Running",
                "containers": [
                    {
                        "name": "main",
                        "kind": "app",
                        "devices": {THING: [{"id": "dev-0", "numa": [0]}, {"id": "dev-1", "numa": [1]}]},
                        "env": {"DEVICES": "dev-0,dev-1"},
                        "mounts": [],
                        "deviceNodes": [
                            {"hostPath": f"/dev/dev-{n}", "containerPath": f"/dev/dev-{n}", "permissions": "rw"}
                            for n in (0, 1)
                        ],
                        "annotations": {},
                        "cdiDevices": [],
                    }
                ],
            }
        ],
    }
    assert [(pod["pod"], pod["phase"]) for pod in again["pods"]] == [("one", "Running"), ("many", "Failed")]
    assert again["pods"][1]["reason"] == "UnexpectedAdmissionError"
    assert again["pods"][1]["message"] == (
        f"Allocate failed due to requested number of devices unavailable for {THING}. Requested: 9, Available: 1, "
        "which is unexpected"
    )
    assert again["failed"] == "pod many is Failed: UnexpectedAdmissionError"
    assert [pod["pod"] for pod in pods["pods"]] == ["two", "one", "many"]
    assert one["pods"] == admitted["pods"]
    assert {entry["pod"]: entry["devices"] for entry in checkpoint["entries"]} == {
        "one": [{"id": "dev-2", "numa": 0}],
        "two": [{"id": "dev-0", "numa": 0}, {"id": "dev-1", "numa": 1}],
    }
    assert checkpoint["registered"] == {THING: ["dev-0", "dev-1", "dev-2", "dev-3"]}
    assert [(each["name"], each["door"]) for each in plugins["registered"]] == [(THING, "Register")]
    assert plugins["process"]["running"]
    assert deleted["deleted"] == ["two", "one", "many"]
    kinds = {each["name"]: (each["kind"], each["devices"][THING][0]["id"]) for each in early["pods"][0]["containers"]}
    assert kinds == {"prepare": ("init", "dev-0"), "side": ("sidecar", "dev-0"), "main": ("app", "dev-1")}
    assert script.err.startswith("plugin | node node\n")


@needs_namespaces
def test_script_prints_tables_with_its_steps(script: KubeletScript) -> None:
    out = script.run("admit {}/two.yaml", "pods", "resources", "# a comment", "", "resources " + THING, "quit", "pods")
    assert out == (
        "kubelet> admit {}/two.yaml\n"
        "two: Running\n"
        "  main (app)\n"
        "    plain.example/thing  dev-0, dev-1 (NUMA 0, 1)\n"
        "    env          DEVICES=dev-0,dev-1\n"
        "    device node  /dev/dev-0 (rw)\n"
        "    device node  /dev/dev-1 (rw)\n"
        "kubelet> pods\n"
        "POD  PHASE    DEVICES\n"
        "two  Running  main: plain.example/thing dev-0, dev-1\n"
        "kubelet> resources\n"
        + (
            table := "RESOURCE             CAPACITY  ALLOCATABLE  IN USE\n"
            "plain.example/thing  4         4            2\n"
            "\n"
            "plain.example/thing\n"
            "  DEVICE  HEALTH   NUMA  HELD BY\n"
            "  dev-0   Healthy  0     two/main\n"
            "  dev-1   Healthy  1     two/main\n"
            "  dev-2   Healthy  0     -\n"
            "  dev-3   Healthy  1     -\n"
        )
        + "kubelet> resources plain.example/thing\n"
        + table
    )


@needs_namespaces
@pytest.mark.parametrize("door", ["register", "watcher"])
def test_ends_and_restarts_of_both_sides(script: KubeletScript, door: str) -> None:
    answers = script.answers(
        "admit {}/two.yaml", "restart", "pods two", "kill plugin", "resources", "plugins", "restart plugin",
        "resources", "kill", "! resources", "! admit {}/three.yaml", "plugins", "restart kubelet",
        "wait plain.example/thing 4", "watch 0", "delete two", "admit {}/three.yaml",
        command=(*PLAIN, "--door", door),
    )  # fmt: skip
    restarted, kept, killed, gone, dead, started, back, _, _, down, ended, again = answers[1:13]
    assert (restarted["registered"], restarted["refused"]) == ([THING], [])
    assert kept["pods"] == answers[0]["pods"]
    assert killed["killed"] == "plugin"
    assert (gone["resources"][0]["capacity"], gone["resources"][0]["allocatable"]) == (4, 0)
    assert gone["resources"][0]["devices"][0] == {
        "id": "dev-0",
        "health": "Unhealthy",
        "numa": [0],
        "heldBy": "two/main",
    }
    assert not dead["process"]["running"]
    assert dead["process"]["exit"] == "was killed by SIGKILL"
    assert started["registered"] == [THING]
    assert back["resources"][0]["allocatable"] == 4
    assert down["failed"] == "the kubelet is not running; 'restart' starts it"
    assert ended["registered"] == []
    assert again["registered"] == [THING]


@needs_namespaces
@pytest.mark.parametrize("end", ["restart", "kill"])
def test_plugin_that_ends_with_the_kubelet_is_started_again(script: KubeletScript, end: str) -> None:
    steps = ("admit {}/two.yaml", *(("kill",) if end == "kill" else ()), "restart", "pods two")
    admitted, *_, restarted, kept = script.answers(*steps, command=(*PLAIN, "--end-with-stream"))
    assert restarted["registered"] == [THING]
    assert kept["pods"] == admitted["pods"]
    again = r"^kubelet \| plugin '.*' is started again, as Kubernetes does with a container of a DaemonSet$"
    assert re.search(again, script.err, re.MULTILINE)


@needs_namespaces
def test_restart_of_the_plugin_waits_for_every_resource(script: KubeletScript) -> None:
    plain = shlex.join(PLAIN)
    other = f"{plain} --resource plain.example/other --socket other.sock"
    answers = script.answers(
        "wait plain.example/other 4", f"wait {THING} 4", "kill plugin", "restart plugin",
        command=("sh", "-c", f"{other} & exec {plain}"),
    )  # fmt: skip
    assert answers[-1]["registered"] == ["plain.example/other", THING]


@needs_namespaces
def test_start_waits_for_every_resource_of_a_plugin(script: KubeletScript, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may take longer from one registration to the next than the node waits for it.
    monkeypatch.setattr(node, "QUIET_SECONDS", 1.0)
    more = ("--more", "plain.example/a", "--more", "plain.example/b")
    (answer,) = script.answers("plugins", command=(*PLAIN, *more))
    assert [each["name"] for each in answer["registered"]] == ["plain.example/a", "plain.example/b", THING]


@needs_namespaces
def test_restarted_kubelet_refuses_a_pod_whose_init_container_has_ended(script: KubeletScript) -> None:
    out = script.run("admit {}/early.yaml", "! restart")
    assert (
        f"early: Failed: UnexpectedAdmissionError: Allocate failed due to no healthy devices present; cannot allocate "
        f"unhealthy devices {THING}, which is unexpected\n"
        "a kubelet admits its pods again before plugins are back; a container that still runs keeps its devices, an "
        "init container that has ended makes it refuse the pod\n"
        "failed: the restarted kubelet refused pod early: UnexpectedAdmissionError: Allocate failed due to "
    ) in out


@needs_namespaces
def test_watched_events_are_lines_of_json(script: KubeletScript, monkeypatch: pytest.MonkeyPatch) -> None:
    out = script.run("watch 1", options=("-o", "json"), command=(*PLAIN, "--flap"))
    events = [json.loads(line) for line in out.splitlines() if '"event"' in line]
    assert {
        "event": "HealthChanged",
        "resource": THING,
        "device": "dev-0",
        "before": "Healthy",
        "after": "Unhealthy",
    } in events


def test_root_stays_and_another_kubelet_goes_on_there(script: KubeletScript, short_dir: Path) -> None:
    # Characters that mean something in the URIs by which gRPC takes addresses.
    root = short_dir / "k 100%25#?"
    options = ("--root", str(root))
    (before,) = script.answers("admit {}/two.yaml", options=options)
    assert not list(root.rglob("*.sock"))
    (checkpoint,) = script.answers("checkpoint", options=options, command=())
    assert [entry["container"] for entry in checkpoint["entries"]] == ["main"]
    # The same manifest is the same pod, which has its devices; this plugin would refuse it others.
    (kept,) = script.answers("admit {}/two.yaml", options=options, command=(*PLAIN, "--refuse"))
    assert kept["pods"] == before["pods"]
    # Another one is another pod, which has nothing yet.
    (other,) = script.answers("admit {}/three.yaml", options=options)
    assert [each["id"] for each in other["pods"][0]["containers"][0]["devices"][THING]] == ["dev-0", "dev-1", "dev-2"]


@needs_namespaces
def test_pod_that_is_admitted_again_after_its_deletion_is_a_new_one(script: KubeletScript) -> None:
    *_, checkpoint = script.answers("admit {}/two.yaml", "delete two", "admit {}/two.yaml", "checkpoint")
    (entry,) = checkpoint["entries"]
    assert entry["pod"] == "two"
    _, checkpoint = script.answers("admit {}/two.yaml", "checkpoint")
    assert checkpoint["entries"][0]["podUID"] != entry["podUID"]


def test_standard_input_is_a_script_where_it_is_no_terminal(manifests: Path) -> None:
    command = [sys.executable, "-m", "ostler", "kubelet", "-o", "json"]
    typed = f"resources\n! admit {manifests}/other.yaml\nquit\nnonsense\n"
    done = subprocess.run(command, input=typed, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first == {"command": "resources", "ok": True, "resources": []}
    assert second["pods"][0]["missing"] == ["other.example/thing"]
    assert re.match(
        r"kubelet 1\.36 in /tmp/ostler-\w+/kubelet: NUMA nodes [\d, ]+, topology policy none, scope container\n"
        r"start a plugin with /tmp/ostler-\w+/kubelet/device-plugins or /tmp/ostler-\w+/kubelet/plugins_registry as "
        r"its folder, or give its command after '--'\n$",
        done.stderr,
    )


@needs_namespaces
@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_serves_pods_and_restarts(script: KubeletScript, generation: str) -> None:
    options = ("--generation", generation)
    admitted, restarted, again, kept = script.answers(
        "admit {}/two.yaml", "restart", "restart plugin", "pods", options=options
    )
    assert admitted["pods"][0]["phase"] == "Running"
    assert restarted["registered"] == again["registered"] == [THING]
    assert kept["pods"] == admitted["pods"]


@needs_namespaces
def test_seed_chooses_devices_at_random_and_the_same_again(script: KubeletScript) -> None:
    command = (*PLAIN, "--devices", "40")
    chosen = []
    for _ in range(2):
        (answer,) = script.answers("admit {}/five.yaml", options=("--seed", "7"), command=command)
        chosen.append([each["id"] for each in answer["pods"][0]["containers"][0]["devices"][THING]])
    assert chosen[0] == chosen[1]
    assert chosen[0] != [f"dev-{number}" for number in range(5)]


def test_line_that_is_too_long_is_told() -> None:
    command = [sys.executable, "-m", "ostler", "kubelet"]
    done = subprocess.run(command, input=f"help\n{'x' * 70_000}\n", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("ostler: line 2 has more than 65536 bytes; write shorter commands\n")


def test_no_standard_input_is_an_empty_script() -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m ostler kubelet <&-"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


# Our own plugin and driver.


OWN = (sys.executable, "-m", "ostler", "run", "--http", "off", "--recorded", str(path("h100-sxm-8")))


@needs_namespaces
def test_own_plugin_serves_a_recorded_node_by_its_topology(
    script: KubeletScript, short_dir: Path, manifests: Path
) -> None:
    # Nothing tells the agent where the kubelet is: it looks where kubelets are.
    gpus = ("--state-dir", str(short_dir / "state"), "--socket", str(short_dir / "agent.sock"))
    for count in (4, 5):
        (manifests / f"gpus-{count}.yaml").write_text(json.dumps(manifest(f"gpus-{count}", count, "nvidia.com/gpu")))
    options = ("--node", "h100-sxm-8", "--topology-policy", "single-numa-node", "--wait", "60")
    admitted, refused = script.answers(
        "admit {}/gpus-4.yaml", "! admit {}/gpus-5.yaml", options=options, command=(*OWN, *gpus)
    )
    devices = admitted["pods"][0]["containers"][0]["devices"]["nvidia.com/gpu"]
    assert len(devices) == 4
    assert len({tuple(each["numa"]) for each in devices}) == 1
    assert admitted["pods"][0]["containers"][0]["deviceNodes"]
    assert (refused["pods"][0]["reason"], refused["pods"][0]["message"]) == (
        "TopologyAffinityError",
        "Resources cannot be allocated with Topology locality",
    )


_CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.ostler.dev"}}]}}},
}


def test_pod_without_devices_for_its_claims_waits_and_is_explained(script: KubeletScript, manifests: Path) -> None:
    pod = manifest("waiting", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    (manifests / "waiting.yaml").write_text("\n---\n".join(json.dumps(each) for each in (_CLAIM, pod)))
    admitted, explained, _, left = script.answers(
        "! admit {}/waiting.yaml",
        "explain waiting",
        "delete waiting",
        "pods",
        options=("--with-apiserver",),
        command=(),
    )
    assert admitted["failed"] == (
        "pod waiting is Pending: 0/1 nodes are available: 1 cannot allocate all claims ('explain waiting' says why)"
    )
    assert "waiting" in "".join(explained["explained"])
    assert "  no ResourceSlice offers devices here" in explained["explained"]
    assert left["pods"] == []


@needs_namespaces
def test_own_driver_prepares_claims_with_the_api_server(
    script: KubeletScript, short_dir: Path, manifests: Path
) -> None:
    config = short_dir / "ostler.yaml"
    rule = {"name": "nvidia.com/gpu", "door": "dra", "devices": {"kind": "gpu"}}
    config.write_text(json.dumps({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": [rule]}))
    pod = manifest("claiming", 0, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    (manifests / "claims.yaml").write_text("\n---\n".join(json.dumps(each) for each in (_CLAIM, pod)))
    command = (
        *OWN, "--config", str(config), "--state-dir", "{state}", "--socket", "{state}/a.sock",
        "--kubeconfig", "{kubeconfig}", "--node-name", "{node}",
    )  # fmt: skip
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "repair"},
        "spec": {"deviceSelector": {"driver": "ostler.dev"}, "taint": {"key": "repair", "effect": "NoExecute"}},
    }
    again = {**pod, "metadata": {"name": "claiming", "namespace": "team"}}
    team = {**_CLAIM, "metadata": {"name": "gpu", "namespace": "team"}}
    (manifests / "team.yaml").write_text("\n---\n".join(json.dumps(each) for each in (team, again, rule)))
    admitted, claims, slices, deleted, left, evicted, none = script.answers(
        "admit {}/claims.yaml", "claims", "slices", "delete claiming", "claims", "admit {}/team.yaml", "pods",
        options=("--with-apiserver", "--wait", "60"), command=command,
    )  # fmt: skip
    assert admitted["created"] == ["ResourceClaimTemplate gpu"]
    (container,) = admitted["pods"][0]["containers"]
    assert container["cdiDevices"]
    assert container["injected"]["deviceNodes"]
    assert claims["claims"][0]["reservedFor"] == ["claiming"]
    assert len(slices["slices"][0]["devices"]) == 8
    assert deleted["deleted"] == ["claiming"]
    assert left["claims"] == []
    # A rule that comes after the pod evicts it.
    assert [each["phase"] for each in evicted["pods"]] == ["Running"]
    assert none["pods"] == []
    assert not Path("/var/run/cdi").exists() or not list(Path("/var/run/cdi").glob("*ostler*"))
