"""``ostler kubelet``: signals, a person at a terminal, and what is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.making.kubelet_scripts import PLAIN
from tests.making.namespaces import needs_namespaces, runs
from tests.waiting import until


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


PATIENT = """
import sys
from ostler.cli import kubelet
from ostler.cli.main import main
from sandbox.standalone import node
kubelet.GRACE_SECONDS = 3600.0
node.ENDING_SECONDS = 0.0
code = main(sys.argv[1:])
assert "scheduling.allocator" not in sys.modules, "without claims its start must not pay for the allocator"
sys.exit(code)
"""
"""The command line, with a grace period that no test waits for; no claim is allocated."""

STUBBORN = f"""
trap 'echo not yet' TERM
setsid sleep 600 &
echo left $!
{shlex.join(PLAIN)} &
while :; do sleep 0.02; done
"""
"""A plugin that does not end on SIGTERM, with a child that has left its process group."""


def _sees(lines: Iterable[str], text: str) -> str:
    """The first line that has the text, in it what comes after it."""
    for line in lines:
        if text in line:
            return line.partition(text)[2].strip()
    raise AssertionError(f"no line has {text!r}")


@needs_namespaces
@pytest.mark.parametrize(("typed", "code"), [("watch\n", 1), ("quit\n", 0)])
def test_signal_while_it_closes_kills_the_plugin_and_leaves_nothing_behind(
    short_dir: Path, typed: str, code: int
) -> None:
    root = short_dir / "k"
    command = [sys.executable, "-c", PATIENT, "kubelet", "--root", str(root), "--", "sh", "-c", STUBBORN]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(short_dir)},
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(typed)
        process.stdin.flush()
        left = int(_sees(process.stderr, "plugin | left "))
        _sees(process.stderr, "kubelet | plain.example/thing is registered")
        if code:
            process.send_signal(signal.SIGINT)
        waiting = _sees(process.stderr, "has not ended on SIGTERM yet; ")
        assert waiting == "Ctrl-C kills it now, else it is killed after 3600 s"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == code
    until(lambda: not runs(left), "the end of the child", within=120)
    # A plugin that is killed leaves its socket; the kubelet's are gone.
    assert list(root.rglob("kubelet.sock")) == []
    assert list(short_dir.iterdir()) == [root]


@needs_namespaces
def test_full_standard_output_ends_a_script_with_one_sentence(short_dir: Path) -> None:
    command = [sys.executable, "-m", "ostler", "kubelet", "--", *PLAIN]
    environment = {**os.environ, "TMPDIR": str(short_dir)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, input="plugins\n", stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if " | " not in line]
    assert said == ["ostler: standard output cannot be written: No space left on device"]
    assert list(short_dir.iterdir()) == []


@needs_namespaces
def test_next_start_removes_what_a_killed_one_has_left(short_dir: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(short_dir)}
    command = [sys.executable, "-m", "ostler", "kubelet", "-o", "json", "--", *PLAIN]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as killed:
        assert killed.stdin is not None
        assert killed.stdout is not None
        killed.stdin.write("plugins\n")
        killed.stdin.flush()
        root = Path(json.loads(killed.stdout.readline())["registered"][0]["socket"]).parents[1]
        assert len(list(short_dir.iterdir())) == 1
        killed.kill()
    subprocess.run(command, input="", text=True, check=True, env=environment)
    assert not root.parent.exists()
    assert list(short_dir.iterdir()) == []


# At a terminal.


class _Terminal:
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
def terminal(short_dir: Path) -> Iterator[_Terminal]:
    words = ("kubelet", "--numa", "2", "--", *PLAIN)
    shown = _Terminal(words, {"TMPDIR": str(short_dir), "TERM": "dumb"})
    yield shown
    if shown.pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(shown.pid, signal.SIGKILL)


@needs_namespaces
def test_person_at_a_terminal_gets_a_prompt_and_ctrl_c_leaves_nothing_behind(
    terminal: _Terminal, manifests: Path, short_dir: Path
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
    terminal = _Terminal(("kubelet",), {"TMPDIR": str(short_dir), "TERM": "dumb"})
    terminal.sees("kubelet> ")
    terminal.type("\x04")
    assert terminal.ends() == 0
