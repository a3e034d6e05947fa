"""The key ``mig`` of a resource: the layout of its GPUs, and whether their MIG mode changes.

A layout says which instances a GPU is divided into. Where they go, and whether they fit, depends on the GPU, so
``node.inventory.nvidia.layouts`` decides it when it applies the layout.
"""

from __future__ import annotations

import re
from enum import StrEnum

from node.inventory.amd.vendor import AMD
from node.inventory.model import DeviceKind
from node.inventory.nvidia.vendor import NVIDIA
from node.rules import Rule
from ostler.config.document import shown
from ostler.config.errors import ConfigError, Origin
from ostler.config.scalars import BadValue, Choice, JsonObject, ScalarType
from ostler.config.section import ConfigField, ConfigList, Section, Values, section

_PROFILE = r"[1-9]g\.[1-9][0-9]{0,2}gb(\+[a-z][a-z.]{0,15}|-me)?"
_PART = rf"[1-9]c\.{_PROFILE}"
MOST_INSTANCES = 16


class MigProfileName(ScalarType[str]):
    """A profile as NVIDIA's tools name it."""

    example = "1g.10gb"
    accepts = "MIG profiles such as 1g.10gb"

    def from_text(self, text: str) -> str:
        """See ``ValueType``."""
        if re.fullmatch(_PART, text):
            fix = f"write {text[3:]}, which is offered as one device"
            raise BadValue(f"is {shown(text)}, a compute instance that is a part of its GPU instance", fix)
        if not re.fullmatch(_PROFILE, text):
            fix = "write it as 'nvidia-smi mig -lgip' does, such as 1g.10gb or 1g.10gb+me"
            raise BadValue(f"is {shown(text)}, not a MIG profile", fix)
        return text

    def schema(self) -> JsonObject:
        """See ``ValueType``."""
        return {"type": "string", "pattern": f"^{_PROFILE}$"}


class ModeChange(StrEnum):
    """Whether ostler turns MIG mode on and off."""

    WHEN_IDLE = "whenIdle"
    NEVER = "never"


LAYOUT: ConfigField[tuple[str, ...]] = ConfigField(
    "layout",
    ConfigList(MigProfileName(), most=MOST_INSTANCES, unique=False),
    (),
    "The MIG instances that each GPU of this resource is divided into, one item for each instance. They are made while"
    " nothing uses the GPU, and offered by the resource that selects them. Absent: GPUs stay as they are.",
)
MODE_CHANGE = ConfigField(
    "modeChange",
    Choice(ModeChange),
    ModeChange.WHEN_IDLE,
    "Whether ostler turns MIG mode of a GPU on and off: whenIdle (while nothing uses the GPU) or never.",
)
MIG = section(
    "mig", Section(LAYOUT, MODE_CHANGE), "How the GPUs of this resource are divided by MIG (NVIDIA's GPUs only)."
)


def layout_of(own: Values) -> tuple[str, ...] | None:
    """The layout of a resource's GPUs; None if it has none."""
    return own[MIG][LAYOUT] if MIG in own and LAYOUT in own[MIG] else None


def changes_mode(own: Values) -> bool:
    """Whether MIG mode of the resource's GPUs may be changed."""
    return MIG not in own or own[MIG][MODE_CHANGE] is ModeChange.WHEN_IDLE


def check_divisible(rule: Rule, place: Origin, what: str, problems: list[ConfigError]) -> bool:
    """Report a resource whose devices ostler cannot divide, though ``what`` the place says it should; False then."""
    vendors = rule.selector.vendors
    if vendors == (NVIDIA.name,) and rule.selector.kinds == (DeviceKind.GPU,):
        return True
    if vendors == (AMD.name,):
        fix = (
            "remove it and change the mode yourself while nothing uses the GPU (amd-smi set --gpu 0 "
            "--compute-partition CPX); ostler offers each partition by its profile, such as cpx_nps4"
        )
        problems.append(place.error(f"{what}, but ostler does not change the partition mode of AMD's GPUs", fix))
    else:
        problem = f"{what} of NVIDIA, but this resource may select other devices"
        problems.append(place.error(problem, "select them with 'devices: {vendor: nvidia, kind: gpu}'"))
    return False


def check_mig(rule: Rule, own: Values, problems: list[ConfigError]) -> None:
    """Report why devices cannot be divided as the resource says."""
    if MIG not in own:
        return
    place, selected = own.place(MIG), rule.selector
    divisible = check_divisible(rule, place, "divides whole GPUs", problems)
    if divisible and rule.layout is not None and selected.mig_enabled is not None:
        problem = "changes the MIG mode of a GPU, but devices select by migEnabled"
        problems.append(place.error(problem, "remove migEnabled"))
    if rule.layout is not None and rule.partitions:
        problem = "has a layout, but partitions are made on demand"
        problems.append(place.error(problem, "remove one of the two: both divide the same GPUs"))
    if rule.layout is not None and rule.sharing is not None:
        problem = "has a layout, but sharing shares the same GPUs"
        fix = "remove one of the two; to share the instances, put sharing to the resource that selects them"
        problems.append(place.error(problem, fix))
