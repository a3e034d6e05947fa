"""The page about devices in slices says what they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from driver.devices import description
from driver.devices.description import slice_device
from driver.devices.view import DOMAIN
from driver.names import Peer
from node.offer import Cause
from tests.driver.devices.recorded import NODES, view

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "dra-devices.md").read_text()
WORDS = set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
GIVEN_ANYHOW = {Cause.NO_RULE, Cause.BAD_NAME, Cause.RULE_CONFLICT, Cause.NOT_UNIFORM, Cause.MIG_MODE, Cause.UNMOVABLE}
"""Causes for which a device is not shown at all."""


def test_what_claims_choose_by_is_on_the_page() -> None:
    assert {name for name in description._CHOOSING if name != "cell32"} <= WORDS


def test_every_attribute_on_the_page_is_one_that_some_recorded_device_has() -> None:
    table = PAGE.partition("| devices |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([A-Za-z0-9./]+)`", table)) - {"pf", "vf", "sf"}
    found = {"clique", "gpu", "mig", "partition", "nic", "rdma", "habana"}
    for node in NODES:
        for offered in view(node).devices:
            attributes = slice_device(offered)["attributes"]
            assert isinstance(attributes, dict)
            found |= set(attributes)
    assert named <= found


@pytest.mark.parametrize("cause", sorted(set(Cause) - GIVEN_ANYHOW))
def test_every_taint_is_on_the_page(cause: Cause) -> None:
    assert f"{DOMAIN}/{cause.value.replace('_', '-')}" in WORDS


def test_the_page_names_what_is_left_out_first_in_its_order() -> None:
    told = re.search(r"It drops (.*?) first", PAGE, re.DOTALL)
    assert told is not None
    assert re.findall(r"`(\w+)`", told[1]) == list(reversed(description._TELLING))[:5]


def test_the_page_of_the_door_names_every_peer() -> None:
    page = (DOCS / "dra.md").read_text()
    assert all(f"`{peer}`" in page for peer in Peer)
