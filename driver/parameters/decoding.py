"""Opaque parameters read strictly: versioned, every key known, every value of its type.

Parameters are decoded where they are prepared and nowhere earlier: the API server takes any object. So what is written
wrong is refused here, with place, value and fix; a parameter that is quietly passed over gives a container that is not
what its author asked for.
"""

from __future__ import annotations

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.doubled import doubled_keys
from driver.parameters.errors import ParameterError
from driver.parameters.kinds import API_VERSION, CLASS_ONLY, KINDS, Config, GpuConfig
from driver.parameters.showing import LONGEST, missing_or, shown, shown_key, shown_path
from kube.bodies import Json, JsonObject

MOST_CHANNELS = 2048
"""IMEX channels are numbered below this (NVIDIA's driver makes 2048 at most)."""
FIELDS = {
    "gdrcopy": "gdrcopy",
    "gds": "gds",
    "mofed": "mofed",
    "imexChannels": "imex_channels",
    "imexRequired": "imex_required",
    "rdma": "rdma",
    "vhostNet": "vhost_net",
}
"""Every field's name in JSON, and that of the value."""


def decode(config: AllocatedConfig) -> Config:
    """The parameters as a value. Raises ``ParameterError``."""
    place = config.labelled_place
    parameters = config.parameters
    if not isinstance(parameters, dict):
        raise ParameterError(
            place, "", f"{shown(parameters)} is no object", f"write an object with apiVersion {API_VERSION}"
        )
    doubled = doubled_keys(parameters)
    if doubled:
        raise ParameterError(place, shown_path(doubled[0]), "the key is there twice", "write it once")
    kind = _kind(parameters, place)
    names = {json_name: name for json_name, name in FIELDS.items() if name in kind.__slots__}
    found: dict[str, object] = {}
    for key, content in parameters.items():
        if key in ("apiVersion", "kind"):
            continue
        if key not in names:
            raise _unknown(place, key, kind, names)
        if key in CLASS_ONLY and config.source is not ConfigSource.CLASS:
            raise ParameterError(
                place, key, "a claim may not have it", "leave it out; an administrator writes it into a DeviceClass"
            )
        found[names[key]] = _channels(place, key, content) if key == "imexChannels" else _truth(place, key, content)
    made: Config = kind(**found)  # type: ignore[arg-type]  # each was checked against its field above
    if isinstance(made, GpuConfig) and made.imex_required and made.imex_channels == ():
        raise ParameterError(place, "imexRequired", "true without a channel in imexChannels", "name the channels")
    return made


def _kind(parameters: JsonObject, place: str) -> type[Config]:
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if version != API_VERSION:
        raise ParameterError(place, "apiVersion", missing_or(version), f"write {API_VERSION}")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ParameterError(place, "kind", missing_or(kind), f"write one of {', '.join(KINDS)}")
    return KINDS[kind]


def _unknown(place: str, key: str, kind: type[Config], names: dict[str, str]) -> ParameterError:
    import difflib  # Here and not above: only a mistake needs it.

    close = difflib.get_close_matches(key[:LONGEST], names, n=1)
    fix = f"did you mean {close[0]}?" if close else f"it has {', '.join(names)}"
    return ParameterError(place, shown_key(key), f"{kind.__name__} has no such field", fix)


def _truth(place: str, key: str, content: Json) -> bool:
    if not isinstance(content, bool):
        raise ParameterError(place, key, f"{shown(content)} is neither true nor false", "write true or false")
    return content


def _channels(place: str, key: str, content: Json) -> tuple[int, ...]:
    if not isinstance(content, list):
        raise ParameterError(place, key, f"{shown(content)} is no list", "write a list of channel numbers, as [0]")
    channels = []
    for index, item in enumerate(content):
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < MOST_CHANNELS:
            fix = f"write whole numbers from 0 to {MOST_CHANNELS - 1}"
            raise ParameterError(place, f"{key}[{index}]", f"{shown(item)} is no channel number", fix)
        if item in channels:
            raise ParameterError(place, f"{key}[{index}]", f"channel {item} is there twice", "write it once")
        channels.append(item)
    return tuple(channels)
