"""A process that is killed before any of its steps on the disk: nothing is half written, and the next sync converges.

The process is forked and killed by SIGKILL from an audit hook, which Python calls before every open, rename, removal
and change of a folder: the very edge to the operating system.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from node.cdi.directory import CdiDirectory
from node.cdi.spec import encode
from tests.making.cdi_specs import device, spec

KILLED = """
import os, signal, sys
from itertools import count
from pathlib import Path
from node.cdi.directory import CdiDirectory
from tests.node.cdi.test_kills import SCENARIOS

def kill_before(step, below):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        if event == "open" or event.startswith("os."):
            if any(str(each).startswith(below) for each in arguments if isinstance(each, (str, os.PathLike))):
                seen += 1
                if seen == step:
                    os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)

def kill(root, before, after):
    for step in count(1):
        place = root / str(step)
        place.mkdir(parents=True)
        if before is not None:
            CdiDirectory(place / "cdi", place / "state" / "record").sync(before)
        child = os.fork()
        if child == 0:
            kill_before(step, str(place))
            CdiDirectory(place / "cdi", place / "state" / "record").sync(after)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGKILL:
            break

os.umask(0o077)
for name, (before, after) in SCENARIOS.items():
    kill(Path(sys.argv[1]) / name, before, after)
"""

GPU, OTHER, THIRD = "gpu.json", "gdrcopy.json", "mofed.json"
ONE, TWO, THREE = (spec(device(f"GPU-{number}")) for number in range(3))
SCENARIOS = {
    "first": (None, {GPU: ONE}),
    "replaced": ({GPU: ONE}, {GPU: TWO}),
    "swept": ({GPU: ONE, OTHER: ONE}, {}),
    "all at once": ({GPU: ONE, OTHER: ONE}, {GPU: TWO, THIRD: THREE}),
}
FEWEST = {"first": 8, "replaced": 8, "swept": 6, "all at once": 14}
"""Steps that must have been met, or the hook missed some: an open and a rename for each file and record at least."""


def visible(place: Path) -> dict[str, bytes]:
    """What a runtime reads there."""
    folder = place / "cdi"
    return {path.name: path.read_bytes() for path in folder.glob("[!.]*")} if folder.is_dir() else {}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nodes of all scenarios, made by one interpreter."""
    root = tmp_path_factory.mktemp("killed")
    subprocess.run([sys.executable, "-c", KILLED, str(root)], check=True, timeout=300)
    return root


@pytest.fixture
def places(killed: Path, tmp_path: Path, scenario: str) -> list[Path]:
    """A node for every step before which the process was killed."""
    root = shutil.copytree(killed / scenario, tmp_path / "nodes")
    found = sorted(root.iterdir(), key=lambda path: int(path.name))
    assert len(found) >= FEWEST[scenario]
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_before_any_step_leaves_whole_files_and_the_next_sync_converges(
    places: list[Path], scenario: str
) -> None:
    before, after = SCENARIOS[scenario]
    allowed = {(name, encode(each)) for desired in (before or {}, after) for name, each in desired.items()}
    for place in places:
        assert set(visible(place).items()) <= allowed
        for content in visible(place).values():
            json.loads(content)
        # Restarted with the same wish, and restarted without any: both must end where an unharmed process ends.
        without = shutil.copytree(place, place.with_name(f"{place.name}-without"))
        CdiDirectory(place / "cdi", place / "state" / "record").sync(after)
        assert visible(place) == {name: encode(each) for name, each in after.items()}
        CdiDirectory(without / "cdi", without / "state" / "record").sync({})
        assert visible(without) == {}
        assert not CdiDirectory(without / "cdi", without / "state" / "record").owns_files


@pytest.mark.parametrize("scenario", ["replaced", "all at once"])
def test_a_kill_between_files_never_makes_a_file_of_others_ours(places: list[Path]) -> None:
    for place in places:
        (place / "cdi" / GPU).write_text("theirs")
        (place / "cdi" / "nvidia.yaml").write_text("theirs")
        CdiDirectory(place / "cdi", place / "state" / "record").sync({})
        assert visible(place) == {GPU: b"theirs", "nvidia.yaml": b"theirs"}
