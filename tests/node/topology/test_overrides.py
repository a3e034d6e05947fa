"""Override files: both formats, and the one message that each broken file gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.inventory.devices import devices_of
from node.inventory.identity import Identities
from node.inventory.places import places_of
from node.inventory.recordings.source import read
from node.topology.cells import topology_of
from node.topology.model import Place, PlaceOverride, Proximity, proximity
from ostler.config.document import MAX_BYTES
from ostler.config.errors import ConfigErrors
from ostler.config.topology import load_overrides, parse_overrides
from sandbox import nodes

HEAD = "apiVersion: ostler.dev/v1alpha1\nkind: Topology\n"
OURS = (
    HEAD
    + """\
hostBridges:
- numaNode: 0
  devices: ["0000:00:0a.0"]
  switches:
  - devices: ["0000:00:05.0", "00000000:00:06.0"]
    switches:
    - devices: ["0000:00:07.0"]
    - devices: ["0000:00:08.0"]
- switches:
  - devices: ["0000:00:09.0"]
"""
)
NCCL = """\
<?xml version="1.0"?>
<system version="1">
  <cpu numaid="0" affinity="00ffffff" arch="x86_64">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s">
      <pci busid="0001:00:00.0" class="0x030200"><gpu dev="0"><nvlink target="x" count="2"/></gpu></pci>
      <pci busid="0101:00:00.0" class="0x020700"><nic><net name="mlx5_0"/></nic></pci>
    </pci>
    <pci busid="0002:00:00.0" class="0x030200"/>
  </cpu>
  <cpu numaid="-1"><pci busid="0003:00:00.0" class="0x030200"/></cpu>
</system>
"""


def distance(overrides: tuple[PlaceOverride, ...], one: str, two: str) -> Proximity:
    at = {each.address: Place(each.address, "", True, each.path, each.address, each.numa_node) for each in overrides}
    return proximity(at[one], at[two])


def problems(text: str | bytes) -> str:
    with pytest.raises(ConfigErrors) as raised:
        parse_overrides("t", text if isinstance(text, bytes) else text.encode())
    return str(raised.value)


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ("05", "06", Proximity.PIX),
        ("05", "07", Proximity.PXB),
        ("07", "08", Proximity.PXB),
        ("05", "0a", Proximity.PHB),
        ("05", "09", Proximity.SYS),
    ],
)
def test_switches_and_host_bridges_make_the_distances(one: str, two: str, expected: Proximity) -> None:
    overrides = parse_overrides("t", OURS.encode())
    assert distance(overrides, f"0000:00:{one}.0", f"0000:00:{two}.0") is expected


def test_a_numa_node_holds_for_everything_below_and_may_be_absent() -> None:
    assert [each.numa_node for each in parse_overrides("t", OURS.encode())] == [0, 0, 0, 0, 0, None]


def test_nccl_s_xml_is_read_as_nccl_nests_it() -> None:
    overrides = parse_overrides("t", NCCL.encode())
    assert [(each.address, each.numa_node) for each in overrides] == [
        ("0001:00:00.0", 0),
        ("0101:00:00.0", 0),
        ("0002:00:00.0", 0),
        ("0003:00:00.0", None),
    ]
    assert distance(overrides, "0001:00:00.0", "0101:00:00.0") is Proximity.PIX
    assert distance(overrides, "0001:00:00.0", "0002:00:00.0") is Proximity.PHB
    assert distance(overrides, "0001:00:00.0", "0003:00:00.0") is Proximity.SYS


def test_a_bridge_without_its_class_is_known_by_what_it_holds() -> None:
    text = '<system><cpu numaid="0"><pci busid="0001:00:00.0"><pci busid="0001:01:00.0"/></pci></cpu></system>'
    assert [each.address for each in parse_overrides("t", text.encode())] == ["0001:01:00.0"]


def test_the_shipped_file_makes_the_flat_machine_s_tree() -> None:
    overrides = load_overrides(nodes.path("vm-flat-8").with_suffix(".topology.xml"))
    places = places_of(devices_of(read(nodes.path("vm-flat-8")).facts, Identities()))
    flat, placed = topology_of(places), topology_of(places, overrides)
    assert flat.root is not None
    assert placed.root is not None
    assert {child.level for child in flat.root.children} == {"gpu"}
    assert {child.level for child in placed.root.children} == {"switch"}
    assert len(placed.overridden) == len(overrides)


ADDRESS_FIX = "write it as domain:bus:device.function, such as 0000:3b:00.0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            (
                "t:1: the file is empty; "
                "write at least 'apiVersion: ostler.dev/v1alpha1', 'kind: Topology' and hostBridges"
            ),
        ),
        ("- a\n", "t:1: the file is a list, not a mapping; write 'key: value' lines, or NCCL's XML"),
        ("kind: Config\n", "t:1: kind: is \"Config\"; an override file has 'kind: Topology'"),
        (
            "apiVersion: v1\nkind: Topology\nhostBridges: [{devices: ['0000:00:05.0']}]\n",
            't:1: apiVersion: is "v1"; allowed: ostler.dev/v1alpha1',
        ),
        (HEAD, "t:1: hostBridges: is missing; add 'hostBridges: [{}]'"),
        (
            HEAD + "hostBridges: []\n",
            "t:3: hostBridges: is an empty list; write at least one below it, or remove the key",
        ),
        (
            HEAD + "hostBridges:\n- numaNode: 0\n",
            "t:4: hostBridges[0]: has no device; add 'devices' or 'switches', or remove it",
        ),
        (
            HEAD + "hostBridges:\n- devices: [gpu0]\n",
            f't:4: hostBridges[0].devices[0]: is "gpu0", not a PCI address; {ADDRESS_FIX}',
        ),
        (
            HEAD + "hostBridges:\n- numaNode: -1\n  devices: ['0000:00:05.0']\n",
            't:4: hostBridges[0].numaNode: is "-1"; allowed: whole numbers from 0 to 1023',
        ),
        (
            HEAD + "hostBridges:\n- switch: []\n  devices: ['0000:00:05.0']\n",
            (
                "t:4: hostBridges[0].switch: is not a known key; did you mean switches? "
                "allowed here: numaNode, devices, switches"
            ),
        ),
        (
            HEAD + "hostBridges:\n- devices: ['0000:00:05.0']\n- devices: ['00000000:00:05.0']\n",
            (
                "t:5: hostBridges[1].devices[0]: 0000:00:05.0 already has a place, in line 4; "
                "a device has one place: remove one of the two"
            ),
        ),
        (
            HEAD + "hostBridges: [\n",
            "t:4: not valid YAML: a value is missing here; close the bracket or write the value",
        ),
        ("<topology/>", "t:1: is <topology>, not NCCL's topology; the outermost element is <system>"),
        ("\n\n<system/>", "t: no <cpu> contains a <pci> device; give a file that NCCL_TOPO_FILE accepts"),
        (
            "\n<system>\n<cpu></system>",
            ("t:3: <cpu>: has no numaid; add numaid; -1 for none\nt:3: not valid XML: mismatched tag; correct it"),
        ),
        (
            '<!DOCTYPE system [<!ENTITY a "0">]>\n<system>&a;</system>',
            "t:1: has a document type (<!DOCTYPE>), which ostler does not read; remove it, and every entity",
        ),
        ("<system>&a;</system>", "t:1: not valid XML: undefined entity; correct it"),
        ("<system>" + "<cpu numaid='0'>" * 40, "t:1: nested deeper than 32 levels; no machine is that deep"),
        (
            "<?xml version='1.0' encoding='zlib'?>\n<system/>",
            't:1: is encoded as "zlib", which ostler does not read; save it as UTF-8',
        ),
        (
            "<?xml version='1.0' encoding='gbk'?>\n<system/>",
            't:1: is encoded as "gbk", which ostler does not read; save it as UTF-8',
        ),
        (
            "<system>\n<cpu numaid='one'><pci busid='0001:00:00.0'/></cpu>\n</system>",
            't:2: <cpu> numaid: is "one"; allowed: whole numbers from -1 to 1023',
        ),
        (
            "<system><cpu numaid='0'>\n<pci busid='17'/></cpu></system>",
            f't:2: <pci> busid: is "17", not a PCI address; {ADDRESS_FIX}',
        ),
        (
            "<system><cpu numaid='0'>\n<pci class='0x030200'/></cpu></system>",
            "t:2: <pci>: has no busid; add its PCI address, such as 0000:3b:00.0",
        ),
        (
            "<system>\n<pci busid='0001:00:00.0'/></system>",
            "t:2: <pci>: is outside of a <cpu>; put it inside the <cpu> that it is attached to",
        ),
        (
            "<system><cpu numaid='0'><socket/><pci busid='0001:00:00.0'/></cpu></system>",
            "t:1: <socket>: is not known inside <cpu>; allowed: <pci>",
        ),
        (
            "<system><cpu numaid='0'>\n<pci busid='0001:00:00.0'/>\n<pci busid='0001:00:00.0'/></cpu></system>",
            "t:3: <pci>: 0001:00:00.0 already has a place, in line 2; a device has one place: remove one of the two",
        ),
    ],
)
def test_a_broken_file_gets_one_clear_message(text: str, message: str) -> None:
    if "nested deeper" in message:
        assert message in problems(text).splitlines()
    else:
        assert problems(text) == message


def test_an_overlong_file_is_refused() -> None:
    assert problems(b"#" * (MAX_BYTES + 1)) == f"t: has more than {MAX_BYTES} bytes; no machine needs that many"


def test_all_problems_of_a_file_are_told_at_once() -> None:
    text = HEAD + "hostBridges:\n- devices: [x]\n  numaNode: no\n- devices: [y]\n"
    assert len(problems(text).splitlines()) == 3


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as raised:
        load_overrides(tmp_path / "none.yaml")
    assert str(raised.value) == f"{tmp_path}/none.yaml: does not exist; correct the path"
    with pytest.raises(ConfigErrors, match="is a directory; give the file inside it"):
        load_overrides(tmp_path)


@pytest.mark.parametrize(
    "junk", [b"\xff\xfe<\x00", b"<\x00", b"\x00", b"<system><cpu numaid='0'>\xff", b"{", b"\xef\xbb\xbf<"]
)
def test_junk_gets_a_message_and_nothing_else(junk: bytes) -> None:
    assert problems(junk).startswith("t")
