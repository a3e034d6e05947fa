"""Whatever the bytes are: settings or ``ConfigErrors``, never anything else."""

from __future__ import annotations

import json
import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from ostler.config.errors import ConfigErrors
from ostler.config.load import Loaded, load_bytes
from ostler.config.overrides import OVERRIDES
from tests.ostler.config.samples import BAD, GOOD, GOOD_NVIDIA, GOOD_SRIOV

SEEDS = [path.read_bytes() for path in (*GOOD, *GOOD_NVIDIA, *GOOD_SRIOV, *BAD)]
PIECES = [
    b"\n", b" ", b"  ", b"- ", b": ", b"{", b"}", b"[", b"]", b"*", b"&a ", b"*a", b"!!str ", b"!x ", b"'", b'"', b"\t",
    b"#", b"|\n", b">\n", b"---\n", b"...\n", b"%YAML 1.1\n", b"? ", b"<<: ", b"null", b"~", b"true", b"0x1f", b"1e9",
    b"\x00", b"\xff", b"\xc2\x85", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"{profile}", b"{", b"..", b"/",
    b"999999999999999999999999", b"kind", b"version: v1\n", b"resources:\n", b"#0-3,7", b"resourceList:\n", b"-1",
    b".inf", b"\r",
]  # fmt: skip
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["*", "/a"])
KEYS = st.sampled_from(
    [
        "resources", "defaults", "name", "devices", "kind", "nvidia", "http", "address", "imex", "channelIDs",
        "product", "interfaces", "rootDevices", "pciVendors", "rdma", "linkTypes", "pKeys", "functions", "drivers",
        "topology", "sharing", "partitions", "perDevice", "device", "replicas", "memoryLimit", "strategy",
        "timeSlicing", "mps", "rename", "renameByDefault",
        "resourceName", "selectors", "pfNames", "vendors", "isRdma", "deviceType", "additionalInfo", "acpiIndexes",
    ]
)  # fmt: skip
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
HEADS = {"ours": {"apiVersion": "ostler.dev/v1alpha1", "kind": "Config"}, "nvidia": {"version": "v1"}, "none": {}}

UNHURRIED = settings(deadline=None)  # machines that run tests are busy
THOROUGH = settings(deadline=None, max_examples=400)


def outcome(data: bytes | None, flags: dict[str, str]) -> Loaded | ConfigErrors:
    try:
        return load_bytes("f", data, flags, {})
    except ConfigErrors as errors:
        return errors


def judge(data: bytes) -> None:
    result = outcome(data, {})
    if isinstance(result, Loaded):
        assert all(str(note).isprintable() for note in result.notes)
        return
    assert result.errors
    for one in result.errors:
        assert str(one).isprintable()
        assert one.origin.line is not None or "bytes" in one.problem
        assert len(str(one)) < 1000


@UNHURRIED
@given(st.binary(max_size=200))
def test_bytes(data: bytes) -> None:
    judge(data)


@UNHURRIED
@given(st.text(max_size=200))
def test_text(text: str) -> None:
    judge(text.encode("utf-8", "surrogatepass"))


@UNHURRIED
@given(st.dictionaries(KEYS, TREES, max_size=5), st.sampled_from(sorted(HEADS)))
def test_trees(tree: dict[str, object], kind: str) -> None:
    judge(json.dumps({**tree, **HEADS[kind]}).encode())


@UNHURRIED
@given(st.sampled_from(["timeSlicing", "mps"]), st.lists(st.dictionaries(KEYS, TREES, max_size=5), max_size=3), TREES)
def test_trees_of_nvidias_sharing(strategy: str, items: list[dict[str, object]], beside: object) -> None:
    section = {"resources": [{"name": "gpu", "replicas": 2, **item} for item in items], "renameByDefault": beside}
    judge(json.dumps({"version": "v1", "sharing": {strategy: section}}).encode())


@UNHURRIED
@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_trees_of_sharing(given_keys: dict[str, object]) -> None:
    rule = {"name": "a.b/c", "devices": {"vendor": "nvidia", "kind": "gpu"}, "sharing": {"replicas": 2, **given_keys}}
    judge(json.dumps({**HEADS["ours"], "resources": [rule]}).encode())


@UNHURRIED
@given(st.lists(st.dictionaries(KEYS, TREES, max_size=5), max_size=3))
def test_trees_of_the_sriov_plugin(items: list[dict[str, object]]) -> None:
    judge(json.dumps({"resourceList": items}).encode())


@THOROUGH
@given(
    st.sampled_from(SEEDS),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 12), st.sampled_from(PIECES) | st.binary(max_size=4)), max_size=6
    ),
)
def test_mutations_of_samples(seed: bytes, cuts: list[tuple[float, int, bytes]]) -> None:
    for where, removed, inserted in cuts:
        at = int(where * len(seed))
        seed = seed[:at] + inserted + seed[at + removed :]
    judge(seed)


@UNHURRIED
@given(st.sampled_from([override.flag for override in OVERRIDES]), st.text(max_size=30))
def test_flags(flag: str, text: str) -> None:
    result = outcome(None, {flag: text})
    if isinstance(result, ConfigErrors):
        assert all(str(one).isprintable() for one in result.errors)


def test_a_file_of_a_mebibyte_is_judged_quickly() -> None:
    header = b"apiVersion: ostler.dev/v1alpha1\nkind: Config\n"
    for body in (
        b"".join(b"key%d: 1\n" % number for number in range(60000)),
        b"resources: [" + b"{name: a/b}, " * 60000 + b"]",
        b"resources:\n" + b"".join(b"- {name: a/b%d, devices: {product: '*%d*'}}\n" % (n, n) for n in range(256)),
        b"nodeName: " + b"a" * 1000000,
        b"nodeName: " + b"[" * 1000000,
        b"nodeName: " + b"9" * 1000000,
        b"resources:\n- name: a/" + b"{profile}" * 100000,
    ):
        judge(header + body)


def test_yaml_is_not_imported_without_a_file() -> None:
    code = (
        "import sys; from ostler.config.load import load; load(None, {}, {}); "
        "sys.exit(any(name in sys.modules for name in ('yaml', 'difflib', 'grpc', 'ostler.config.nvidia', "
        "'ostler.config.sriov', 'ostler.config.topology')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
