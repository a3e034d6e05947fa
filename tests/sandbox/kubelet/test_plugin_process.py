"""An unmodified plugin's command against the embedded kubelet, whose folders it finds where it expects them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.plugin_process import BUILT_IN, LINE, PluginProcess, PluginStartError
from tests.making import plain_plugin
from tests.making.namespaces import needs_namespaces, privileged, runs, user_namespaces
from tests.waiting import eventually

PLUGIN = (sys.executable, str(Path(plain_plugin.__file__)))
RESOURCE = "plain.example/thing"
LAUNCHER = Path(sys.modules[PluginProcess.__module__].__file__ or "").with_name("plugin_namespace.py")


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not privileged() or not shutil.which("setpriv"), reason="needs root rights and setpriv"
)


def _shell(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


async def _lines(command: Sequence[str], root: Path, **settings: object) -> list[str]:
    lines: list[str] = []
    async with PluginProcess(command, root, log=lines.append, **settings) as plugin:  # type: ignore[arg-type]
        await plugin.ended
    return lines


@needs_namespaces
@pytest.mark.parametrize("door", ["register", "watcher"])
async def test_plugin_with_built_in_paths_registers_and_serves(short_dir: Path, door: str) -> None:
    existed = BUILT_IN.exists()
    lines: list[str] = []
    command = (*PLUGIN, "--door", door)
    async with (
        Kubelet(short_dir, reconcile_interval=0.05, seen_as=BUILT_IN) as kubelet,
        PluginProcess(command, short_dir, log=lines.append, environment={"NODE_NAME": "node-7"}) as plugin,
    ):
        await kubelet.wait_for(RESOURCE, healthy=4, within=30)
        await plugin.restart()
        await kubelet.wait_for(RESOURCE, healthy=0, within=30)
        await kubelet.wait_for(RESOURCE, healthy=4, within=30)
        await kubelet.restart()
        await kubelet.wait_for(RESOURCE, healthy=4, within=30)
        ended = await plugin.terminate()
    assert str(ended) == "ended with exit code 0"
    assert lines[0] == "node node-7"
    assert lines.count("ended on SIGTERM") == 2
    assert BUILT_IN.exists() == existed


@needs_namespaces
async def test_original_folders_stay_beside_the_one_that_the_machine_lacks(short_dir: Path) -> None:
    lines = await _lines(_shell("ls /var/lib; cat /var/lib/dpkg/status | wc -c"), short_dir)
    assert set(lines[:-1]) >= {*(entry.name for entry in Path("/var/lib").iterdir()), "kubelet"}
    status = Path("/var/lib/dpkg/status")
    assert not status.exists() or lines[-1] == str(status.stat().st_size)


@needs_namespaces
async def test_what_the_plugin_makes_beside_them_is_there_at_its_next_start_and_gone_at_the_end(
    short_dir: Path,
) -> None:
    lines: list[str] = []
    command = _shell("ls /var/lib/made-by-plugin; mkdir -p /var/lib/made-by-plugin/state")
    async with PluginProcess(command, short_dir, log=lines.append) as plugin:
        await plugin.ended
        lines.clear()
        await plugin.start()
        await plugin.ended
    if not BUILT_IN.exists():
        assert lines == ["state"]
        assert not Path("/var/lib/made-by-plugin").exists()


@needs_namespaces
async def test_further_folders_are_seen_through_links(short_dir: Path) -> None:
    (short_dir / "cdi").mkdir()
    folders = {Path("/var/run/ostler-test-cdi"): short_dir / "cdi"}
    await _lines(_shell("touch /var/run/ostler-test-cdi/made"), short_dir, folders=folders)
    assert (short_dir / "cdi" / "made").exists()
    assert not Path("/run/ostler-test-cdi").exists()


@needs_namespaces
async def test_environment_signals_and_standard_input_are_those_of_an_ordinary_start(short_dir: Path) -> None:
    script = (
        "import json, os, signal, sys; "
        "print(json.dumps([dict(os.environ), sys.stdin.read(), signal.getsignal(signal.SIGHUP) is signal.SIG_DFL]))"
    )
    plain = {"PATH": "/usr/bin:/bin", "LANG": "C"}
    expected = subprocess.run(
        [sys.executable, "-I", "-c", script], env=plain, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in tuple(os.environ):
            patch.delenv(name)
        patch.setenv("PATH", plain["PATH"])
        lines = await _lines((sys.executable, "-I", "-c", script), short_dir, environment={"LANG": "C"})
    assert json.loads(lines[0]) == json.loads(expected.stdout)
    status = await _lines(_shell("grep SigIgn /proc/self/status"), short_dir)
    assert int(status[0].split()[1], 16) & (1 << signal.SIGPIPE - 1) == 0


@needs_namespaces
async def test_end_reaches_children_that_left_the_process_group(short_dir: Path) -> None:
    command = _shell("setsid sh -c 'echo $$; exec sleep 600' & sleep 600 & echo $!; wait")
    lines: list[str] = []
    async with PluginProcess(command, short_dir, log=lines.append) as plugin:
        await eventually(lambda: len(lines) == 2, "both children")
        children = [int(line) for line in lines]
        assert all(runs(child) for child in children)
        assert str(await plugin.terminate()) == "was ended by SIGTERM"
    assert plugin.exit is not None
    assert plugin.exit.asked
    await eventually(lambda: not any(runs(child) for child in children), "the end of the children", within=120)


@needs_namespaces
async def test_start_after_a_crash_ends_what_the_crash_left(short_dir: Path) -> None:
    lines: list[str] = []
    async with PluginProcess(_shell("sleep 600 & echo $!; exit 1"), short_dir, log=lines.append) as plugin:
        await plugin.ended
        (left,) = map(int, lines)
        assert runs(left)
        await plugin.start()
        await eventually(lambda: not runs(left), "the end of the child", within=120)
        await eventually(lambda: len(plugin.last_lines) == 2, "the log of the second run")
        assert plugin.lines_of_run == plugin.last_lines[1:]


@needs_namespaces
async def test_command_that_ignores_sigterm_is_killed_after_the_grace_period(short_dir: Path) -> None:
    lines: list[str] = []
    command = _shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")
    async with PluginProcess(command, short_dir, log=lines.append, grace=0.1) as plugin:
        await eventually(lambda: lines, "the trap")
        assert str(await plugin.terminate()) == "did not end within 0.1 s of SIGTERM and was killed"


@needs_namespaces
@pytest.mark.parametrize(
    ("text", "expected"),
    [("exit 3", "ended with exit code 3"), ("kill -SEGV $$", "was killed by SIGSEGV"), (":", "ended with exit code 0")],
)
async def test_end_says_how(short_dir: Path, text: str, expected: str) -> None:
    async with PluginProcess(_shell(text), short_dir) as plugin:
        ended = await plugin.ended
        assert str(ended) == expected
        assert not ended.asked
        assert not plugin.running


@needs_namespaces
async def test_command_does_not_outlive_a_killed_owner(short_dir: Path) -> None:
    owner = (
        "import asyncio, sys, pathlib\n"
        "from sandbox.kubelet.plugin_process import PluginProcess\n"
        "async def main():\n"
        f"    async with PluginProcess(['sleep', '600'], pathlib.Path({str(short_dir)!r})) as plugin:\n"
        "        print(plugin.pid, flush=True)\n"
        "        await plugin.ended\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", owner, stdout=asyncio.subprocess.PIPE, env={**os.environ, "TMPDIR": str(short_dir)}
    )
    assert process.stdout is not None
    plugin = int(await process.stdout.readline())
    assert runs(plugin)
    process.kill()
    await process.wait()
    await eventually(lambda: not runs(plugin), "the end of the command", within=120)


@needs_namespaces
async def test_log_is_cut_into_lines_of_bounded_length(short_dir: Path) -> None:
    script = f"import sys; sys.stdout.write('a' * {LINE + 1} + '\\n' + 'b' * 1000000 + '\\nlast \\xe4\\nopen')"
    lines = await _lines((sys.executable, "-c", script), short_dir, environment={"PYTHONIOENCODING": "latin-1"})
    assert [line[:1] for line in lines] == ["a", "b", "l", "o"]
    assert lines[0] == "a" * LINE + "…"
    assert len(lines[1]) == LINE + 1
    assert lines[2:] == ["last \N{REPLACEMENT CHARACTER}", "open"]


async def test_command_that_does_not_exist_is_named(short_dir: Path) -> None:
    with pytest.raises(
        PluginStartError,
        match=r"^plugin 'no-such-plugin --flag' cannot be started: no-such-plugin: No such file or directory$",
    ):
        async with PluginProcess(("no-such-plugin", "--flag"), short_dir):
            pass
    with pytest.raises(PluginStartError, match=r"^the plugin's command is empty; write it after '--'$"):
        PluginProcess((), short_dir)


@needs_namespaces
async def test_folder_that_cannot_be_given_is_named(short_dir: Path) -> None:
    with pytest.raises(
        PluginStartError,
        match=r"^plugin 'true' cannot be given its folder /var/run/cdi: the mount failed: No such file or directory$",
    ):
        async with PluginProcess(("true",), short_dir, folders={Path("/var/run/cdi"): short_dir / "none"}):
            pass


@needs_namespaces
async def test_environment_may_be_large_and_a_command_too_long(short_dir: Path) -> None:
    many = {f"VARIABLE_{number}": "x" * 1000 for number in range(300)}
    assert await _lines(_shell("echo ${#VARIABLE_299}"), short_dir, environment=many) == ["1000"]
    with pytest.raises(PluginStartError, match=r" cannot be started: Argument list too long$"):
        async with PluginProcess(("true", "x" * 200_000), short_dir):
            pass


@needs_root
@pytest.mark.parametrize("place", ["/var/lib/kubelet", "/var/lib/elsewhere"])
def test_own_folder_of_the_machine_is_hidden_and_untouched(short_dir: Path, place: str) -> None:
    # The test's own machine may have none, so it gets one in a mount namespace; on some it is a link.
    owner = (
        "import asyncio, os, pathlib\n"
        "from sandbox.kubelet.plugin_process import PluginProcess\n"
        "async def main():\n"
        f"    root = pathlib.Path({str(short_dir)!r})\n"
        "    command = ['sh', '-c', 'ls /var/lib/kubelet; touch /var/lib/kubelet/made']\n"
        "    async with PluginProcess(command, root, log=print) as plugin:\n"
        "        await plugin.ended\n"
        "    print(os.listdir('/var/lib/kubelet'))\n"
        "asyncio.run(main())\n"
    )
    link = "" if place == str(BUILT_IN) else f"ln -s {place} /var/lib/kubelet;"
    prepare = f"mount -t tmpfs none /var/lib; mkdir -p {place}/pki; {link}"
    command = ["unshare", "--mount", "sh", "-ec", f'{prepare} exec "$@"', "sh", sys.executable, "-c", owner]
    seen = subprocess.run(command, capture_output=True, text=True, check=True)
    assert seen.stdout.splitlines() == ["device-plugins", "plugins", "plugins_registry", "pod-resources", "['pki']"]
    assert (short_dir / "made").exists()


@needs_namespaces
async def test_second_start_is_refused_while_itruns(short_dir: Path) -> None:
    async with PluginProcess(("sleep", "600"), short_dir) as plugin:
        with pytest.raises(
            PluginStartError, match=rf"^plugin 'sleep 600' is already running as process {plugin.pid}; end it first$"
        ):
            await plugin.start()
    with pytest.raises(PluginStartError, match=r"^plugin 'sleep 600' has not been started$"):
        _ = PluginProcess(("sleep", "600"), short_dir).ended


def _launch(root: Path, *privileges: str) -> None:
    """Have a user with those privileges start a command that leaves a file in ``root``; it has to be able to."""
    ours, launchers = socket.socketpair()
    settings = {
        "stage": str(root / "stage"),
        "folders": {str(BUILT_IN): str(root)},
        "environment": dict(os.environ),
        "parent": os.getpid(),
    }
    command = [*privileges, sys.executable, "-I", "-S", str(LAUNCHER), str(launchers.fileno())]
    with ours, ours.makefile("rwb") as report:
        process = subprocess.Popen(
            [*command, "sh", "-c", "id -u > /var/lib/kubelet/made"], pass_fds=(launchers.fileno(),)
        )
        launchers.close()
        report.write(json.dumps(settings).encode() + b"\n")
        report.flush()
        assert report.readline() == b"{}\n"
        report.write(b"\n")
        report.flush()
        assert report.readline() == b""
        assert process.wait() == 0


# The privilege that is left reads this test run's own Python, wherever it is.
NOBODY = ("--clear-groups", "--inh-caps", "-all,+dac_read_search", "--ambient-caps", "+dac_read_search")


@needs_root
async def test_user_without_privileges_gets_a_user_namespace(short_dir: Path) -> None:
    if not user_namespaces():
        pytest.skip("user namespaces are forbidden here")
    short_dir.chmod(0o777)
    _launch(short_dir, "setpriv", "--reuid=65534", "--regid=65534", *NOBODY)
    assert (short_dir / "made").read_text() == "0\n"
    assert (short_dir / "made").stat().st_uid == 65534
    assert (short_dir / "stage").exists() != BUILT_IN.exists()


@needs_root
@pytest.mark.parametrize(
    ("settings", "otherwise"),
    [("", "start it yourself with {}/device-plugins"), (", otherwise='start it elsewhere'", "start it elsewhere")],
)
async def test_user_that_may_make_no_namespace_gets_one_clear_sentence(
    short_dir: Path, settings: str, otherwise: str
) -> None:
    if not user_namespaces():
        pytest.skip("user namespaces are forbidden here")
    # In a user namespace of its own the setting holds for nobody else.
    owner = (
        "import asyncio, sys, pathlib\n"
        "from sandbox.kubelet.plugin_process import PluginProcess\n"
        "async def main():\n"
        f"    async with PluginProcess(['true'], pathlib.Path({str(short_dir)!r}){settings}): pass\n"
        "asyncio.run(main())\n"
    )
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all"
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", f'{forbid} "$@"', "sh", sys.executable, "-c", owner]
    seen = subprocess.run(command, capture_output=True, text=True, check=False)
    assert seen.stderr.splitlines()[-1] == (
        "sandbox.kubelet.plugin_process.PluginStartError: plugin 'true' cannot be given the kubelet's folders at "
        "/var/lib/kubelet: this user may create no mount namespace (No space left on device). Run ostler as root, or "
        "allow user namespaces with 'sysctl -w user.max_user_namespaces=100000'. If the plugin can be told its "
        f"folders, no namespace is needed: {otherwise.format(short_dir)}"
    )
