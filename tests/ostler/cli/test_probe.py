"""``ostler probe`` on sockets of every kind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ostler.cli import probe
from ostler.cli.main import main


def test_a_missing_socket_is_named(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", str(short_dir / "x")]) == 1
    assert capsys.readouterr().err == f"ostler: {short_dir}/x: there is no such file\n"


def test_a_file_is_no_socket(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (short_dir / "x").write_text("")
    assert main(["probe", str(short_dir / "x")]) == 1
    assert capsys.readouterr().err == f"ostler: {short_dir}/x: is not a socket\n"


def test_a_dead_socket_is_told(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(short_dir / "x"))
    assert main(["probe", str(short_dir / "x")]) == 1
    assert "no process listens; the one that made this socket is gone" in capsys.readouterr().err


def test_something_that_speaks_no_grpc_is_told(
    short_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "TIMEOUT", 0.3)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(short_dir / "x"))
        mute.listen()
        assert main(["probe", str(short_dir / "x")]) == 1
    assert "something listens there, but it does not speak gRPC" in capsys.readouterr().err
