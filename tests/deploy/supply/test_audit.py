"""Known vulnerabilities: found, none and not asked are three answers, by the real pip-audit."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.audit import KNOWN, NONE_KNOWN, NOT_ASKED, ROOT, main
from deploy.image.lock import runtime_subset

SHA = "sha256:" + "0" * 64
LOCK = "".join(
    f"{name}==1.0 \\\n    --hash={SHA}\n    # via ostler (pyproject.toml)\n" for name in ("grpcio", "protobuf")
)


class Index(ThreadingHTTPServer):
    """Answers as OSV's query does. ``known``: vulnerabilities by package; ``asked``: what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.known: dict[str, list[dict[str, Any]]] = {}
        self.asked: list[tuple[str, str]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/query"


class _Answer(BaseHTTPRequestHandler):
    server: Index

    def do_POST(self) -> None:
        query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = query["package"]["name"]
        self.server.asked.append((name, query["version"]))
        found = self.server.known.get(name)
        body = json.dumps({"vulns": found} if found else {}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.lock"
    path.write_text(LOCK)
    return path


def audit(lock: Path, index: str) -> int:
    return main(["--lock", str(lock), "--index", index])


VULNERABILITY = {
    "id": "GHSA-1",
    "aliases": ["CVE-2026-1"],
    "summary": "reads too much",
    "affected": [
        {
            "package": {"name": "protobuf", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1"}]}],
        }
    ],
}


def test_packages_without_a_known_vulnerability_pass(
    lock: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(lock, index.url) == NONE_KNOWN == 0
    assert capsys.readouterr().out == f"known vulnerabilities in 2 packages, by {index.url}: 0\n"
    assert sorted(index.asked) == [("grpcio", "1.0"), ("protobuf", "1.0")]


def test_a_known_vulnerability_is_named_with_its_remedy_and_fails(
    lock: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    index.known["protobuf"] = [VULNERABILITY]
    assert audit(lock, index.url) == KNOWN == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first == "protobuf 1.0: CVE-2026-1 (GHSA-1), fixed in 1.1"
    assert last == f"known vulnerabilities in 2 packages, by {index.url}: 1"


def test_an_index_that_does_not_answer_is_not_taken_for_no_vulnerabilities(
    lock: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nobody listens on port 1.
    assert audit(lock, "http://127.0.0.1:1/v1/query") == NOT_ASKED == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "it is not known whether the packages have vulnerabilities: http://127.0.0.1:1/v1/query" in err
    assert err.endswith("try again with network access, or name a mirror with INDEX=URL\n")


def test_an_index_that_fails_is_not_taken_for_no_vulnerabilities(lock: Path, index: Index) -> None:
    index.status = 503
    assert audit(lock, index.url) == NOT_ASKED


def test_a_lock_file_that_cannot_be_read_is_not_taken_for_no_vulnerabilities(
    tmp_path: Path, index: Index, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(tmp_path / "none", index.url) == NOT_ASKED
    assert "No such file" in capsys.readouterr().err


def test_all_that_runs_on_nodes_is_asked_for_and_nothing_else(index: Index) -> None:
    assert audit(ROOT / "requirements.lock", index.url) == NONE_KNOWN
    entries = runtime_subset((ROOT / "requirements.lock").read_text()).splitlines()
    expected = {line.partition("==")[0] for line in entries if line[0] not in " #" and "==" in line}
    assert {name for name, _ in index.asked} == expected
    assert "pip-audit" not in expected


def test_an_index_that_is_neither_a_name_nor_a_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--index", "pipy"])
    assert ended.value.code == NOT_ASKED
    assert "the index pipy must be one of osv, pypi, or a URL" in capsys.readouterr().err


@pytest.mark.parametrize(("variables", "options"), [((), ""), (("INDEX=pypi",), "--index 'pypi'")])
def test_make_asks_the_index_that_is_given(variables: tuple[str, ...], options: str) -> None:
    command = ["make", "--dry-run", "--assume-old=requirements.lock", "--assume-old=pyproject.toml", "audit"]
    # The make that runs the tests hands its own variables on.
    own = {name: value for name, value in os.environ.items() if name not in {"ARGS", "MAKEFLAGS", "MAKEOVERRIDES"}}
    said = subprocess.run([*command, *variables], cwd=ROOT, env=own, check=True, capture_output=True, text=True).stdout
    (line,) = [line for line in said.splitlines() if "deploy.audit" in line]
    assert line.split("deploy.audit")[1].strip() == options
