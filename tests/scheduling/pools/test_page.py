"""docs/pools.md: its table names every type and function of the reference page, and the code has what it names."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.reading import read_text

PAGE = (Path(__file__).parents[3] / "docs" / "pools.md").read_text()
REFERENCE = [
    "DevMgmtAPIVersion",
    "Attribute",
    "Attribute.Equal",
    "Attribute.EqualValue",
    "Device",
    "DeviceAllocation",
    "DeviceClaim",
    "DeviceClaimDetail",
    "DeviceClaimInstance",
    "DeviceClaimSpec",
    "DeviceClaimStatus",
    "DeviceClass",
    "DeviceClassConfigReference",
    "DeviceClassSpec",
    "DeviceConfigReference",
    "DeviceIP",
    "DevicePool",
    "DevicePoolSpec",
    "DevicePoolStatus",
    "DeviceStatus",
    "ResourceAllocation",
    "ResourceCapacity",
    "SemVer",
]
"""What the reference page documents."""


def test_every_name_of_the_reference_page_has_a_counterpart() -> None:
    table = PAGE.partition("## Every type and function")[2]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `([\w.]+)` \|$", table, re.MULTILINE))
    assert list(rows) == REFERENCE
    for counterpart in rows.values():
        module, *names = counterpart.split(".")
        found = importlib.import_module(f"scheduling.pools.{module}")
        for name in names:
            found = getattr(found, name)


def test_example_is_a_sound_claim() -> None:
    example = re.search(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert example is not None
    (found,) = read_text(example[1])
    assert isinstance(found, DeviceClaim)
