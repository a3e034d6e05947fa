"""Which GPUs are expected when NICs come first: what would be preferred of those that are thought to be free."""

from __future__ import annotations

from dataclasses import replace

from node.inventory.model import Device, DeviceKind
from node.offer import OfferedDevice
from plugin.gpu_nic_pairing import MOST, ExpectedGpus
from plugin.preferred import PlacementMap, Preference
from tests.making.places import even, nic, path_of

GPU = "nvidia.com/gpu"
NAMES = [f"gpu-{number}" for number in range(8)]
DEVICES = {name: OfferedDevice(name, Device(name, DeviceKind.GPU, "nvidia"), healthy=True) for name in NAMES}
NODE = PlacementMap(even(8))


def expecting(devices: dict[str, OfferedDevice] = DEVICES) -> ExpectedGpus:
    made = ExpectedGpus()
    made.offered(GPU, Preference(devices, NODE))
    return made


def names(made: ExpectedGpus, count: int, *near: int) -> list[str]:
    places = [nic(number, (*path_of(number, 8)[:-1], f"nic-port-{number}"), number // 4) for number in near]
    return [place.name for place in made.gpus(count, places)]


def test_what_would_be_preferred_is_expected() -> None:
    made = expecting()
    assert names(made, 1) == ["gpu-0"]
    made.granted(GPU, ["gpu-0", "gpu-4", "gpu-5"], [])
    assert names(made, 1) == ["gpu-1"]
    assert names(made, 2) == ["gpu-6", "gpu-7"]
    assert names(made, 9) == ["gpu-1", "gpu-2", "gpu-3", "gpu-6", "gpu-7"]


def test_nics_that_the_container_has_already_draw_the_gpus() -> None:
    assert names(expecting(), 1, 5) == ["gpu-4"]
    assert names(expecting(), 2, 7) == ["gpu-6", "gpu-7"]


def test_gpus_that_the_kubelet_names_as_available_are_free_again() -> None:
    made = expecting()
    made.granted(GPU, NAMES, [])
    made.free(["gpu-3", "gpu-6"])
    assert names(made, 2) == ["gpu-3", "gpu-6"]


def test_gpus_are_free_again_when_the_nics_of_their_container_are() -> None:
    made = expecting()
    made.granted(GPU, NAMES[:4], ["n0"])
    made.joined(NAMES[:4], ["n1"])
    made.granted(GPU, NAMES[4:], ["n2"])
    made.free(["n1", "n9"])
    assert names(made, 4) == NAMES[:4]
    made.granted(GPU, NAMES[:4], [])
    made.free(["n1"])
    assert names(made, 1) == ["gpu-0"], "none is free that is known, so it may be any"
    made.free(["n2"])
    assert names(made, 1) == ["gpu-4"]


def test_unhealthy_gpus_are_not_expected() -> None:
    made = expecting({name: replace(device, healthy=name > "gpu-2") for name, device in DEVICES.items()})
    assert names(made, 1) == ["gpu-3"]


def test_the_resource_that_was_given_last_is_expected() -> None:
    made = expecting({name: device for name, device in DEVICES.items() if name < "gpu-4"})
    made.offered("other/gpu", Preference({name: DEVICES[name] for name in NAMES[4:]}, NODE))
    assert names(made, 1) == ["gpu-0"]
    made.granted("other/gpu", ["gpu-4"], [])
    assert names(made, 1) == ["gpu-5"]
    made.withdrawn("other/gpu")
    assert names(made, 1) == ["gpu-0"]
    made.offered(GPU, Preference({}, NODE))
    assert names(made, 1) == []


def test_memory_is_bounded_and_loses_the_oldest() -> None:
    made = expecting()
    made.granted(GPU, NAMES[:2], [])
    made.granted(GPU, (f"instance-{number}" for number in range(MOST - 1)), [])
    assert names(made, 1) == ["gpu-0"]
