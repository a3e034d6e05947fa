"""The configuration that the sandbox gives its agent."""

from __future__ import annotations

import pytest

from ostler.config.load import load_bytes
from sandbox.configuration import NIC_RESOURCES, configuration
from sandbox.nodes import path


@pytest.mark.parametrize("mig", [True, False])
def test_the_sandboxs_configuration_is_valid_and_offers_nics_last(mig: bool) -> None:
    loaded = load_bytes("sandbox", configuration(mig=mig).encode(), {}, {})
    offered = [rule.resource for rule in loaded.settings.rules]

    assert loaded.notes == ()
    assert offered[0] == "nvidia.com/gpu"
    assert ("nvidia.com/mig-{profile}" in offered) == mig
    assert tuple(offered[-3:]) == NIC_RESOURCES
    assert all(rule.link_health for rule in loaded.settings.rules[-3:])


def test_the_sandboxs_configuration_names_the_override_file() -> None:
    loaded = load_bytes("sandbox", configuration(mig=True, topology=path("vm-flat-8")).encode(), {}, {})

    assert loaded.settings.topology_file == path("vm-flat-8")
