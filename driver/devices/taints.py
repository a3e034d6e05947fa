"""Why a device may not be given out, as a taint: new claims stay away from it, running pods stay.

Pure. Who tolerates a cause can still be given the device, and preparation may refuse it then. A taint evicts in two
cases only. One is a device that is known to be sick or gone, where the policy of health says so:
one whose state is unknown (the driver is away, NVML silent) never costs a running pod. The other is a device that a
live pod has through the plugin door while a claim was allocated it: the pod of that claim never started and cannot
start here, and its eviction is what lets it be scheduled elsewhere. That one goes before all other causes.
"""

from __future__ import annotations

from driver.devices.effect import TaintEffect
from driver.devices.offered import DraDevice
from kube.bodies import Json
from node.health.state import HealthState
from node.offer import Cause
from node.rules import Door

DOMAIN = "ostler.dev"
"""Of the keys, whatever the driver's name is: tolerations are written in people's claims."""


def taints(offered: DraDevice) -> list[Json]:
    """The device's taints, none for one that may be given out.

    The key names the cause (``ostler.dev/link-down``). The value is the state of health (``unhealthy``, ``unknown``)
    or the door that has the device where that is the cause, and left out otherwise. ``timeAdded`` is the API server's.
    """
    if offered.contested:
        return [_taint(Cause.OTHER_DOOR, TaintEffect.NO_EXECUTE, offered)]
    if offered.healthy:
        return []
    cause = offered.cause or Cause.HEALTH
    evicts = _is_sick(offered, cause) and offered.device.health.evicts
    return [_taint(cause, TaintEffect.NO_EXECUTE if evicts else TaintEffect.NO_SCHEDULE, offered)]


def _taint(cause: Cause, effect: TaintEffect, offered: DraDevice) -> Json:
    taint: dict[str, Json] = {"key": f"{DOMAIN}/{cause.value.replace('_', '-')}", "effect": effect.value}
    if cause is Cause.HEALTH:
        taint["value"] = offered.device.health.state.value
    elif cause is Cause.OTHER_DOOR:
        taint["value"] = Door.PLUGIN.value
    return taint


def _is_sick(offered: DraDevice, cause: Cause) -> bool:
    return cause in (Cause.HEALTH, Cause.GONE) and offered.device.health.state is HealthState.UNHEALTHY
