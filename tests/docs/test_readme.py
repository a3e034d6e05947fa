"""The README's configuration means what it seems to mean."""

from __future__ import annotations

from ostler.config.load import load_bytes
from tests.docs.markdown import blocks


def test_the_example_configuration_offers_what_it_names() -> None:
    (example,) = (block for block in blocks("README.md") if block.language == "yaml")
    loaded = load_bytes("README.md", example.text.encode(), {}, {})
    resources = [rule.resource for rule in loaded.settings.rules]
    assert resources == ["nvidia.com/h100", "nvidia.com/mig-{profile}", "example.com/rdma"]
