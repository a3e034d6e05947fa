"""NicConfigs with a section ``interface``, and what is read from them."""

from __future__ import annotations

import pytest

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.decoding import API_VERSION, NicConfig, decode
from driver.parameters.errors import ParameterError
from driver.parameters.interface import InterfaceParameters
from kube.bodies import Json

CLAIM, CLASS = ConfigSource.CLAIM, ConfigSource.CLASS
MAC = "02:00:00:00:00:01"


def read(content: Json, source: ConfigSource = CLAIM) -> InterfaceParameters:
    """What a NicConfig with this section ``interface`` sets."""
    parameters: dict[str, Json] = {"apiVersion": API_VERSION, "kind": "NicConfig", "interface": content}
    made = decode(AllocatedConfig(source, (), parameters, "config"))
    assert isinstance(made, NicConfig)
    assert made.interface is not None
    return made.interface


def problem(content: Json, source: ConfigSource = CLAIM) -> str:
    """The error of a NicConfig with this section."""
    with pytest.raises(ParameterError) as raised:
        read(content, source)
    return str(raised.value)
