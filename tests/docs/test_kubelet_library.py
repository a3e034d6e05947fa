"""The page on the embedded kubelet as a library: its programs run, and every function of the reference has its row."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from sandbox.kubelet import events
from sandbox.kubelet.generations import GENERATIONS, KubeletBehaviour, behaviour_of
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.stubs.manager import ManagerStub
from sandbox.kubelet.stubs.plugin import PluginStub
from tests.docs.markdown import ROOT, CodeBlock, blocks, text_of

PAGE = "docs/kubelet-library.md"
_MANAGER = ("Start", "Allocate", "Stop", "GetDeviceRunContainerOptions", "GetCapacity", "GetWatcherHandler")
_PLUGIN = ("Register", "DeRegisterPlugin", "RegisterPlugin", "ValidatePlugin")
_STUB = [
    "Allocate",
    "GetDevicePluginOptions",
    "GetInfo",
    "ListAndWatch",
    "NotifyRegistrationStatus",
    "PreStartContainer",
    "Register",
    "SetAllocFunc",
    "Start",
    "Stop",
    "Update",
]
REFERENCE = {
    *("ActivePodsFunc", "DeviceRunContainerOptions", "Manager", "ManagerImpl", "ManagerStub", "Stub"),
    *("NewManagerImpl", "NewManagerStub", "NewDevicePluginStub"),
    *(f"Manager.{name}" for name in _MANAGER),
    *(f"ManagerImpl.{name}" for name in (*_MANAGER, *_PLUGIN)),
    *(f"ManagerStub.{name}" for name in _MANAGER),
    *(f"Stub.{name}" for name in _STUB),
}
"""What the package exports by its reference page."""


def _rows() -> list[tuple[str, str]]:
    section = text_of(PAGE).partition("| Go | Here |")[2].partition("\n\n")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [(row[0].strip("`"), row[1].strip("`")) for row in rows]


def test_every_function_of_the_reference_has_one_row() -> None:
    names = [name for name, _ in _rows()]
    assert sorted(names) == sorted(REFERENCE)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(sandbox\.kubelet\.[\w.]+)`", text_of(PAGE)))))
def test_every_name_on_the_page_exists(path: str) -> None:
    parts = path.split(".")
    end = next(index for index, part in enumerate(parts) if part[0].isupper())
    found: object = importlib.import_module(".".join(parts[:end]))
    for part in parts[end:]:
        found = getattr(found, part)


@pytest.mark.parametrize(
    ("heading", "owner"),
    [
        ("## Test a plugin\n", Kubelet),
        ("### What a failed call says", events),
        ("## Test with a plugin of your own answers", PluginStub),
        ("## Test a kubelet without plugins", ManagerStub),
    ],
    ids=["kubelet", "events", "plugin stub", "manager stub"],
)
def test_every_call_and_event_of_the_tables_exists(heading: str, owner: object) -> None:
    section = text_of(PAGE).partition(heading)[2].partition("\n#")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    names = [name for cell in cells for name in re.findall(r"`(\w+)", cell)]
    assert names
    known = owner.__doc__ or ""
    assert [name for name in names if not hasattr(owner, name) and f"``{name}``" not in known] == []


def test_the_table_of_generations_is_what_the_kubelet_does() -> None:
    section = text_of(PAGE).partition("| Behaviour |")[2].partition("\n\n")[0]
    header, _, *rows = (line.strip("| ").split(" | ") for line in section.splitlines())
    assert tuple(header) == GENERATIONS
    words = {True: "yes", False: "no"}
    shown = {row[0].rpartition(": `")[2].rstrip("`"): row[1:] for row in rows}
    own = [field.name for field in fields(KubeletBehaviour) if field.name not in ("generation", "user_agent")]
    values = {name: [getattr(behaviour_of(each), name) for each in GENERATIONS] for name in own}
    assert shown == {name: [words.get(value, value) for value in each] for name, each in values.items()}


@pytest.mark.parametrize("block", [block for block in blocks(PAGE) if block.language == "python"], ids=str)
def test_every_program_of_the_page_runs(block: CodeBlock) -> None:
    command = [sys.executable, "-W", "error", "-c", block.text]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
