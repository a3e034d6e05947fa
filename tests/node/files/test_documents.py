"""Texts that are made to end the process or to fill its memory: one short error from every reader of foreign texts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from node.documents import (
    DocumentLimits,
    DocumentRefused,
    described,
    glimpse,
    is_deeper,
    parse_json,
    parse_toml,
)
from node.yaml_text import compose_yaml, parse_yaml, parse_yaml_all

LAUGHS = "a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
"""Some 400 bytes that stand for 9^9 texts."""
MERGED = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name}\n  <<: [{','.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
DEEP = "[" * 100_000
DEEP_BLOCKS = "- " * 100_000
MAPPED = '{"a":' * 100_000
WIDE = f"[{'[],' * 1_300_000}1]"
"""Less than 4 MiB, which are 120 MiB of values."""

TEXTS = {"laughs": LAUGHS, "merged": MERGED, "[": DEEP, "-": DEEP_BLOCKS, "{": MAPPED, "[],": WIDE}

CDI = ("from node.inventory.cdi_specs import CdiSpecSource", "print(CdiSpecSource([path.parent]).read().cdi.errors)")
READERS = {
    "cdi.json": CDI,
    "cdi.yaml": CDI,
    "sandbox.yaml": (
        "from sandbox.injection import _Registry",
        "r = _Registry(); r.read(path.parent); print(r.problems)",
    ),
    "recording.yml": ("from node.inventory.recordings.source import read", "read(path)"),
    "config.yml": ("from ostler.config.load import load", "load(path, {}, {})"),
    "topology.yml": ("from ostler.config.topology import load_overrides", "load_overrides(path)"),
    "manifest.yml": ("from ostler.explain.files import read_files", "read_files([str(path)])"),
    "kubeconfig.yml": ("from kube.kubeconfig import from_kubeconfig", "from_kubeconfig(path)"),
    "containerd.toml": ("from ostler.doctor.reading import read_toml", "read_toml(path)"),
    "checkpoint": ("from node.kubelet.checkpoint import decode", "decode(path.read_bytes())"),
    "claims": ("from node.kubelet.dra_state import decode", "decode(path.read_bytes())"),
    "record.js": ("from node.files import read_record", "read_record(path, 'a/v1')"),
}
"""What reads a file of this name: its import, and the call."""
ATTEMPTS = """
import gc, json, os, resource, sys
from pathlib import Path
readers, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
def memory(name):
    # Not ru_maxrss, which a child inherits from the process that made it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) >> 10
for name, (imported, call) in readers.items():
    exec(imported)
    gc.freeze()
    print("reader", name, flush=True)
    for path in sorted((folder / name).glob("*/*")):
        # A process for each text; what all of them import is there when they are made.
        if not os.fork():
            before = memory("VmRSS")
            try:
                exec(call)
            except Exception as error:
                print(type(error).__name__, error)
            print("more", memory("VmHWM") - before, flush=True)
            os._exit(0)
        print("ended with", os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.fixture(scope="module")
def attempts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each reader said of all texts, in one interpreter that forks a process for each."""
    folder = tmp_path_factory.mktemp("texts")
    for number, text in enumerate(TEXTS.values()):
        for name in READERS:
            path = folder / name / str(number) / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
    command = [sys.executable, "-c", ATTEMPTS, json.dumps(READERS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540)
    assert done.returncode == 0, done.stderr[-500:]
    _, *said = re.split(r"^reader (.*)\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(said[::2], said[1::2], strict=True))


@pytest.mark.parametrize("name", READERS)
def test_no_text_ends_the_process_or_fills_its_memory_or_the_log(attempts: dict[str, str], name: str) -> None:
    *ended, rest = re.split(r"^ended with 0\n", attempts[name], flags=re.MULTILINE)
    assert (len(ended), rest) == (len(TEXTS), ""), attempts[name][-500:]
    for text, attempt in zip(TEXTS, ended, strict=True):
        *said, more = attempt.splitlines()
        assert said, f"{text} was accepted"
        assert len(attempt) < 16_384, text
        # A manifest may be a whole cluster's, and is read where a person is.
        assert int(more.removeprefix("more ")) < (130 if name == "manifest.yml" else 60), text


def test_a_cdi_file_whose_kind_is_an_alias_shows_it_in_a_few_words(tmp_path: Path) -> None:
    """Within every limit of aliases, and yet its repr() is large."""
    text = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b]\nkind: *c\n"
    (tmp_path / "a.yaml").write_text(text)
    from node.inventory.cdi_specs import CdiSpecSource

    facts = CdiSpecSource([tmp_path]).read().cdi
    assert facts is not None
    assert facts.errors == (f"{tmp_path}/a.yaml: kind is a list; it must be vendor/class, such as nvidia.com/gpu",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[1, 2], {a: *x}]", "the alias *x names nothing (line 1)"),
        ("a\n---\nb", "more than one document"),
        ("&a [*a]", "the alias *a stands inside of what it names (line 1)"),
        (f"*{'x' * 500}", f"the alias *{'x' * 56}... names nothing (line 1)"),
        ("a: [", "not valid YAML: did not find expected node content (line 2)"),
        ("a: !!bool x", "not valid YAML: 'x'"),
        (f"a:\n  {'9' * 5000}", "a number of more than 100 characters (line 2)"),
        (f"a: 0x{'f' * 5000}", "a number of more than 100 characters (line 1)"),
        (f"a: {'9' * 100}.5", "a number of more than 100 characters (line 1)"),
        ("? [a]\n: b", "not valid YAML: found unhashable key (line 1)"),
        ("- " * 65, "nested deeper than 64 levels (line 1)"),
        ("- a\n" * 200_001, "more than 200000 values (line 200000)"),
    ],
)
def test_what_is_refused_says_why_and_where(text: str, words: str) -> None:
    with pytest.raises(DocumentRefused) as caught:
        parse_yaml(text)
    assert str(caught.value).startswith(words)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "kind",
    ["0x" + "f" * 5000, "0" + "7" * 10_000, "1" + ":1" * 300 + ".5", "1" + ":1" * 500_000],
    ids=["hexadecimal", "octal", "a float to the base of 60", "an integer to the base of 60"],
)
@pytest.mark.timeout(120)
def test_a_number_without_an_end_costs_a_cdi_file_and_not_the_scan(tmp_path: Path, kind: str) -> None:
    from node.inventory.cdi_specs import CdiSpecSource

    (tmp_path / "a.yaml").write_text(f"kind: {kind}\n")
    (tmp_path / "b.yaml").write_text("kind: vendor.com/gpu\ndevices: [{name: a}]\n")
    facts = CdiSpecSource([tmp_path]).read().cdi
    assert facts is not None
    assert facts.devices == ("vendor.com/gpu=a",)
    (error,) = facts.errors
    assert error.startswith(f"{tmp_path}/a.yaml: ")
    assert len(error) < len(str(tmp_path)) + 250


def test_numbers_are_read_and_those_to_the_base_of_60_are_texts_as_go_has_them() -> None:
    text = "[1, -0x1F, 0o7, 1.5, .inf, 195:0, 1:30:00.5, !!int '7', !!float '2']"
    assert parse_yaml(text) == [1, -31, "0o7", 1.5, float("inf"), "195:0", "1:30:00.5", 7, 2.0]


def test_what_is_within_the_limits_is_read() -> None:
    assert parse_yaml("- " * 63 + "x") is not None
    assert parse_yaml("a: &a {b: 1}\nc: {<<: *a, d: 2}\n") == {"a": {"b": 1}, "c": {"b": 1, "d": 2}}
    assert parse_yaml("") is None
    assert parse_yaml_all("a\n---\nb\n") == ["a", "b"]
    assert parse_json("[" * 64 + "]" * 64) is not None
    assert parse_toml(b"a.b = 1") == {"a": {"b": 1}}


def test_anchors_of_one_document_are_not_those_of_the_next() -> None:
    with pytest.raises(DocumentRefused, match="names nothing"):
        parse_yaml_all("a: &a 1\n---\nb: *a\n")


def test_depth_counts_lists_and_mappings_and_not_what_they_hold() -> None:
    assert not is_deeper([1, {}], 2)
    assert is_deeper([[[]]], 2)
    assert not is_deeper("x", 0)
    with pytest.raises(DocumentRefused, match="nested deeper than 64 levels"):
        parse_json("[" * 65 + "]" * 65)
    with pytest.raises(DocumentRefused, match="nested deeper than 3 levels"):
        parse_toml(b"a.b.c.d = 1", DocumentLimits(depth=3))


def test_aliases_count_with_all_that_they_stand_for() -> None:
    text = "a: &a [1, 2, 3]\nb: [*a, *a]\n"
    assert parse_yaml(text, DocumentLimits(aliased=8)) == {"a": [1, 2, 3], "b": [[1, 2, 3], [1, 2, 3]]}
    with pytest.raises(DocumentRefused, match=r"aliases stand for more than 7 values \(line 2\)"):
        parse_yaml(text, DocumentLimits(aliased=7))
    with pytest.raises(DocumentRefused, match="aliases stand for more than 7 values"):
        compose_yaml(text, DocumentLimits(aliased=7))


def test_foreign_values_are_shown_short_and_on_one_line() -> None:
    assert described("x" * 10_000) == f"{'x' * 120!r}..."
    assert described({"a": 1}) == "a mapping"
    assert described(["a"]) == "a list"
    assert described(None) == "None"
    assert described(10**400).endswith("...")
    assert glimpse("a\n\x1b[31m") == "a\\n\\x1b[31m"
    assert json.dumps(described("\n")) == json.dumps("'\\n'")
