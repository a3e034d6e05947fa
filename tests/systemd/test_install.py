"""What installing refuses, in words; nothing here needs a network or changes the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from systemd.release import SOURCE


def _run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return subprocess.run(
        [str(SOURCE / "systemd" / script)],
        capture_output=True,
        text=True,
        check=False,
        env=kept | environment,
    )


def _refused(script: str, **environment: str) -> str:
    done = _run(script, **environment)
    assert done.returncode == 1, done
    assert done.stdout == ""
    return done.stderr.strip()


@pytest.mark.parametrize("script", ["install.sh", "uninstall.sh"])
@pytest.mark.parametrize(
    ("environment", "refusal"),
    [
        ({"PREFIX": "opt"}, "PREFIX=opt is not an absolute path of letters, digits, . _ and -; use a folder such as"),
        ({"PREFIX": "/opt/o s"}, "PREFIX=/opt/o s is not an absolute path of letters"),
        ({"PREFIX": "/home/me/o"}, "PREFIX=/home/me/o lies where the service cannot see it"),
        ({"PREFIX": "/run/o"}, "PREFIX=/run/o lies where the service cannot see it or a reboot clears it"),
        ({"PREFIX": "/opt/../srv/o"}, "PREFIX=/opt/../srv/o is not an absolute path of letters"),
        ({"UNITDIR": "units"}, "UNITDIR=units is not an absolute path; give the whole path"),
        ({"DESTDIR": "image"}, "DESTDIR=image is not an absolute path; give the whole path"),
        ({"DESTDIR": "/nonexistent/image"}, "DESTDIR=/nonexistent/image does not exist; create it or correct it"),
    ],
)
def test_a_place_that_cannot_work_is_refused(script: str, environment: dict[str, str], refusal: str) -> None:
    assert refusal in _refused(script, **environment)


@pytest.mark.needs_root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize(("script", "refusal"), [("install.sh", "install"), ("uninstall.sh", "remove")])
def test_others_than_root_are_refused(script: str, refusal: str) -> None:
    # Read from standard input: a checkout in root's own folder is closed to others.
    text = (SOURCE / "systemd/places.sh").read_text() + (SOURCE / "systemd" / script).read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith(('. "', "here=")))
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "bash", "-s"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 1
    assert f"ostler: only root can {refusal} a system service; run it as root" in done.stderr


@pytest.mark.needs_root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to hide /run")
def test_a_machine_without_systemd_is_refused() -> None:
    hidden = 'mount -t tmpfs tmpfs /run && exec "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hidden, "sh", str(SOURCE / "systemd/install.sh")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip() == (
        "ostler: this machine does not run systemd (no /run/systemd/system); "
        "use the Helm chart (deploy/helm), or give DESTDIR= to install into another machine's root"
    )


def _python(folder: Path, before: str) -> str:
    """An interpreter that does something before it runs what it is given on standard input."""
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{before}; exec(sys.stdin.read())'\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("before", "refusal"),
    [
        ("import sys; sys.version_info = (3, 9, 2)", "is Python 3.9; 3.11 or later is needed"),
        (
            'import sys; sys.base_prefix = "/home/a/.pyenv"',
            "lies in /home/a/.pyenv, which the service cannot see; use the",
        ),
        (
            'import sys; sys.base_prefix = "/usr"; sys.modules["ensurepip"] = None',
            "has no venv module; install it (on Debian and Ubuntu: apt-get install python3-venv)",
        ),
    ],
)
def test_an_interpreter_that_cannot_run_the_service_is_refused(tmp_path: Path, before: str, refusal: str) -> None:
    python = _python(tmp_path, before)
    told = _refused("install.sh", DESTDIR=str(tmp_path), PYTHON=python)
    assert told.startswith(f"ostler: no Python that the service can run with:\n  {python}: {refusal}")
    assert told.endswith("; name one: make install PYTHON=/usr/bin/python3.11")


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "/nonexistent/python3: not found" in _refused(
        "install.sh", DESTDIR=str(tmp_path), PYTHON="/nonexistent/python3"
    )


def test_uninstalling_leaves_alone_what_is_not_ours(tmp_path: Path) -> None:
    theirs = tmp_path / "opt/ostler/notes.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    told = _refused("uninstall.sh", DESTDIR=str(tmp_path))
    assert f"{tmp_path}/opt/ostler is not as an installation leaves it and is not removed" in told
    assert theirs.read_text() == "mine"


def test_a_folder_that_is_not_ours_is_not_filled(tmp_path: Path) -> None:
    theirs = tmp_path / "opt/ostler/notes.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    told = _refused("install.sh", DESTDIR=str(tmp_path))
    assert told == (
        f"ostler: {tmp_path}/opt/ostler holds what is not ours, and could not be removed again; "
        "give PREFIX= a folder of its own"
    )
    assert [path.name for path in theirs.parent.iterdir()] == ["notes.txt"]


def test_what_an_interrupted_installation_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "a b/opt/ostler/versions/.building.7"
    left.mkdir(parents=True)
    done = _run("uninstall.sh", DESTDIR=str(tmp_path / "a b"))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"removed   {tmp_path}/a b/opt/ostler\n", "")


def test_uninstalling_nothing_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "etc/ostler").mkdir(parents=True)
    done = _run("uninstall.sh", DESTDIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kept      {tmp_path}/etc/ostler\n", "")


def _main_part(folder: Path, before: str = "") -> str:
    """What install.sh does after its checks, in a folder with its version; steps outside of the folder do nothing."""
    text = (SOURCE / "systemd/install.sh").read_text()
    steps, _, rest = text.partition("\ncheck_place\n")
    steps = steps.replace('here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"', f'here="{SOURCE}/systemd"')
    _, _, main = rest.partition("\nprevious=")
    nothing = "\n".join(f"{name}() {{ :; }}" for name in ("build", "install_files", "tell_systemd"))
    script = f'{steps}\n{nothing}\nroot="{folder}"; identity=1\n{before}\nprevious={main}'
    done = subprocess.run(
        ["bash", "-s"], input=script, capture_output=True, text=True, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """An installed version, whose interpreter notes what it is to run and fails."""
    folder = tmp_path / "versions/1"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib/python3.11/site-packages/ostler/__pycache__").mkdir(parents=True)
    for name in ("ostler", "python"):
        (folder / "bin" / name).write_text(f'#!/bin/sh\necho "$@" >>{folder}/{name}.calls\nexit 1\n')
        (folder / "bin" / name).chmod(0o755)
    return folder


def test_a_version_whose_installation_was_interrupted_gets_the_file_of_bytecode(version: Path) -> None:
    told = _main_part(version.parents[1])
    assert f"there     {version}\n" in told
    assert (version / "python.calls").read_text() == "-I -m ostler.cli.bytecode\n"
    assert "ostler: the agent will start more slowly\n" in told


def test_the_file_of_bytecode_of_another_patch_release_of_python_is_made_anew(version: Path) -> None:
    (version / "lib/python3.11/site-packages/ostler/__pycache__/agent.cpython-311.bytecode").touch()
    _main_part(version.parents[1])
    assert (version / "python.calls").exists()


def test_the_file_of_bytecode_is_not_made_for_another_root(version: Path) -> None:
    _main_part(version.parents[1], "DESTDIR=/image")
    assert not (version / "python.calls").exists()
