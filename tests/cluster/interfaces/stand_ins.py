"""Interfaces that stand in for those of NICs, and a recorded node whose NICs have them.

Two neighbouring NICs are the ends of a veth pair, so that pods with them can talk; macvlans of one parent are a third
kind. Names have the cluster's number: all nodes share the machine's network namespace.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from tests.cluster.rig.agent import RECORDED
from tests.cluster.rig.node import RigNode

NIC = "example.com/nic"
MOVING: dict[str, Any] = {"name": NIC, "door": "dra", "devices": {"kind": "nic"}, "moveInterface": True}


@dataclass(frozen=True, slots=True)
class StandInLink:
    """What the node has of an interface; ``address`` is the hardware's."""

    name: str
    address: str
    mtu: int
    alias: str
    addresses: tuple[str, ...]

    @classmethod
    def of(cls, shown: dict[str, Any]) -> StandInLink:
        """From the JSON of ``ip address``."""
        own = (f"{one['local']}/{one['prefixlen']}" for one in shown["addr_info"] if one["scope"] == "global")
        return cls(shown["ifname"], shown["address"], shown["mtu"], shown.get("ifalias", ""), tuple(own))


class StandIns:
    """``count`` interfaces on the machine: NIC ``n`` is called ``names[n]``; neighbours share a network.

    ``gpus``: how many GPUs the recorded node has as well.
    """

    def __init__(self, node: RigNode, count: int, kind: str = "veth", *, with_gpus: bool = False) -> None:
        number = node.folder.parent.name.rpartition("-")[2]
        self.names = [f"on{number}n{index}" for index in range(count)]
        self._parent = f"on{number}p"
        self._kind = kind
        path = node.folder / "nics.yaml"
        document = recorded(self.names)
        self.gpus = _add_gpus(document["facts"]) if with_gpus else 0
        path.write_text(yaml.safe_dump(document))
        self.recorded = str(path.with_suffix(""))
        """The recorded node, as ``configuration`` wants it."""

    def make(self) -> None:
        """Make them, with an address each."""
        if self._kind == "veth":
            for one, other in zip(self.names[::2], self.names[1::2], strict=True):
                ip("link", "add", one, "type", "veth", "peer", "name", other)
        else:
            ip("link", "add", self._parent, "type", "veth", "peer", "name", f"{self._parent}x")
            for name in (self._parent, f"{self._parent}x"):
                ip("link", "set", name, "up")
            for name in self.names:
                ip("link", "add", name, "link", self._parent, "type", "macvlan", "mode", "bridge")
        for index, name in enumerate(self.names):
            ip("address", "add", address(index), "dev", name)
            ip("link", "set", name, "up")

    def remove(self) -> None:
        """Remove those that are on the machine; the others end with their pods' namespaces."""
        for name in (*self.names, self._parent):
            with contextlib.suppress(OSError):
                ip("link", "delete", name)

    def on_node(self) -> dict[str, StandInLink]:
        """Those that are on the machine now, by name."""
        shown: list[dict[str, Any]] = json.loads(ip("-j", "address", "show"))
        return {one["ifname"]: StandInLink.of(one) for one in shown if one["ifname"] in self.names}


def address(index: int) -> str:
    """What the interface of that NIC has on the node; the two ends of a pair are in one network."""
    return f"10.99.{index // 2}.{1 + index % 2}/24"


@contextmanager
def stand_ins(node: RigNode, count: int, kind: str = "veth", *, with_gpus: bool = False) -> Iterator[StandIns]:
    """The interfaces until the end of the block."""
    made = StandIns(node, count, kind, with_gpus=with_gpus)
    made.remove()
    try:
        made.make()
        yield made
    finally:
        made.remove()


def ip(*words: str) -> str:
    """Run ``ip``; raises OSError with what it says."""
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def recorded(names: Sequence[str]) -> dict[str, Any]:
    """A node with one NIC per name, each behind a root port of its own."""
    functions, interfaces, links = [], [], []
    for index, name in enumerate(names):
        bus = f"{16 + index:02x}"
        path = f"pci0000:{bus}/0000:{bus}:00.0"
        functions.append(
            {
                "address": f"0000:{bus}:00.0",
                "path": path,
                "class_code": "0x020000",
                "vendor": "0x15b3",
                "device": "0x101d",
                "numa_node": 0,
                "driver": "mlx5_core",
            }
        )
        interfaces.append(
            {
                "name": name,
                "path": f"{path}/net/{name}",
                "address": f"02:00:00:00:00:{index:02x}",
                "ifindex": 1000 + index,
                "link_type": 1,
                "mtu": 1500,
                "dev_port": 0,
                "carrier": True,
                "operstate": "up",
                "speed_mbps": 100000,
            }
        )
        links.append({"name": name, "driver": "mlx5_core", "up": True})
    return {
        "schema": "ostler.dev/recorded-node/v1",
        "name": "stand-ins",
        "description": "NICs whose interfaces are stand-ins on the machine that runs the tests.",
        "recorded_at": "2026-11-26T00:00:00Z",
        "facts": {
            "sysfs": {"pci": functions, "interfaces": interfaces},
            "network": {"addresses": [], "default_routes": [], "links": links},
            "cdi": {},
        },
    }


def _add_gpus(facts: dict[str, Any]) -> int:
    """Give the node the GPUs of a recorded one; how many."""
    found = yaml.safe_load((RECORDED / "l4-2.yaml").read_text())["facts"]
    facts["nvml"] = found["nvml"]
    facts["sysfs"] |= {key: found["sysfs"][key] for key in ("device_files", "nvidia_module_version")}
    addresses = {gpu["bus_id"].lower()[4:] for gpu in found["nvml"]["gpus"]}
    facts["sysfs"]["pci"] += [each for each in found["sysfs"]["pci"] if each["address"] in addresses]
    return len(addresses)
