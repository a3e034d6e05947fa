"""``ostler kubelet``: what it says of plugins, steps, options and files with which something is wrong."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ostler.cli.main import main
from sandbox.standalone import node as standalone
from tests.making import plain_plugin
from tests.making.kubelet_scripts import PLAIN, THING, KubeletScript
from tests.making.mounts import needs_mounts
from tests.making.namespaces import needs_namespaces


@needs_namespaces
def test_failed_call_names_plugin_call_time_and_what_to_look_at(script: KubeletScript) -> None:
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
def test_plugin_that_does_not_register_says_what_it_does_instead(
    script: KubeletScript, command: str, problem: str
) -> None:
    wait = "0.3" if "sleep" in command else "30"
    said = script.problem(options=("--wait", wait), command=("sh", "-c", command))
    assert re.fullmatch(problem, said, re.DOTALL), said


@needs_namespaces
def test_end_of_the_plugin_is_told_when_it_happens(script: KubeletScript) -> None:
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
def test_failed_step_is_named_with_the_fix(script: KubeletScript, step: str, problem: str) -> None:
    assert script.problem(step, command=()) == f"/script:1: {step}: {problem}"


@needs_namespaces
def test_failed_steps_with_pods(script: KubeletScript) -> None:
    said = script.problem("admit {}/two.yaml", "admit {}/two.yaml")
    assert said == "/script:2: admit {}/two.yaml: pod two is already on this node; 'delete two' first"
    said = script.problem("! admit {}/five.yaml", "retry five")
    assert said == ("/script:2: retry five: the kubelet refused pod five for good; delete it and admit it again")
    (answer,) = script.answers("admit {}/generated.yaml {}/list.yaml")
    assert [(pod["namespace"], pod["pod"]) for pod in answer["pods"]] == [("team", "made-1"), ("default", "listed")]
    said = script.problem("admit {}/generated.yaml", "delete team/made-1", "delete team/made-1")
    assert said == "/script:3: delete team/made-1: there is no pod team/made-1; pods: none"


def test_damaged_checkpoint_is_told(script: KubeletScript, short_dir: Path) -> None:
    folder = short_dir / "k" / "device-plugins"
    folder.mkdir(parents=True)
    (folder / "kubelet_internal_checkpoint").write_text("{}")
    script.run("! checkpoint", "expect 'is damaged'", options=("--root", str(short_dir / "k")), command=())
    assert "kubelet | the checkpoint device-plugins/kubelet_internal_checkpoint cannot be read: " in script.err


def test_damaged_state_of_claims_stops_the_start_with_one_sentence(script: KubeletScript, short_dir: Path) -> None:
    (short_dir / "k").mkdir()
    (short_dir / "k" / "dra_manager_state").write_text("{}x")
    said = script.problem(options=("--root", str(short_dir / "k")), command=())
    assert said == (
        "--root: create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to get checkpoint "
        "dra_manager_state: invalid character 'x' after top-level value; see what 'ostler checkpoint verify /k' says "
        "of its state files, or name another folder, on a local disk with room"
    )


@pytest.fixture
def small_disk(short_dir: Path) -> Iterator[Path]:
    """A folder for a kubelet on a disk of 64 KiB."""
    folder = short_dir / "k"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "small", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@needs_mounts
def test_disk_that_is_full_at_the_start_is_named(script: KubeletScript, small_disk: Path) -> None:
    (small_disk / "full").write_bytes(bytes(64 << 10))
    said = script.problem(options=("--root", str(small_disk)), command=())
    assert said.startswith("--root: ")
    assert said.endswith(
        "failed to get checkpoint dra_manager_state: No space left on device; see what 'ostler checkpoint verify /k' "
        "says of its state files, or name another folder, on a local disk with room"
    )


@needs_mounts
def test_disk_that_fills_up_refuses_pods_and_is_named(script: KubeletScript, small_disk: Path) -> None:
    plain = shlex.join(PLAIN)
    # The second resource registers when the disk is full.
    command = f"""
    {plain} &
    while ! [ -s /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint ]; do sleep 0.02; done
    head -c 100k /dev/zero > /var/lib/kubelet/full 2> /dev/null
    exec {plain} --resource plain.example/late --socket late.sock
    """
    options = ("--root", str(small_disk))
    out = script.run("wait plain.example/late 4", "! admit {}/two.yaml", options=options, command=("sh", "-c", command))
    assert (
        'two: Failed: UnexpectedAdmissionError: Allocate failed due to failed to write checkpoint file "kubelet_'
        'internal_checkpoint": No space left on device, which is unexpected\n'
    ) in out
    assert (
        "kubelet | the checkpoint device-plugins/kubelet_internal_checkpoint cannot be written: No space left on "
        "device; pods that need devices are refused until it can be; see whether the folder is writable and the disk "
        "has room\n"
    ) in script.err


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
            "--node-name: 'A' is not a valid node name; use only lower-case letters, digits, '-' and '.'",
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
            (
                "--root: /proc/none cannot be made: No such file or directory; name a folder that this user may write, "
                "on a local disk with room"
            ),
        ),
        (
            ("--root", "/var/lib/kubelet/"),
            1,
            (
                "--root: /var/lib/kubelet is the folder of this machine's own kubelet; name another folder or leave "
                "--root out: the plugin's command finds it at /var/lib/kubelet anyway"
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
    short_dir: Path,
    *,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: Sequence[str],
    code: int,
    problem: str,
) -> None:
    monkeypatch.setattr(standalone, "SHORT", short_dir)
    (short_dir / "pki").mkdir()
    (short_dir / "script").write_text("")
    given = [each.replace("REAL", str(short_dir)) for each in options]
    script = () if "-f" in given else ("-f", str(short_dir / "script"))
    assert main(["kubelet", *script, *given]) == code
    said = capsys.readouterr().err.replace(str(short_dir), "REAL")
    assert re.fullmatch(f"ostler: {problem}\n", said), said
    assert list(short_dir.glob("ostler-*")) == []


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


def test_two_kubelets_do_not_share_a_folder(script: KubeletScript, short_dir: Path) -> None:
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
