"""Why a device may not be given out, as a taint: new claims stay away from it, running pods stay.

Pure. Who tolerates a cause can still be given the device, and preparation may refuse it then. A taint evicts only
where the configuration says so, and only for a device that is known to be sick or gone: one whose state is unknown (the
driver is away, NVML silent) or that merely cannot be given out never costs a running pod.
"""

from __future__ import annotations

from driver.devices.effect import TaintEffect
from driver.devices.offered import DraDevice
from kube.bodies import Json
from node.health.state import HealthState
from node.offer import Cause

DOMAIN = "ostler.dev"
"""Of the keys, whatever the driver's name is: tolerations are written in people's claims."""


def taints(offered: DraDevice, effect: TaintEffect = TaintEffect.NO_SCHEDULE) -> list[Json]:
    """The device's taints, none for one that may be given out; ``effect``: of those of sick devices.

    The key names the cause (``ostler.dev/link-down``); the value is the state of health (``unhealthy``, ``unknown``)
    where that is the cause, and left out otherwise. ``timeAdded`` is the API server's.
    """
    if offered.healthy:
        return []
    cause = offered.cause or Cause.HEALTH
    evicts = _is_sick(offered, cause) and effect is TaintEffect.NO_EXECUTE
    shown = TaintEffect.NO_EXECUTE if evicts else TaintEffect.NO_SCHEDULE
    taint: dict[str, Json] = {"key": f"{DOMAIN}/{cause.value.replace('_', '-')}", "effect": shown.value}
    if cause is Cause.HEALTH:
        taint["value"] = offered.device.health.state.value
    return [taint]


def _is_sick(offered: DraDevice, cause: Cause) -> bool:
    return cause in (Cause.HEALTH, Cause.GONE) and offered.device.health.state is HealthState.UNHEALTHY
