"""What may never be seen from outside, whatever anybody knows: checked after every change of what containers have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.model import hardware
from tests.model.cluster import Cluster
from tests.model.kubelet import Kubelet


@dataclass(frozen=True)
class Holder:
    """Who has a device at this moment: a pod by the plugin door, or a claim for all its pods."""

    device: str
    who: str
    claim: bool = False
    share: str = ""


def holders(cluster: Cluster, kubelet: Kubelet) -> Iterator[Holder]:
    """Everybody whose containers have a device to use it."""
    for pod in (*cluster.pods.values(), *kubelet.late.values()):
        if pod.admitted:
            for _, id_ in pod.devices:
                yield Holder(hardware.NAMES[id_], pod.name)
    for lingering in kubelet.lingering.values():
        for id_ in lingering.devices:
            yield Holder(hardware.NAMES[id_], lingering.name)
    given = {name: devices for name, devices, admin in kubelet.given.values() if not admin}
    for lingering in kubelet.lingering.values():
        given |= dict(lingering.claims)
    for name, devices in given.items():
        for device, share in devices:
            yield Holder(device, name, claim=True, share=share)


def conflicts(cluster: Cluster, kubelet: Kubelet) -> list[tuple[Holder, Holder]]:
    """Devices, or what overlaps, with two holders."""
    all_ = list(holders(cluster, kubelet))
    return [
        (one, other)
        for number, one in enumerate(all_)
        for other in all_[number + 1 :]
        if one.who != other.who
        and hardware.overlap(one.device, other.device)
        and not (one.share and other.share and one.share != other.share)
    ]
