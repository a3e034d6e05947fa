"""Every file that the product reads is opened by ``node.opening``, and every foreign text is parsed within limits.

A file that is opened in another way hangs on a FIFO, follows a link or is read without a bound; a parser that is called
in another way dies of brackets or aliases. Who needs one all the same is named here, with the reason.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PRODUCT = ("protos", "kube", "node", "plugin", "driver", "sandbox", "ostler", "systemd")

OPENERS = {
    "node/opening.py": "the one way in",
    "kube/files.py": "the same for a leaf that imports nothing of ours",
    "node/named_files.py": "the same for what people name: pipes, and files that are written",
    "node/lock.py": "locks the kubelet's folder itself, which is opened as a folder",
    "node/mps/folders.py": "opens folders below one that it has opened, as folders, and follows no link",
    "node/inventory/sysfs/files.py": "one page of an attribute of the kernel's, never waited for, at every scan",
    "node/inventory/sysfs/vpd.py": "the first bytes of an attribute of the kernel's",
    "node/inventory/nics/function_maker.py": "writes an attribute of the kernel's in one call",
    "node/interfaces/namespace.py": "a network namespace, which is no file; it waits for nothing and is checked",
    "node/interfaces/sysctls.py": "one value of the kernel's, read or written in one call",
    "node/files.py": "writes a temporary file that it makes itself, and syncs a folder",
    "ostler/cli/bytecode.py": "bytecode of the agent's own installation, read before a module of ours is loaded",
    "ostler/cli/main.py": "/dev/null, for output that nobody reads any more",
    "ostler/cli/output.py": "/dev/null, for output that nobody reads any more",
    "ostler/cli/partial_modules.py": "the source of a module that this process has loaded",
    "ostler/config/reference.py": "makes this repository's own pages",
    "sandbox/kubelet/plugin_namespace.py": "writes who its process is in its user namespace; imports nothing of ours",
    "sandbox/kubelet/plugin_process.py": "keeps the mount namespace of the process that it started",
    "sandbox/process.py": "the log of the agent that the sandbox itself started",
    "sandbox/terminal.py": "the log of the agent that the sandbox itself started",
    "sandbox/node.py": "writes into a folder that it has just made",
    "sandbox/network.py": "the namespace that its own thread has just made",
    "sandbox/apiserver/server.py": "writes into a folder that it has just made",
    "systemd/release.py": "reads and makes files of an installation that nobody else has yet",
}
PARSERS = {
    "node/documents.py": "the one room for foreign texts",
    "node/yaml_text.py": "the same for YAML",
    "node/kubelet/gojson.py": "the kubelet's own state as Go reads it; ends with an error at Python's depth",
    "kube/answers.py": "answers of the API server, whose size their reader bounds; depth is an error",
    "kube/kubeconfig.py": "the leaf's own: depth and aliases are checked on the events first",
    "kube/small_objects.py": "objects of few bytes; a deep one goes through the stream after all",
    "driver/metadata/content.py": "attributes that it has itself put on record",
    "driver/metadata/files.py": "a file of its own, of bounded size; what cannot be read counts as nothing",
    "ostler/config/nccl.py": "XML: document types, and with them entities, are refused; depth is checked",
    "ostler/explain/documents.py": "builds with a stack of its own; JSON's depth is checked",
    "ostler/cli/cells_discover.py": "the configuration that it has itself written",
    "ostler/extender/wire.py": "arguments of the scheduler, whose size their reader bounds; depth is an error",
    "ostler/doctor/nvml_process.py": "the answer of a process that it started itself",
    "sandbox/apiserver/store.py": "copies an object that it has",
    "sandbox/apiserver/connections.py": "the sandbox's own API server; what it cannot decode it refuses",
    "sandbox/configuration.py": "the configuration that it has itself written",
    "sandbox/cluster/client.py": "answers of the sandbox's own API server",
    "sandbox/kubelet/plugin_namespace.py": "the settings from the process that started it",
    "sandbox/kubelet/plugin_process.py": "what its own launcher says before it becomes the plugin",
    "systemd/release.py": "this repository's pyproject.toml",
}
_WORDS = re.compile(rb"open\(|(read|write)_(text|bytes)|\b(json|tomllib|yaml|expat)\.")
READING = {"read_text", "read_bytes", "write_text", "write_bytes"}
OPEN_OF = {"os", "io", "codecs", "gzip", "lzma", "bz2", "tarfile", "zipfile", "mmap"}
PARSING = {
    "json": {"load", "loads", "JSONDecoder"},
    "tomllib": {"load", "loads"},
    "yaml": {"load", "load_all", "safe_load", "safe_load_all", "compose", "compose_all", "parse", "scan"},
    "expat": {"ParserCreate"},
}


def _opens(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open"
    if not isinstance(function, ast.Attribute):
        return False
    if function.attr in READING:
        return True
    if function.attr != "open":
        return False
    owner = function.value
    if isinstance(owner, ast.Name) and owner.id in OPEN_OF:
        return True
    modes = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "mode")]
    return any(isinstance(mode, ast.Constant) and isinstance(mode.value, str) for mode in modes)


def _parses(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.attr in PARSING.get(function.value.id, ())
    )


@functools.cache
def _calls() -> dict[str, tuple[ast.Call, ...]]:
    """All calls of the product by the file that they stand in; where no word of interest stands nothing is parsed."""
    found = {}
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_bytes()
            if _WORDS.search(text):
                nodes = ast.walk(ast.parse(text))
                found[path.relative_to(ROOT).as_posix()] = tuple(each for each in nodes if isinstance(each, ast.Call))
    return found


def _found(is_meant: Callable[[ast.Call], bool]) -> dict[str, list[int]]:
    lines = {name: [call.lineno for call in calls if is_meant(call)] for name, calls in _calls().items()}
    return {name: each for name, each in lines.items() if each}


def test_no_file_is_opened_but_by_the_one_function_and_by_who_has_a_reason() -> None:
    assert {name: lines for name, lines in _found(_opens).items() if name not in OPENERS} == {}


def test_no_foreign_text_is_parsed_but_within_limits_or_by_who_has_a_reason() -> None:
    assert {name: lines for name, lines in _found(_parses).items() if name not in PARSERS} == {}


@pytest.mark.parametrize(("allowed", "is_meant"), [(OPENERS, _opens), (PARSERS, _parses)])
def test_who_needs_no_exception_any_more_has_none(
    allowed: dict[str, str], is_meant: Callable[[ast.Call], bool]
) -> None:
    assert sorted(allowed.keys() - _found(is_meant).keys()) == []


@pytest.mark.parametrize(
    "text",
    ["open(p)", "p.open('rb')", "p.open(mode='w')", "os.open(p, 0)", "p.read_text()", "p.write_bytes(b'')"],
)
def test_every_way_to_open_a_file_is_seen(text: str) -> None:
    (call,) = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert _opens(call)
