"""The picture: valid, self-contained, and nothing in it overlaps."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given

from node.topology.cells import topology_of
from node.topology.model import Place, Topology
from ostler.config.topology import load_overrides
from ostler.drawing.arrangement import Arrangement, Rectangle, arrange
from ostler.drawing.scene import Box, Caption, Scene, boxes_of
from ostler.drawing.svg import ILL, draw_svg
from ostler.drawing.text import clipped, width_of
from sandbox.nodes import names, path
from tests.node.topology.machines import pci_trees
from tests.ostler.drawing.scenes import HOSTILE, hostile, recorded

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", names())
def test_every_recorded_node_has_a_picture_with_all_its_devices(name: str) -> None:
    scene = recorded(name)
    shown = texts(draw_svg(scene))
    assert shown[0] == name
    assert all(place.label in shown for place in scene.topology.places)


def test_an_empty_node_has_a_picture() -> None:
    assert texts(draw_svg(Scene("", Topology())))[:2] == ["this node", "0 GPUs, 0 NICs"]


def test_hostile_texts_stay_texts() -> None:
    svg = draw_svg(hostile())
    root = ET.fromstring(svg)
    known = {"svg", "g", "rect", "text", "title", "path", "circle"}
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= known
    assert not [name for each in root.iter() for name in each.attrib if name.startswith("on")]
    assert any("script" in text for text in texts(svg))
    assert svg.encode("utf-8")
    assert all(character.isprintable() for line in svg.split("\n") for character in line)


@pytest.mark.parametrize("name", ["h100-sxm-8", "dgx1-v100-8"])
def test_nothing_is_fetched_from_elsewhere(name: str) -> None:
    svg = draw_svg(recorded(name)).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"href|url\(|@import|https?:|<script|<image", svg)


def test_a_link_s_strength_is_told_by_width_and_words() -> None:
    svg = draw_svg(recorded("dgx1-v100-8"))
    assert {"2 NVLinks", "1 NVLink"} <= set(texts(svg))
    assert len(re.findall(r'<path d="M[^"]*C', svg)) == 16
    assert "NVLink switches, 18 NVLinks to each GPU" in texts(draw_svg(recorded("h100-sxm-8")))
    assert "each GPU with each other: 1 XGMI link a pair" in texts(draw_svg(recorded("mi300x-8")))


def test_gpus_with_fewer_links_to_switches_are_marked() -> None:
    places = [Place(f"g{n}", f"GPU{n}", True, ("pci0000:00",), f"0000:00:0{n}.0", 0, (), 18 - n % 2) for n in range(2)]
    shown = texts(draw_svg(Scene("n", topology_of(places))))
    assert {"NVLink switches", "18", "17"} <= set(shown)


def test_a_device_that_is_ill_says_so_and_looks_so() -> None:
    well = recorded("l4-2")
    ill = {name: Caption("L4", "unhealthy", False) for name in well.captions if name.startswith("gpu-")}
    svg = draw_svg(Scene("n", well.topology, {**well.captions, **ill}))
    assert texts(svg).count("unhealthy") == 2
    frame = f'stroke="{ILL}" stroke-width="1.5"'
    assert (svg.count(frame), draw_svg(well).count(frame)) == (2, 0)


def test_overridden_devices_are_counted() -> None:
    overrides = load_overrides(path("vm-flat-8").with_suffix(".topology.xml"))
    shown = texts(draw_svg(recorded("vm-flat-8", overrides)))
    assert shown[1].endswith("16 devices placed by the override file")


def overlap(one: Rectangle, two: Rectangle) -> bool:
    apart_x = one.x + one.width <= two.x + 0.01 or two.x + two.width <= one.x + 0.01
    apart_y = one.y + one.height <= two.y + 0.01 or two.y + two.height <= one.y + 0.01
    return not apart_x and not apart_y


def inside(inner: Rectangle, outer: Rectangle) -> bool:
    return (
        inner.x >= outer.x - 0.01
        and inner.y >= outer.y - 0.01
        and inner.x + inner.width <= outer.x + outer.width + 0.01
        and inner.y + inner.height <= outer.y + outer.height + 0.01
    )


def check_arrangement(topology: Topology) -> Arrangement:
    arranged = arrange(boxes_of(topology), 100)
    at = {id(each.what): each for each in arranged.rectangles}
    cards = [each for each in arranged.rectangles if isinstance(each.what, Place)]
    assert [each for each in combinations(cards, 2) if overlap(*each)] == []
    assert sorted(card.what.name for card in cards if isinstance(card.what, Place)) == sorted(
        place.name for place in topology.places
    )
    for each in arranged.rectangles:
        assert each.x >= 0
        assert each.y >= 0
        assert each.x + each.width <= arranged.width + 0.01
        assert each.y + each.height <= arranged.height + 0.01
        if isinstance(each.what, Box):
            inner = [at[id(member)] for member in each.what.members]
            assert all(inside(member, each) for member in inner)
            assert [pair for pair in combinations(inner, 2) if overlap(*pair)] == []
    return arranged


@given(pci_trees(linked=True))
def test_cards_and_boxes_never_overlap(places: tuple[Place, ...]) -> None:
    topology = topology_of(places)
    check_arrangement(topology)
    ET.fromstring(draw_svg(Scene("n", topology)))


@pytest.mark.parametrize("name", names())
def test_links_run_where_no_card_is(name: str) -> None:
    arranged = check_arrangement(recorded(name).topology)
    cards = [each for each in arranged.rectangles if isinstance(each.what, Place)]
    for card in cards:
        assert isinstance(card.what, Place)
        if card.what.gpu:
            low, high = sorted((card.edge, arranged.channel_top if not card.upward else arranged.channel_bottom))
            between = Rectangle(card.what, card.x, low, card.width, high - low)
            assert [other.what for other in cards if other is not card and overlap(between, other)] == []


@pytest.mark.parametrize("text", [*HOSTILE, "NVIDIA H100 80GB HBM3", "W" * 40, "i" * 80, ""])
def test_a_clipped_text_fits(text: str) -> None:
    assert width_of(clipped(text, 120, 12), 12) <= 120
    assert clipped(text, 9999, 12) == text
