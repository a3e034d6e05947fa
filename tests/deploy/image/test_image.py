"""The built image: what is in it, what is not, and that it runs as a container would run it."""

from __future__ import annotations

import gzip
import re
import stat
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from deploy.image.packages import NOT_COMPILED
from ostler import __version__
from tests.deploy.image.archive import Image, run
from tests.deploy.image.build import NAME, SECRET

pytestmark = [pytest.mark.timeout(900), pytest.mark.needs_root]

LARGEST = 60 * 1000 * 1000
"""Bytes that all layers may have as they are sent; docs/image.md says what they have."""
SITE = re.compile(r"opt/ostler/lib/python3\.[0-9]+/site-packages/")


def test_it_is_small(image: Image) -> None:
    assert image.size < LARGEST


def test_its_name_is_what_the_runtime_imports_it_as(image: Image) -> None:
    assert image.name == NAME


def test_it_starts_ostler_as_somebody_who_is_not_root(image: Image) -> None:
    assert image.settings["Entrypoint"] == ["ostler"]
    assert not image.settings.get("Cmd")
    assert image.settings["User"] == "65532:65532"


def test_its_labels_say_what_it_is(image: Image) -> None:
    prefix = "org.opencontainers.image."
    labels = {name.removeprefix(prefix): text for name, text in image.settings["Labels"].items() if prefix in name}
    assert (labels["title"], labels["version"], labels["revision"]) == ("ostler", __version__, "test")
    assert labels["licenses"] == "Apache-2.0"
    assert {"created", "source", "description"} <= labels.keys()
    assert labels["base.name"].startswith("localhost/ostler-base:")


def test_nothing_of_the_build_is_in_it(image: Image) -> None:
    environment = {name.partition("=")[0] for name in image.settings["Env"]}
    assert environment == {"PATH", "PYTHONDONTWRITEBYTECODE"}
    history = str(image.configuration["history"])
    assert "PIP_" not in history
    assert not [name for name in image.files if name.split("/")[0] in ("build", "builder", "source", "wheels", "tmp")]


def test_a_password_for_the_build_is_in_none_of_its_layers(archive: Path) -> None:
    blobs = 0
    with tarfile.open(archive) as outer:
        for member in outer.getmembers():
            data = found.read() if (found := outer.extractfile(member)) is not None else b""
            content = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
            assert SECRET.encode() not in content, member.name
            blobs += b"ostler" in content
    assert blobs >= 4, "the three layers and the configuration are read as they are"


def test_there_is_no_program_but_python_and_ostler(image: Image) -> None:
    programs = {
        PurePosixPath(name).name
        for name, member in image.files.items()
        if "bin" in PurePosixPath(name).parent.parts[-1:] and not member.isdir()
    }
    assert "ostler" in programs
    assert {name for name in programs if not re.fullmatch(r"ostler|python3?(\.[0-9]+)?", name)} == set()


@pytest.mark.parametrize(
    "name", ["pip", "setuptools", "hatchling", "ensurepip", "_pytest", "pytest", "tests", "test", "bench"]
)
def test_there_is_nothing_for_development(image: Image, name: str) -> None:
    found = [path for path in image.files if name in PurePosixPath(path).parts]
    assert found == []


def test_everything_is_roots_and_nobody_else_may_write_it(image: Image) -> None:
    others = [
        name
        for name, member in image.files.items()
        if (member.uid, member.gid) != (0, 0) or (not member.issym() and member.mode & (stat.S_IWGRP | stat.S_IWOTH))
    ]
    assert others == []
    assert not [name for name, member in image.files.items() if member.mode & (stat.S_ISUID | stat.S_ISGID)]


def test_every_module_has_its_byte_code(image: Image) -> None:
    modules = [PurePosixPath(name) for name in image.files if name.endswith(".py") and SITE.match(name)]
    assert len(modules) > 500
    compiled = {
        (path.parent.parent, path.name.split(".")[0])
        for path in map(PurePosixPath, image.files)
        if path.suffix == ".pyc" and path.parent.name == "__pycache__"
    }
    missing = [str(path) for path in modules if (path.parent, path.stem) not in compiled]
    assert [path for path in missing if not NOT_COMPILED.search(path)] == []


def test_it_says_its_version_on_a_read_only_file_system(image: Image, root: Path) -> None:
    done = run(image, root, "--version")
    assert (done.stdout, done.stderr, done.returncode) == (f"ostler {__version__}\n", "", 0)


def test_it_lists_the_devices_of_a_recorded_node(image: Image, root: Path) -> None:
    recorded = next(root.glob("opt/ostler/lib/*/site-packages/sandbox/nodes/l4-2.yaml"))
    done = run(image, root, "devices", "--recorded", f"/{recorded.relative_to(root)}")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("scanned by this command instead:\n")
    assert done.stdout.count("nvidia.com/gpu") == 2


LOADED = """
import importlib, os, pkgutil, sys
for name in ("protos", "node", "kube", "plugin", "driver", "sandbox", "ostler"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.endswith("__main__") and not module.name.startswith("protos.generate"):
            importlib.import_module(module.name)
from node.libraries import found_by_soname
with found_by_soname():
    import pyudev
    pyudev.Context()
assert "ctypes.util" not in sys.modules, "something of ours looks for libraries by ldconfig, which is not there"
import kubernetes, prometheus_client
for name, module in sorted(sys.modules.items()):
    file, cached = getattr(module, "__file__", None), getattr(module, "__cached__", None)
    frozen = getattr(getattr(module, "__spec__", None), "origin", None) == "frozen"
    if file and file.endswith(".py") and not frozen and not (cached and os.path.exists(cached)):
        print("compiled at each start:", name)
print("loaded", len(sys.modules) > 500, os.getuid())
"""


def test_whatever_ostler_loads_is_there_and_compiled(image: Image, root: Path) -> None:
    done = run(image, root, "-c", LOADED, program_name="python3")
    assert (done.stderr, done.stdout) == ("", "loaded True 65532\n")


def test_byte_code_is_used_and_nothing_is_compiled_at_a_start(image: Image, root: Path) -> None:
    done = run(
        image, root, "-v", "-c", "import ostler.agent.agent, ostler.cli.main, kube.client", program_name="python3"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    used = re.findall(r"(?m)^# code object from '(/.*\.pyc)'$", done.stderr)
    assert len(used) > 200
    # Of a module that had to be compiled, Python names the source, and without quotes.
    assert re.findall(r"(?m)^# code object from (/.*\.py)$", done.stderr) == []


FROM_ONE_FILE = """
import sys
from ostler.cli.bytecode import use_bytecode
use_bytecode()
import ostler.cli.run
loaders = {name: type(getattr(module, "__loader__", None)).__name__ for name, module in sys.modules.items()}
usual = {name for name, loader in loaders.items() if loader != "BytecodeLoader"}
print(sorted(usual & {"asyncio.events", "grpc.aio", "plugin.servicer"}))
print(sorted(name for name in usual if name.startswith(("node.", "plugin."))))
"""


def test_an_agent_loads_the_bytecode_of_all_modules_from_one_file(image: Image, root: Path) -> None:
    done = run(image, root, "-c", FROM_ONE_FILE, program_name="python3")
    assert (done.stderr, done.stdout) == ("", "[]\n[]\n")


def test_it_says_which_debian_packages_its_libraries_are_of(image: Image, root: Path) -> None:
    # As images without a package manager do, so that scanners know them; the tests' base may be of no Debian.
    if not Path("/var/lib/dpkg/status").exists():
        return
    folder = root / "var/lib/dpkg/status.d"
    entry = (folder / "libc6").read_text()
    assert "\nVersion: " in entry
    listed = [line.split()[1] for line in (folder / "libc6.md5sums").read_text().splitlines()]
    assert any(path.endswith("libc.so.6") for path in listed)
    assert set(listed) <= image.files.keys()
    assert "ID=" in (root / "etc/os-release").read_text()
