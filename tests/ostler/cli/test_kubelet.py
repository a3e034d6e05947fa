"""``ostler kubelet``: what a person or a script types, what it answers, and what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ostler.cli.main import main
from sandbox.kubelet.generations import GENERATIONS
from sandbox.nodes import path
from tests.making import plain_plugin
from tests.making.namespaces import needs_namespaces
from tests.waiting import until

Json = dict[str, Any]
PLAIN = (sys.executable, str(Path(plain_plugin.__file__)))
THING = "plain.example/thing"


def manifest(name: str, count: int = 1, resource: str = THING, **more: object) -> Json:
    """A pod whose one container asks for so many devices."""
    container = {"name": "main", "image": "none", "resources": {"limits": {resource: count}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **more}}


def _init(name: str, **more: object) -> Json:
    return {"name": name, "image": "none", "resources": {"limits": {THING: 1}}, **more}


MANIFESTS: Mapping[str, Sequence[object]] = {
    "two": [manifest("two", 2)],
    "three": [manifest("three", 3)],
    "five": [manifest("five", 5)],
    "both": [manifest("one"), manifest("many", 9)],
    "other": [manifest("other", 1, "other.example/thing")],
    "early": [
        manifest("early", 2, initContainers=[_init("prepare"), _init("side", restartPolicy="Always")]),
    ],
    "claim": [manifest("claiming", resourceClaims=[{"name": "c", "resourceClaimName": "c"}])],
    "deployment": [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}],
    "resourceclaim": [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}],
    "list": [{"kind": "List", "items": [manifest("listed")]}],
    "badlist": [{"kind": "List", "items": 3}],
    "generated": [{**manifest(""), "metadata": {"generateName": "made-", "namespace": "team"}}],
    "nameless": [{**manifest(""), "metadata": {}}],
    "text": ["just text"],
    "empty": [None],
    "nocontainers": [{"kind": "Pod", "metadata": {"name": "hollow"}, "spec": {}}],
    "twins": [{"kind": "Pod", "metadata": {"name": "twins"}, "spec": {"containers": [_init("a"), _init("a")]}}],
    "half": [manifest("half", "500m")],  # type: ignore[arg-type]
}


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each of ``MANIFESTS`` as a file."""
    folder = tmp_path_factory.mktemp("manifests")
    for name, documents in MANIFESTS.items():
        (folder / f"{name}.yaml").write_text("\n---\n".join(json.dumps(each) for each in documents))
    return folder


class Script:
    """Runs scripts through the real command line in this process."""

    def __init__(self, folder: Path, manifests: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._manifests = manifests
        self._capsys = capsys

    def run(self, *steps: str, options: Sequence[str] = (), command: Sequence[str] = PLAIN, code: int = 0) -> str:
        """What the steps print; ``{}`` in a step is the folder of manifests."""
        file = self._folder / "script"
        file.write_text("".join(f"{step}\n" for step in steps).replace("{}", str(self._manifests)))
        words = ["kubelet", "-f", str(file), *options, *(("--", *command) if command else ())]
        assert main(words) == code, self._capsys.readouterr()
        out, self.err = self._capsys.readouterr()
        return out.replace(str(self._manifests), "{}")

    def answers(self, *steps: str, options: Sequence[str] = (), **more: Any) -> list[Json]:
        """The answers as JSON."""
        out = self.run(*steps, options=("-o", "json", *options), **more)
        return [json.loads(line) for line in out.splitlines()]

    def problem(self, *steps: str, **more: Any) -> str:
        """The last line of the command's complaint, of which every step before the last has to succeed."""
        self.run(*steps, code=1, **more)
        said = self.err.rpartition("ostler: ")[2].strip()
        return said.replace(str(self._folder), "").replace(str(self._manifests), "{}")


@pytest.fixture
def script(short_dir: Path, manifests: Path, capsys: pytest.CaptureFixture[str]) -> Script:
    return Script(short_dir, manifests, capsys)


# Whole sessions.


@needs_namespaces
def test_script_shows_what_containers_get_as_json(script: Script) -> None:
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
def test_script_prints_tables_with_its_steps(script: Script) -> None:
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
def test_ends_and_restarts_of_both_sides(script: Script, door: str) -> None:
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
def test_plugin_that_ends_with_the_kubelet_is_started_again(script: Script, end: str) -> None:
    steps = ("admit {}/two.yaml", *(("kill",) if end == "kill" else ()), "restart", "pods two")
    admitted, *_, restarted, kept = script.answers(*steps, command=(*PLAIN, "--end-with-stream"))
    assert restarted["registered"] == [THING]
    assert kept["pods"] == admitted["pods"]
    again = r"^kubelet \| plugin '.*' is started again, as Kubernetes does with a container of a DaemonSet$"
    assert re.search(again, script.err, re.MULTILINE)


@needs_namespaces
def test_restart_of_the_plugin_waits_for_every_resource(script: Script) -> None:
    plain = shlex.join(PLAIN)
    other = f"{plain} --resource plain.example/other --socket other.sock"
    answers = script.answers(
        "wait plain.example/other 4", f"wait {THING} 4", "kill plugin", "restart plugin",
        command=("sh", "-c", f"{other} & exec {plain}"),
    )  # fmt: skip
    assert answers[-1]["registered"] == ["plain.example/other", THING]


@needs_namespaces
def test_start_waits_for_every_resource_of_a_plugin(script: Script) -> None:
    more = ("--more", "plain.example/a", "--more", "plain.example/b")
    (answer,) = script.answers("plugins", command=(*PLAIN, *more))
    assert [each["name"] for each in answer["registered"]] == ["plain.example/a", "plain.example/b", THING]


@needs_namespaces
def test_restarted_kubelet_refuses_a_pod_whose_init_container_has_ended(script: Script) -> None:
    out = script.run("admit {}/early.yaml", "! restart")
    assert (
        f"early: Failed: UnexpectedAdmissionError: Allocate failed due to no healthy devices present; cannot allocate "
        f"unhealthy devices {THING}, which is unexpected\n"
        "a kubelet admits its pods again before plugins are back; a container that still runs keeps its devices, an "
        "init container that has ended makes it refuse the pod\n"
        "failed: the restarted kubelet refused pod early: UnexpectedAdmissionError: Allocate failed due to "
    ) in out


@needs_namespaces
def test_watched_events_are_lines_of_json(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    out = script.run("watch 1", options=("-o", "json"), command=(*PLAIN, "--flap"))
    events = [json.loads(line) for line in out.splitlines() if '"event"' in line]
    assert {
        "event": "HealthChanged",
        "resource": THING,
        "device": "dev-0",
        "before": "Healthy",
        "after": "Unhealthy",
    } in events


def test_root_stays_and_another_kubelet_goes_on_there(script: Script, short_dir: Path) -> None:
    options = ("--root", str(short_dir / "k"))
    command = (*PLAIN, "--devices", "2")
    script.answers("admit {}/two.yaml", options=options, command=command)
    assert not list((short_dir / "k").rglob("*.sock"))
    (checkpoint,) = script.answers("checkpoint", options=options, command=())
    assert [entry["container"] for entry in checkpoint["entries"]] == ["main"]


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
def test_every_generation_serves_pods_and_restarts(script: Script, generation: str) -> None:
    options = ("--generation", generation)
    admitted, restarted, again, kept = script.answers(
        "admit {}/two.yaml", "restart", "restart plugin", "pods", options=options
    )
    assert admitted["pods"][0]["phase"] == "Running"
    assert restarted["registered"] == again["registered"] == [THING]
    assert kept["pods"] == admitted["pods"]


@needs_namespaces
def test_seed_chooses_devices_at_random_and_the_same_again(script: Script) -> None:
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
def test_own_plugin_serves_a_recorded_node_by_its_topology(script: Script, short_dir: Path, manifests: Path) -> None:
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


def test_pod_without_devices_for_its_claims_waits_and_is_explained(script: Script, manifests: Path) -> None:
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
def test_own_driver_prepares_claims_with_the_api_server(script: Script, short_dir: Path, manifests: Path) -> None:
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
    admitted, claims, slices, deleted, left = script.answers(
        "admit {}/claims.yaml", "claims", "slices", "delete claiming", "claims",
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
    assert not Path("/var/run/cdi").exists() or not list(Path("/var/run/cdi").glob("*ostler*"))


# What goes wrong.


@needs_namespaces
def test_failed_call_names_plugin_call_time_and_what_to_look_at(script: Script) -> None:
    out = script.run("! admit {}/two.yaml", command=(*PLAIN, "--refuse"))
    assert (
        "two: Failed: UnexpectedAdmissionError: Allocate failed due to rpc error: code = Internal desc = "
        f"{plain_plugin.REFUSED}, which is unexpected\n"
    ) in out
    assert re.search(
        rf"^Allocate of the plugin of {THING} at \S+/plain\.sock, 0\.\d s: the plugin refused the call; see "
        r"the log of process \d+ \(\w+\) at this time$",
        out,
        re.MULTILINE,
    )
    (answer,) = script.answers("! admit {}/two.yaml", command=(*PLAIN, "--hang"), options=("--call-timeout", "0.2"))
    assert "code = DeadlineExceeded" in answer["pods"][0]["message"]
    assert re.match(
        rf"Allocate of the plugin of {THING} at \S+/plain\.sock, 0\.[2-9] s: the plugin took the call and did not "
        r"answer; see what process \d+ \(\w+\) waits for$",
        answer["calls"][0],
    )


@needs_namespaces
@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (
            "echo no driver; exit 3",
            r"plugin '.*' ended with exit code 3 before it registered; the end of its log:\n  no driver",
        ),
        (
            f"{' '.join(PLAIN)} --resource Bad/name",
            (
                r"plugin '.*' ended with exit code 1 before it registered \(registration of Bad/name by its Register "
                r'call failed: the ResourceName "Bad/name" is invalid\); the end of its log:\n  .*'
            ),
        ),
        (
            "sleep 600",
            (
                r"plugin '.*' \(process \d+\) has not registered and listed devices within 0\.3 s: it has made no "
                r"socket in /var/lib/kubelet/device-plugins or /var/lib/kubelet/plugins_registry\. A plugin calls "
                r"Register at /var/lib/kubelet/device-plugins/kubelet\.sock, or answers GetInfo on a socket in "
                r"plugins_registry; it has written nothing"
            ),
        ),
    ],
)
def test_plugin_that_does_not_register_says_what_it_does_instead(script: Script, command: str, problem: str) -> None:
    wait = "0.3" if "sleep" in command else "30"
    said = script.problem(options=("--wait", wait), command=("sh", "-c", command))
    assert re.fullmatch(problem, said, re.DOTALL), said


@needs_namespaces
def test_end_of_the_plugin_is_told_when_it_happens(script: Script) -> None:
    # The kubelet sees the stream end a moment before the process is known to have ended.
    script.run("wait plain.example/thing 0", "watch 0.5", command=(*PLAIN, "--end"))
    assert re.search(
        r"^kubelet \| plugin '.*' ended with exit code 7; 'restart plugin' starts it again$", script.err, re.MULTILINE
    )


PROBLEMS: Sequence[tuple[str, str]] = (
    ("nonsense", "no command 'nonsense'; 'help' lists them"),
    ("admit", "usage: admit FILE ..."),
    ("delete", "usage: delete POD ..."),
    ("retry", "usage: retry POD"),
    ("pods a b", "usage: pods [POD]"),
    ("resources a b", "usage: resources [RESOURCE]"),
    ("plugins a", "usage: plugins"),
    ("checkpoint a", "usage: checkpoint"),
    ("wait a", "usage: wait RESOURCE COUNT [SECONDS]"),
    ("wait a -1", "usage: wait RESOURCE COUNT [SECONDS]"),
    ("restart it", "usage: restart [kubelet | plugin]"),
    ("kill it", "usage: kill [kubelet | plugin]"),
    ("watch x", "usage: watch [SECONDS]"),
    ("log 1 2", "usage: log [LINES]"),
    ("!", "usage: ! COMMAND"),
    ("expect", "usage: expect TEXT"),
    ("expect nothing", "the answer before does not have the text 'nothing'"),
    ("! nonsense", "no command 'nonsense'; 'help' lists them"),
    ("! pods a b", "usage: pods [POD]"),
    ("! admit /nonexistent", "/nonexistent: No such file or directory"),
    ("! pods", "the command succeeded, and '!' wants it to fail"),
    ("admit 'x", "No closing quotation; close the quotes"),
    ("admit /nonexistent", "/nonexistent: No such file or directory"),
    ("admit {}", "{}: it is a folder, not a regular file"),
    ("admit {}/text.yaml", "{}/text.yaml: document 1 must be a Kubernetes object, is 'just text'"),
    ("admit {}/empty.yaml", "{}/empty.yaml: no object in it; write a Pod manifest"),
    ("admit {}/badlist.yaml", "{}/badlist.yaml: document 1: items must be a list of objects"),
    ("admit {}/deployment.yaml", "kind Deployment has no controller here; write its spec.template as a Pod"),
    (
        "admit {}/resourceclaim.yaml",
        "kind ResourceClaim needs an API server; start 'ostler kubelet --with-apiserver'",
    ),
    (
        "admit {}/claim.yaml",
        (
            "Pod claiming: spec.resourceClaims needs an API server, a scheduler and a claim controller; start 'ostler "
            "kubelet --with-apiserver', which has them"
        ),
    ),
    ("admit {}/nameless.yaml", "Pod: metadata.name: must be a name, is missing"),
    ("admit {}/nocontainers.yaml", "Pod hollow: spec.containers: must have at least one container"),
    ("admit {}/twins.yaml", "Pod twins: spec.containers: two containers are called 'a'; every name is its own"),
    (
        "admit {}/half.yaml",
        "container main: plain.example/thing: '500m' is not a whole number; extended resources are counted",
    ),
    (
        "admit {}/other.yaml",
        (
            "pod other did not get other.example/thing: the kubelet knows no such resource and admits a pod "
            "without it; resources: none ('wait RESOURCE COUNT' waits for a plugin)"
        ),
    ),
    ("delete nobody", "there is no pod nobody; pods: none"),
    ("resources a.example/b", "the kubelet knows no resource 'a.example/b'; resources: none"),
    ("wait a.example/b 1 0.01", "a.example/b is not registered after 0.01 s, not 1; resources: none"),
    ("restart plugin", "no plugin was started here; write its command after '--': ostler kubelet -- COMMAND"),
    ("log", "no plugin was started here, so there is no log of it"),
    ("explain a b", "usage: explain POD"),
    ("explain a", "there is no API server; start 'ostler kubelet --with-apiserver'"),
    ("claims", "there is no API server; start 'ostler kubelet --with-apiserver'"),
)


@pytest.mark.parametrize(("step", "problem"), PROBLEMS)
def test_failed_step_is_named_with_the_fix(script: Script, step: str, problem: str) -> None:
    assert script.problem(step, command=()) == f"/script:1: {step}: {problem}"


@needs_namespaces
def test_failed_steps_with_pods(script: Script) -> None:
    said = script.problem("admit {}/two.yaml", "admit {}/two.yaml")
    assert said == "/script:2: admit {}/two.yaml: pod two is already on this node; 'delete two' first"
    said = script.problem("! admit {}/five.yaml", "retry five")
    assert said == ("/script:2: retry five: the kubelet refused pod five for good; delete it and admit it again")
    (answer,) = script.answers("admit {}/generated.yaml {}/list.yaml")
    assert [(pod["namespace"], pod["pod"]) for pod in answer["pods"]] == [("team", "made-1"), ("default", "listed")]
    said = script.problem("admit {}/generated.yaml", "delete team/made-1", "delete team/made-1")
    assert said == "/script:3: delete team/made-1: there is no pod team/made-1; pods: none"


def test_damaged_checkpoint_is_told(script: Script, short_dir: Path) -> None:
    folder = short_dir / "k" / "device-plugins"
    folder.mkdir(parents=True)
    (folder / "kubelet_internal_checkpoint").write_text("{}")
    script.run("! checkpoint", "expect 'is damaged'", options=("--root", str(short_dir / "k")), command=())
    assert "kubelet | the checkpoint device-plugins/kubelet_internal_checkpoint cannot be read: " in script.err


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (("--numa", "0"), 2, "--numa: must be 1 to 64 nodes, is 0; or name a file"),
        (("--node", "none"), 2, r"--node: no shipped node is called 'none'; known: .*, or the path of a recording"),
        (
            ("--topology-policy", "restricted", "--topology-option", "close=1"),
            2,
            (
                '--topology-option: the kubelet would not start: unknown Topology Manager Policy option: "close"; '
                r"use prefer-closest-numa-nodes=true \(with distances between the NUMA nodes\) or "
                r"max-allowable-numa-nodes=NUMBER \(for more than 8 of them\)"
            ),
        ),
        (
            ("--topology-policy", "restricted", "--numa", "9"),
            2,
            "--topology-option: the kubelet would not start: unsupported on machines with more than 8 NUMA Nodes; .*",
        ),
        (("--topology-option", "x"), 2, "--topology-option: 'x' must be NAME=VALUE"),
        (
            ("--", "driver", "--kubeconfig={kubeconfig}"),
            1,
            r"COMMAND has \{kubeconfig\}, which needs an API server; add --with-apiserver",
        ),
        (("--env", "=x"), 2, "--env: '=x' must be NAME=VALUE"),
        (
            ("--node-name", "A"),
            2,
            "--node-name: 'A' is no name of a node; it must be lower-case letters, digits, '-' and '.'",
        ),
        (("-f", "/nonexistent"), 2, "/nonexistent: No such file or directory"),
        (
            ("--root", f"/tmp/{'r' * 60}"),
            1,
            (
                "--root: /tmp/r{60} has 65 bytes; the limit is 60, because a socket's path has 107 bytes in all; "
                "name a shorter folder or leave --root out"
            ),
        ),
        (
            ("--root", "/proc/none"),
            1,
            "--root: /proc/none cannot be made: No such file or directory; name a folder that this user may write",
        ),
        (
            ("--root", "/var/lib/kubelet/"),
            1,
            (
                "--root: /var/lib/kubelet is the folder of this machine's own kubelet; name another folder or leave "
                "--root out: the plugin's command finds it at /var/lib/kubelet all the same"
            ),
        ),
        (("--root", "/etc/passwd"), 1, "--root: /etc/passwd is not a folder; name a folder"),
        (
            ("--root", "REAL"),
            1,
            (
                "--root: REAL has pki, so it is the folder of a real kubelet, which would lose its state; name another "
                "folder"
            ),
        ),
    ],
)
def test_wrong_option_is_named_with_the_fix(
    short_dir: Path, capsys: pytest.CaptureFixture[str], options: Sequence[str], code: int, problem: str
) -> None:
    (short_dir / "pki").mkdir()
    (short_dir / "script").write_text("")
    given = [each.replace("REAL", str(short_dir)) for each in options]
    script = () if "-f" in given else ("-f", str(short_dir / "script"))
    assert main(["kubelet", *script, *given]) == code
    said = capsys.readouterr().err.replace(str(short_dir), "REAL")
    assert re.fullmatch(f"ostler: {problem}\n", said), said


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("--topology-policy", "'none', 'best-effort', 'restricted', 'single-numa-node'"),
        ("--topology-scope", "'container', 'pod'"),
    ],
)
def test_unknown_policy_or_scope_is_named_with_the_known_ones(
    capsys: pytest.CaptureFixture[str], option: str, choices: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["kubelet", option, "best"])
    assert f"argument {option}: invalid choice: 'best' (choose from {choices})" in capsys.readouterr().err


def test_two_kubelets_do_not_share_a_folder(script: Script, short_dir: Path) -> None:
    root = short_dir / "k"
    inner = [sys.executable, "-m", "ostler", "kubelet", "--root", str(root)]
    script_file = short_dir / "inner"
    script_file.write_text(f"""{" ".join(inner)} < /dev/null 2> {short_dir}/said\n""")
    said = script.problem(options=("--root", str(root), "--wait", "60"), command=("sh", str(script_file)))
    assert "before it registered" in said
    assert (short_dir / "said").read_text() == (
        f"ostler: --root: a kubelet already serves {root}/device-plugins/kubelet.sock; name another folder or end that "
        "kubelet\n"
    )


@needs_namespaces
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_a_script_and_everything_with_it(short_dir: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "ostler", "kubelet", "-o", "json", "--", *PLAIN]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(short_dir)},
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write("plugins\nwatch\n")
        process.stdin.flush()
        plugins = json.loads(process.stdout.readline())
        process.send_signal(number)
        assert process.wait(60) == 1
        assert process.stderr.read().endswith("ostler: ended by a signal before the script was complete\n")
    root = Path(plugins["registered"][0]["socket"]).parents[2]
    assert root.parent == Path("/tmp")
    assert not root.exists()
    assert list(short_dir.iterdir()) == []
    assert not Path(f"/proc/{plugins['process']['pid']}").exists()


# At a terminal.


class Terminal:
    """The command at a pseudo-terminal."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.text = ""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # Wide enough for every line, so that none is scrolled.
            os.environ.update({"COLUMNS": "400", **environment})
            os.execv(sys.executable, [sys.executable, "-m", "ostler", *words])

    def type(self, text: str) -> None:
        """Type it."""
        os.write(self._fd, text.encode())

    def sees(self, text: str) -> None:
        """Wait until the terminal shows the text, and forget everything up to it."""
        until(lambda: self._read() or text in self.text, f"{text!r} on the terminal; it has {self.text!r}", 60)
        self.text = self.text.partition(text)[2]

    def line(self) -> str:
        """The rest of the line."""
        until(lambda: self._read() or "\n" in self.text, "the rest of the line", 60)
        line, _, self.text = self.text.partition("\n")
        return line

    def ends(self) -> int:
        """Its exit code."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._read()
                os.close(self._fd)
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"it does not end; the terminal has {self.text!r}")

    def _read(self) -> bool:
        while select.select([self._fd], [], [], 0.01)[0]:
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:  # The other end is closed.
                return False
            self.text += data.decode(errors="replace").replace("\r", "")
        return False


@pytest.fixture
def terminal(short_dir: Path) -> Iterator[Terminal]:
    words = ("kubelet", "--numa", "2", "--", *PLAIN)
    shown = Terminal(words, {"TMPDIR": str(short_dir), "TERM": "dumb"})
    yield shown
    if shown.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shown.pid, signal.SIGKILL)


@needs_namespaces
def test_person_at_a_terminal_gets_a_prompt_and_ctrl_c_leaves_nothing_behind(
    terminal: Terminal, manifests: Path, short_dir: Path
) -> None:
    terminal.sees("runs as process ")
    terminal.sees("plugin | node node\n")
    # What the plugin says of its registration may come before this or after it.
    terminal.sees("'help' lists the commands, 'quit' ends.\n")
    terminal.type("help\n")
    terminal.sees("quit                              end everything")
    terminal.type(f"admit {manifests}/thr\t\n")
    terminal.sees("three: Running\n")
    terminal.type("delete th\t\n")
    terminal.sees("three is deleted\n")
    terminal.type("resta\tpl\t\n")
    terminal.sees("the plugin is restarted; before, it ended with exit code 0\n")
    terminal.type("watch 0\n")
    terminal.sees("kubelet> ")
    terminal.type("watch\n")
    terminal.sees("watching; Enter ends it\n")
    terminal.type("\nplugins\n")
    terminal.sees("': process ")
    plugin = int(terminal.line())
    terminal.type("half a comm\x03")
    assert terminal.ends() == 0
    assert terminal.text.endswith("ended\n")
    assert not Path(f"/proc/{plugin}").exists()
    assert list(short_dir.iterdir()) == []


def test_end_of_input_ends_the_prompt(short_dir: Path) -> None:
    terminal = Terminal(("kubelet",), {"TMPDIR": str(short_dir), "TERM": "dumb"})
    terminal.sees("kubelet> ")
    terminal.type("\x04")
    assert terminal.ends() == 0
