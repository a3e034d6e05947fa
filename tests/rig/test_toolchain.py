"""Go is the machine's own where it is new enough, else the pinned one, and nothing else."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.components import toolchain
from tests.cluster.components.toolchain import VERSION, ToolchainMissing, go_command


@pytest.fixture(autouse=True)
def empty_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Go and with an empty cache; the folder of its commands."""
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    monkeypatch.setenv("OSTLER_CACHE", str(tmp_path / "cache"))
    return commands


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # the name is http.server's
        pass


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module proxy; the file that it serves as the toolchain."""
    served = tmp_path / "proxy" / "golang.org" / "toolchain" / "@v"
    served.mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path / "proxy"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("GOPROXY", f"http://127.0.0.1:{server.server_port},direct")
    monkeypatch.setattr(toolchain, "_processor", lambda: "amd64")
    yield served / f"v0.0.1-go{VERSION}.linux-amd64.zip"
    server.shutdown()
    server.server_close()


def archive() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as made:
        prefix = f"golang.org/toolchain@v0.0.1-go{VERSION}.linux-amd64/"
        made.writestr(f"{prefix}bin/go", "#!/bin/sh\necho pinned\n")
        made.writestr(f"{prefix}VERSION", VERSION)
    return content.getvalue()


def test_the_machines_own_go_is_used_when_it_is_new_enough(empty_machine: Path) -> None:
    own = empty_machine / "go"
    own.write_text("#!/bin/sh\necho go1.99.0\n")
    own.chmod(0o755)
    assert go_command() == str(own)


def test_an_older_go_is_passed_over_for_the_pinned_one(
    empty_machine: Path, proxy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = empty_machine / "go"
    own.write_text("#!/bin/sh\necho go1.19.8\n")
    own.chmod(0o755)
    proxy.write_bytes(archive())
    digest = hashlib.sha256(proxy.read_bytes()).hexdigest()
    monkeypatch.setitem(toolchain.HASHES, "amd64", digest)
    found = Path(go_command())
    assert found != own
    assert found.read_text().endswith("echo pinned\n")
    assert found.stat().st_mode & 0o111


def test_another_file_than_the_pinned_one_is_refused(proxy: Path) -> None:
    proxy.write_bytes(archive())
    with pytest.raises(ToolchainMissing, match=r"is not the Go that is pinned: its SHA-256 is [0-9a-f]{64}, not"):
        go_command()


def test_without_a_network_what_is_needed_is_named(proxy: Path) -> None:
    with pytest.raises(ToolchainMissing, match=rf"Go {VERSION} or newer is needed .* install it, or set GOPROXY"):
        go_command()
