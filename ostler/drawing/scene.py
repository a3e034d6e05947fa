"""The input of every picture: a topology, captions of its devices, the boxes that they stand in, and the links of GPUs.

Boxes come from the PCIe paths: devices in one box are nearer to each other than to devices outside. A bridge with only
one thing below it says nothing about distance and gets no box.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from enum import StrEnum

from node.inventory.nvidia.vendor import NVIDIA
from node.inventory.vendors import VENDORS
from node.topology.model import Place, Topology, link_count
from node.values import Value, value
from ostler.drawing.text import number
from protos.agent.v1alpha1 import agent_pb2


@value
class Caption(Value):
    """The texts shown with a device, each possibly empty.

    ``title``: a GPU's product or a NIC's interface and RDMA device; ``state``: a word or two (``up 400G``, ``lost``);
    ``well``: whether the state is a good one, None if that is unknown; ``remark``: one more fact (``8 VFs``);
    ``host_use``: what the node itself needs it for; ``vendor`` decides what links are called.
    """

    title: str = ""
    state: str = ""
    well: bool | None = None
    remark: str = ""
    host_use: str = ""
    vendor: str = ""


@value
class Scene(Value):
    """A node's name, its topology, and captions by device name."""

    node: str
    topology: Topology
    captions: Mapping[str, Caption] = field(default_factory=dict)

    def caption(self, place: Place) -> Caption:
        """The place's caption, an empty one where nothing is known."""
        return self.captions.get(place.name, _NOTHING)

    @property
    def gpus(self) -> tuple[Place, ...]:
        """The GPUs."""
        return tuple(place for place in self.topology.places if place.gpu)

    @property
    def nics(self) -> tuple[Place, ...]:
        """The NICs."""
        return tuple(place for place in self.topology.places if not place.gpu)

    @property
    def link_word(self) -> str:
        """The name of the GPUs' links."""
        return self._link[0]

    def links_in_words(self, count: int | str) -> str:
        """A number of links: ``18 NVLinks``, ``1 XGMI link``."""
        word = self.link_word if self.link_word == "NVLink" else f"{self.link_word} link"
        return number(count, word)

    @property
    def link_sign(self) -> str:
        """The text before their number in a matrix."""
        return self._link[1]

    @property
    def _link(self) -> tuple[str, str]:
        """The name of the GPUs' links and its two letters, as their vendor has them; NVIDIA's for unknown vendors."""
        names = {self.caption(gpu).vendor for gpu in self.gpus}
        return next((each.link for each in VENDORS if each.link and each.name in names), NVIDIA.link or ("link", "L"))


_NOTHING = Caption()


def captions_of(devices: Iterable[agent_pb2.Device]) -> dict[str, Caption]:
    """Captions by device name."""
    return {device.name: _gpu_caption(device) if device.kind == "gpu" else _nic_caption(device) for device in devices}


def _gpu_caption(device: agent_pb2.Device) -> Caption:
    texts = {item.name: item.string_value for item in device.attributes if item.HasField("string_value")}
    well = device.health.state == "healthy" if device.health.state else None
    return Caption(
        title=_without_vendor(texts.get("productName", "")),
        state="" if well else device.health.state,
        well=well,
        remark=texts.get("profile", ""),
        host_use=device.host_use,
        vendor=device.vendor,
    )


def _without_vendor(product: str) -> str:
    titles = (f"{vendor.title} " for vendor in VENDORS)
    return next((product.removeprefix(title) for title in titles if product.startswith(title)), product)


def _nic_caption(device: agent_pb2.Device) -> Caption:
    texts = {item.name: item.string_value for item in device.attributes if item.HasField("string_value")}
    numbers = {item.name: item.int_value for item in device.attributes if item.HasField("int_value")}
    flags = {item.name: item.bool_value for item in device.attributes if item.HasField("bool_value")}
    names = [name for name in (texts.get("rdmaDevice", ""), texts.get("ifName", "")) if name]
    up = flags.get("linkUp")
    speed = _speed(numbers) if up else ""
    virtual = numbers.get("sriovVfs", 0)
    state = "" if up is None else f"up {speed}".strip() if up else "down"
    ill = device.health.state not in ("", "healthy")
    return Caption(
        title=" ".join(names) or texts.get("driver", ""),
        state=device.health.state if ill else state,
        # The state of its health replaces that of its link.
        well=None if ill else up,
        remark=f"{virtual} VFs" if virtual > 1 else "1 VF" if virtual else "",
        host_use=device.host_use,
        vendor=device.vendor,
    )


def _speed(numbers: dict[str, int]) -> str:
    """The speed in a few characters: ``400G``, ``2.5G``, ``100M``."""
    megabits = numbers.get("linkSpeedMbps") or numbers.get("rdmaRateGbps", 0) * 1000
    if megabits < 1000:
        return f"{megabits}M" if megabits else ""
    return f"{megabits / 1000:g}G"


class BoxKind(StrEnum):
    """The kind of a box."""

    NUMA = "numa"
    """Devices of one NUMA node."""
    ROOT = "root"
    """Devices below one host bridge, on different ports."""
    SWITCH = "switch"
    """Devices below one PCIe switch."""
    CARD = "card"
    """Functions of one card."""


@value
class Box(Value):
    """Things that belong together, in order of their labels; ``name``: bridge or NUMA node, empty when unknown."""

    kind: BoxKind
    name: str
    members: tuple[Box | Place, ...]

    def places(self) -> tuple[Place, ...]:
        """All devices inside, however deep."""
        return tuple(inner for member in self.members for inner in _inside(member))


def _inside(member: Box | Place) -> tuple[Place, ...]:
    return (member,) if isinstance(member, Place) else member.places()


def boxes_of(topology: Topology) -> tuple[Box, ...]:
    """One box a NUMA node, by number, with everything inside; devices without one come last."""
    order = {place.name: position for position, place in enumerate(topology.places)}
    nodes: dict[int | None, list[Place]] = {}
    for place in topology.places:
        nodes.setdefault(place.numa_node, []).append(place)
    known = sorted(nodes, key=lambda number: (number is None, number or 0))
    return tuple(
        Box(BoxKind.NUMA, "" if number is None else str(number), _members(nodes[number], 0, order)) for number in known
    )


def _members(places: list[Place], depth: int, order: Mapping[str, int]) -> tuple[Box | Place, ...]:
    """The devices and bridges below a bridge, whose children's names are at ``depth`` of the paths."""
    branches: dict[str, list[Place]] = {}
    here: list[Place] = []
    for place in places:
        if len(place.path) > depth:
            branches.setdefault(place.path[depth], []).append(place)
        else:
            here.append(place)
    found: list[Box | Place] = [*(_cards(here) if depth else here)]
    found += [_branch(name, below, depth, order) for name, below in branches.items()]
    return tuple(sorted(found, key=lambda member: min(order[place.name] for place in _inside(member))))


def _branch(name: str, places: list[Place], depth: int, order: Mapping[str, int]) -> Box | Place:
    members = _members(places, depth + 1, order)
    if len(members) == 1:
        return members[0]
    return Box(BoxKind.SWITCH if depth else BoxKind.ROOT, name, members)


def _cards(places: Iterable[Place]) -> Iterable[Box | Place]:
    """Functions of one device on one bus as a box, where there are several."""
    cards: dict[str, list[Place]] = {}
    for place in places:
        cards.setdefault((place.address or place.name).rpartition(".")[0], []).append(place)
    for address, functions in cards.items():
        yield functions[0] if len(functions) == 1 else Box(BoxKind.CARD, address, tuple(functions))


@value
class Links(Value):
    """How the GPUs are linked.

    ``switched``: GPUs that reach NVLink switches, with the number of links; ``mesh``: links between each two, where all
    are linked alike without switches; ``pairs``: what is left, each pair once.
    """

    switched: tuple[tuple[Place, int], ...] = ()
    mesh: int = 0
    pairs: tuple[tuple[Place, Place, int], ...] = ()


def links_of(topology: Topology) -> Links:
    """The links between GPUs as a picture shows them: a plane where all are alike, else one by one."""
    gpus = [place for place in topology.places if place.gpu]
    switched = tuple((gpu, gpu.switch_links) for gpu in gpus if gpu.switch_links)
    reaching = {gpu.name for gpu, _ in switched}
    pairs = [
        (one, two, link_count(one, two))
        for position, one in enumerate(gpus)
        for two in gpus[position + 1 :]
        if not (one.name in reaching and two.name in reaching)
    ]
    counts = {count for _, _, count in pairs}
    if not switched and len(gpus) > 4 and len(counts) == 1 and 0 not in counts:
        return Links(mesh=counts.pop())
    return Links(switched, 0, tuple(pair for pair in pairs if pair[2]))
