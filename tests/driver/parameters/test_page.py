"""The page on parameters: its examples are valid, and it has every field that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.decoding import CLASS_ONLY, FIELDS, KINDS, decode

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/claim-parameters.md").read_text()


def opaque(manifest: Any) -> list[tuple[ConfigSource, Any]]:
    """All parameters for us in a manifest, and whose they are."""
    spec = manifest.get("spec", {})
    if manifest["kind"] == "DeviceClass":
        return [(ConfigSource.CLASS, each["opaque"]["parameters"]) for each in spec.get("config", [])]
    claim = spec.get("spec", spec) if manifest["kind"].startswith("ResourceClaim") else {}
    return [(ConfigSource.CLAIM, each["opaque"]["parameters"]) for each in claim.get("devices", {}).get("config", [])]


def test_every_example_is_valid() -> None:
    texts = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    texts += [path.read_text() for path in sorted((ROOT / "examples/dra").rglob("*.yaml"))]
    found = [each for text in texts for manifest in yaml.safe_load_all(text) if manifest for each in opaque(manifest)]
    assert len(found) >= 3
    for source, parameters in found:
        decode(AllocatedConfig(source, (), parameters, "an example"))


def test_every_kind_and_field_is_in_the_table() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]
    for name in (*KINDS, *FIELDS):
        assert any(f"`{name}`" in row for row in rows), name
    for name in CLASS_ONLY:
        (row,) = [row for row in rows if f"| `{name}` |" in row]
        assert "in a class only" in row
