"""Kubelet releases whose device manager behaves differently, and in what.

A generation is named after the newest release that behaves so: 1.24 means 1.18 to 1.24, 1.35 means 1.25 to 1.35. Parts
ask for a behaviour and never compare releases, so this table is the only place that knows which release does what.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from sandbox.kubelet.errors import KubeletError

Generation = Literal["1.24", "1.35", "1.36", "1.37"]
GENERATIONS: Final[tuple[Generation, ...]] = get_args(Generation)

Slot = Literal["instance", "resource", "socket"]
"""What the end of a plugin's stream disconnects: that instance, whichever instance holds the resource, or that socket.

``resource`` is the fault of kubelets 1.25 to 1.36: a late end of the old instance disconnects the new one.
"""


@dataclass(frozen=True, slots=True)
class KubeletBehaviour:
    """What one generation does; every flag is false for a generation that lacks the behaviour."""

    generation: Generation
    slot: Slot
    user_agent: str
    """Of its calls: the version of the gRPC library that it is built with."""
    registers_in_background: bool = False
    """Register answers before the dial-back, and the options of its request count."""
    marks_deprecation: bool = False
    """An empty file ``DEPRECATION`` lies in the device plugin folder."""
    masks_span_machine: bool = False
    """Hints range over every NUMA node of the machine, not only over those that carry devices."""
    injects_cdi_devices: bool = True
    """CDI devices of an Allocate response reach the container."""
    has_dra: bool = True
    """There is a DRA manager."""
    lists_ended_pods: bool = False
    """podresources List shows pods that have ended, without devices, until they are deleted (kubelets up to 1.33)."""
    gets_pod_resources: bool = True
    """podresources has the method Get."""
    retries_registrations: bool = True
    """A failed registration through the plugin watcher is undone and tried again."""
    reports_device_health: bool = True
    """A pod's status has the health of its devices."""
    serves_resources_by_claims: bool = True
    """A container's resource that a DRA claim serves is not asked of a device plugin."""
    scopes_health_by_resource: bool = False
    """A health change is looked up among the holders of that resource, not of every resource with an equal id."""


_BEHAVIOURS: Final = {
    behaviour.generation: behaviour
    for behaviour in (
        KubeletBehaviour(
            "1.24",
            "instance",
            "grpc-go/1.40.0",
            registers_in_background=True,
            marks_deprecation=True,
            masks_span_machine=True,
            injects_cdi_devices=False,
            has_dra=False,
            lists_ended_pods=True,
            gets_pod_resources=False,
            retries_registrations=False,
            reports_device_health=False,
            serves_resources_by_claims=False,
        ),
        KubeletBehaviour(
            "1.35",
            "resource",
            "grpc-go/1.72.2",
            masks_span_machine=True,
            retries_registrations=False,
            reports_device_health=False,
            serves_resources_by_claims=False,
        ),
        KubeletBehaviour("1.36", "resource", "grpc-go/1.79.3"),
        KubeletBehaviour("1.37", "socket", "grpc-go/1.82.1", scopes_health_by_resource=True),
    )
}


def behaviour_of(generation: str) -> KubeletBehaviour:
    """The behaviour of ``generation``; raises ``KubeletError`` for one that is not in the table."""
    for known, behaviour in _BEHAVIOURS.items():
        if known == generation:
            return behaviour
    raise KubeletError(f"kubelet generation must be one of {', '.join(GENERATIONS)}, not {generation!r}")
