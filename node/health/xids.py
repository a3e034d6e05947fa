"""The action for each of NVIDIA's XIDs: NVIDIA's catalog as a table, two other readings, and the configuration's.

Pure. The catalog names an immediate action for every XID; ``_CATALOG`` has it in our words, for the XIDs of Ampere and
newer GPUs (catalog of October 2025). If the catalog gives a procedure instead of an action (45, 48, 74, 144 to 150) or
nothing (162 to 172), the choice is ours, and a comment at the entry explains it. XIDs that it calls unused are unknown.

XID 154 reports that the recovery action changed, also back to none; every profile ignores it, because NVML's field 230
reports the same as a condition that ends (``Trouble.RECOVERY``).
"""

from __future__ import annotations

from enum import StrEnum

from node.health.state import Action
from node.values import Value, value


class Profile(StrEnum):
    """A reading of the catalog."""

    CATALOG = "catalog"
    """NVIDIA's documented immediate actions."""
    COMPAT = "compat"
    """What NVIDIA's device plugin does: six XIDs are applications' faults, any other but 154 takes the GPU away."""
    STRICT = "strict"
    """The catalog, one step harder: nothing that an application may have caused leaves the GPU in use."""


_APPLICATION = (
    *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 94),
    *range(96, 106),
    *range(126, 136),
    139,
)
"""The catalog's action is to start the application again."""
_HARMLESS = (14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157, 160, 161)
"""The catalog's action is to ignore it."""
_RESET = (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)
"""The catalog's action is to reset the GPU."""

_RECOVERY_CHANGED = 154
_UNCONTAINED = 95
"""A memory error that was not contained, which may have hit all that runs on the GPU, whichever MIG instance the driver
names. A contained one (94) is its instance's alone: everything else runs on unaffected, says NVIDIA's "GPU Memory Error
Management".
"""

_CATALOG: dict[int, Action] = {
    **dict.fromkeys(_APPLICATION, Action.WARN),
    **dict.fromkeys(_HARMLESS, Action.IGNORE),
    **dict.fromkeys(_RESET, Action.RESET),
    45: Action.WARN,  # A procedure: it follows another XID, or the fabric manager must be started again.
    48: Action.RESET,  # A procedure that ends with a reset, by itself as well as together with 63 or 64.
    54: Action.REPLACE,  # Power cables.
    74: Action.RESET,  # A procedure by the bits of a register, most of which end with a reset.
    78: Action.WARN,  # Another driver for the vGPU.
    79: Action.RESET,  # A reboot, or another start on the bus.
    142: Action.DRAIN,  # NVIDIA's support.
    **dict.fromkeys(range(144, 151), Action.DRAIN),  # A procedure by sub-codes; field 230 tells when a reset is needed.
    151: Action.RESET,  # A restart of the virtual machine.
    _RECOVERY_CHANGED: Action.IGNORE,
    159: Action.DRAIN,  # Of unified memory; followed by others where it matters.
    **dict.fromkeys(range(162, 166), Action.WARN),  # Power smoothing comes and goes; the GPU computes as before.
    **dict.fromkeys((166, 170), Action.WARN),  # Confidential computing: links not encrypted in time.
    **dict.fromkeys((167, 168, 169), Action.RESET),  # PCIe time-out; errors in protected memory; a controller halted.
    **dict.fromkeys((171, 172), Action.DRAIN),  # Details of a 48.
}
_PLUGIN_IGNORES = (13, 31, 43, 45, 68, 109)
"""What NVIDIA's device plugin takes for faults of applications."""
_HARDER = {Action.IGNORE: Action.WARN, Action.WARN: Action.DRAIN, Action.DRAIN: Action.RESET}
_UNKNOWN = {Profile.CATALOG: Action.DRAIN, Profile.COMPAT: Action.RESET, Profile.STRICT: Action.RESET}

_MEANINGS = {
    13: "exception in the graphics engine",
    31: "illegal memory access (MMU fault)",
    32: "corrupted push buffer",
    43: "the driver stopped a channel",
    45: "channels cleaned up after another error",
    46: "the GPU stopped processing",
    48: "double-bit ECC error",
    54: "auxiliary power is not connected",
    61: "breakpoint in the power controller",
    62: "halt of the power controller",
    63: "a memory row or page is retired",
    64: "a memory row or page could not be retired",
    68: "exception in the video decoder",
    69: "class error in the graphics engine",
    74: "NVLink error",
    79: "the GPU fell off the bus",
    92: "many single-bit ECC errors",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "time-out of a context switch",
    110: "security fault",
    119: "the GSP did not answer in time",
    120: "GSP error",
    121: "corrected errors between CPU and GPU",
    136: "link training failed",
    137: "illegal access over NVLink",
    140: "ECC error that could not be recovered",
    143: "the GPU could not be initialised",
    145: "NVLink error",
    149: "NVLink error",
    151: "key rotation failed",
    154: "the recovery action changed",
    155: "an NVLink went down",
    156: "a resource is retired",
    158: "fatal time-out",
    167: "fatal PCIe time-out",
    168: "errors in protected memory",
    169: "halt of the security controller",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}


@value
class XidTable(Value):
    """A profile and what the configuration says over it: of single XIDs, and of those that the catalog lacks."""

    profile: Profile = Profile.CATALOG
    unknown: Action | None = None
    overrides: tuple[tuple[int, Action], ...] = ()

    def action(self, xid: int) -> Action:
        """What an XID asks for."""
        given = next((action for code, action in self.overrides if code == xid), None)
        if given is not None:
            return given
        if not is_known(xid):
            return self.unknown or _UNKNOWN[self.profile]
        if xid == _RECOVERY_CHANGED:
            return Action.IGNORE
        if self.profile is Profile.COMPAT:
            return Action.WARN if xid in _PLUGIN_IGNORES else Action.RESET
        action = _CATALOG[xid]
        if self.profile is Profile.STRICT:
            return _HARDER.get(action, action)
        return action


def is_known(xid: int) -> bool:
    """Whether the catalog has it."""
    return xid in _CATALOG


def is_of_all_instances(xid: int | None) -> bool:
    """Whether it concerns every MIG instance of the GPU although the driver names one."""
    return xid == _UNCONTAINED


def known_xids() -> tuple[int, ...]:
    """All XIDs of the catalog, in order."""
    return tuple(sorted(_CATALOG))


def meaning(xid: int) -> str:
    """What an XID means in a few words; empty if the table has none."""
    return _MEANINGS.get(xid, "")
