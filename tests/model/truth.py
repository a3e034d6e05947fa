"""What may never be seen from outside, whatever anybody knows: checked after every change of what containers have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from node.sharing import replica_of
from tests.model import hardware
from tests.model.cluster import ModelCluster
from tests.model.kubelet import ModelKubelet


@dataclass(frozen=True)
class Holder:
    """Who has a device at this moment: a pod by the plugin door, or a claim for all its pods."""

    device: str
    who: str
    claim: bool = False
    share: str = ""
    percent: int = 100
    """Of a share; three replicas of a third each count 33 percent, as three claims do."""


def holders(cluster: ModelCluster, kubelet: ModelKubelet) -> Iterator[Holder]:
    """Everybody whose containers have a device to use it."""
    for pod in (*cluster.pods.values(), *kubelet.late.values()):
        if pod.admitted:
            for _, id_ in pod.devices:
                yield _by_id(id_, pod.name)
    for lingering in kubelet.lingering.values():
        for id_ in lingering.devices:
            yield _by_id(id_, lingering.name)
    percents = cluster.percents
    given = {name: devices for name, devices, admin in kubelet.given.values() if not admin}
    for lingering in kubelet.lingering.values():
        given |= dict(lingering.claims)
    for name, devices in given.items():
        for device, share in devices:
            yield Holder(device, name, claim=True, share=share, percent=percents.get(share, 0))


def _by_id(id_: str, who: str) -> Holder:
    _, share = replica_of(id_)
    return Holder(hardware.name_of(id_), who, share=share, percent=hardware.PERCENT if share else 100)


def overfull(cluster: ModelCluster, kubelet: ModelKubelet) -> list[tuple[str, list[str]]]:
    """Devices of which shares have more than there is, and who has those."""
    shares: dict[str, dict[str, Holder]] = {}
    for holder in holders(cluster, kubelet):
        if holder.share:
            # A share with two holders is a conflict of theirs, and counts once here.
            shares.setdefault(holder.device, {})[holder.share] = holder
    return [
        (device, sorted(each.who for each in those.values()))
        for device, those in shares.items()
        if sum(each.percent for each in those.values()) > 100
    ]


def conflicts(cluster: ModelCluster, kubelet: ModelKubelet) -> list[tuple[Holder, Holder]]:
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
