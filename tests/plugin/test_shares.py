"""Replicas at the plugin door: which of them a container should get, what it gets, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.clocks import SystemClocks
from node.edits.options import CdiMode, EditOptions, IdStrategy, ListStrategy
from node.eligibility import offer
from node.events import EventBus
from node.inventory.model import Device, DeviceKind, Snapshot
from node.ledger.offer_context import NOTHING_HELD
from node.offer import OfferedDevice
from node.rules import Door, Rule, Selector
from node.sharing import SharePreference, Sharing
from ostler.metrics.counters import PluginMetrics
from plugin.admission import TooManyShares
from plugin.gpu_nic_pairing import RecentGrants
from plugin.listing import DeviceListing, encode
from plugin.preferred import PlacementMap, Preference
from plugin.servicer import DevicePluginServicer, renderer
from plugin.specs import desired_specs
from protos.deviceplugin.v1beta1 import api_pb2
from tests.making.devices import gpu
from tests.making.places import even
from tests.making.servicer_calls import ServicerCallFailed
from tests.plugin.admitting import CALL

RESOURCE = "nvidia.com/gpu.shared"
DISTRIBUTED = Sharing(replicas=4)
PACKED = Sharing(replicas=4, preference=SharePreference.PACKED)
SAME = Sharing(replicas=4, same_device=True)
PACKED_SAME = Sharing(replicas=4, preference=SharePreference.PACKED, same_device=True)


def shown(sharing: Sharing, count: int, edits: EditOptions = EditOptions()) -> dict[str, OfferedDevice]:  # noqa: B008 - frozen
    """The replicas of so many GPUs, by id."""
    rule = Rule(RESOURCE, Selector(kinds=(DeviceKind.GPU,)), edits=edits, sharing=sharing)
    devices = tuple(gpu(number, numa_node=number // 2) for number in range(count))
    (resource,) = offer(Snapshot(1, devices), (rule,), door=Door.PLUGIN, context=NOTHING_HELD).resources
    return {item.id: item for item in resource.devices}


def prefer(
    sharing: Sharing, available: Sequence[str], size: int, required: Sequence[str] = (), count: int = 4
) -> list[str]:
    return Preference(shown(sharing, count), PlacementMap(), sharing).prefer(available, required, size)


def left(**taken: int) -> list[str]:
    """The replicas of four GPUs without the first ones of some: ``g2=3`` has only ``GPU-2::3`` left."""
    return [f"GPU-{gpu}::{n}" for gpu in range(4) for n in range(taken.get(f"g{gpu}", 0), 4)]


def test_distributed_takes_from_the_device_with_the_fewest_shares_allocated() -> None:
    assert prefer(DISTRIBUTED, left(g0=2, g1=1, g2=3, g3=1), 1) == ["GPU-1::1"]
    assert prefer(SAME, left(g0=2, g1=1, g2=3), 3) == ["GPU-3::0", "GPU-1::1", "GPU-3::1"]


def test_packed_takes_from_the_device_with_the_most_shares_allocated() -> None:
    assert prefer(PACKED, left(g0=2, g1=1, g2=3), 1) == ["GPU-2::3"]
    assert prefer(PACKED_SAME, left(g0=2, g1=1), 3) == ["GPU-0::2", "GPU-0::3", "GPU-1::1"]


@pytest.mark.parametrize("sharing", [DISTRIBUTED, PACKED])
def test_no_two_shares_of_one_device_go_to_a_container_while_others_have_some(sharing: Sharing) -> None:
    chosen = prefer(sharing, left(g0=3, g1=1), 4)
    assert {id_.partition("::")[0] for id_ in chosen} == {f"GPU-{number}" for number in range(4)}
    assert Counter(id_.partition("::")[0] for id_ in prefer(sharing, left(g2=4, g3=4), 3)).most_common(1)[0][1] == 2
    only = left(g1=4, g2=4, g3=4)
    assert prefer(sharing, only, 2) == ["GPU-0::0", "GPU-0::1"], "there is no other choice"


@pytest.mark.parametrize("sharing", [DISTRIBUTED, PACKED])
def test_what_must_be_included_counts_as_the_containers_own(sharing: Sharing) -> None:
    chosen = prefer(sharing, left(), 2, ["GPU-0::3"])
    assert chosen[0] == "GPU-0::3"
    assert not chosen[1].startswith("GPU-0")


def test_shares_of_another_numa_node_that_the_kubelet_left_out_are_not_chosen() -> None:
    of_node = [id_ for id_ in left(g2=1) if id_.startswith(("GPU-2", "GPU-3"))]
    assert prefer(DISTRIBUTED, of_node, 2) == ["GPU-3::0", "GPU-2::1"]


def test_of_equally_free_devices_one_near_to_the_containers_others_is_taken() -> None:
    gpus = [Device(f"gpu-{number}", DeviceKind.GPU, "nvidia") for number in range(8)]
    devices = {
        f"{gpu.name}::{n}": OfferedDevice(f"{gpu.name}::{n}", gpu, True, share=f"{n}") for gpu in gpus for n in (0, 1)
    }
    preference = Preference(devices, PlacementMap(even(8)), DISTRIBUTED)
    assert preference.prefer([*devices], ["gpu-5::1"], 2) == ["gpu-5::1", "gpu-4::0"]


REPLICAS = [f"GPU-{number}::{n}" for number in range(4) for n in range(4)]


@given(
    st.lists(st.sampled_from(REPLICAS), min_size=1, unique=True),
    st.lists(st.sampled_from(REPLICAS), max_size=3, unique=True),
    st.integers(0, 8),
    st.sampled_from((DISTRIBUTED, PACKED, SAME, PACKED_SAME)),
)
def test_every_share_is_the_best_one_by_the_policy_when_it_is_taken(
    available: list[str], required: list[str], size: int, sharing: Sharing
) -> None:
    available = [*dict.fromkeys((*required, *available))]
    size = max(size, len(required))
    chosen = prefer(sharing, available, size, required)
    assert len(chosen) == len(set(chosen)) == min(size, len(available))
    assert set(chosen) <= set(available)
    assert chosen[: len(required)] == sorted(required)
    if len(available) <= size:
        return
    free = [id_ for id_ in available if id_ not in required]
    mine = Counter(id_.partition("::")[0] for id_ in required)
    for id_ in chosen[len(required) :]:
        devices = Counter(each.partition("::")[0] for each in free)
        device = id_.partition("::")[0]
        if not sharing.same_device:
            fewest = min(mine[each] for each in devices)
            assert mine[device] == fewest
            devices = Counter({each: count for each, count in devices.items() if mine[each] == fewest})
        best = min if sharing.preference is SharePreference.PACKED else max
        assert devices[device] == best(devices.values()), "as NVIDIA's plugin counts: what is available of each"
        free.remove(id_)
        mine[device] += 1


class _Desk:
    """A servicer of the replicas of two GPUs, asked in-process."""

    def __init__(self, sharing: Sharing, edits: EditOptions = EditOptions(device_specs=False)) -> None:  # noqa: B008 - frozen
        rule = Rule(RESOURCE, Selector(kinds=(DeviceKind.GPU,)), edits=edits, sharing=sharing)
        snapshot = Snapshot(1, (gpu(0), gpu(1)))
        self.offer = offer(snapshot, (rule,), NOTHING_HELD, Door.PLUGIN)
        self.specs = desired_specs(self.offer, snapshot)
        (resource,) = self.offer.resources
        self.listing = DeviceListing(RESOURCE, EventBus())
        self.listing.update(resource.devices)
        self.servicer = DevicePluginServicer(
            self.listing,
            renderer(resource, lambda: "unique"),
            PluginMetrics(),
            RecentGrants(SystemClocks(monotonic=lambda: 0.0)),
        )
        self.servicer.use(PlacementMap(), sharing)

    async def allocate(self, *ids: str) -> api_pb2.ContainerAllocateResponse:
        request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=ids)])
        (answer,) = (await self.servicer.Allocate(request, CALL)).container_responses
        return answer


async def test_several_shares_are_refused_where_the_rule_says_so_and_the_error_says_what_to_write() -> None:
    desk = _Desk(Sharing(replicas=3, fail_multiple=True))
    with pytest.raises(ServicerCallFailed, match="maximum request size for shared resources is 1; found 2") as refused:
        await desk.allocate("GPU-0::0", "GPU-1::0")
    assert refused.value.code == grpc.StatusCode.INVALID_ARGUMENT.name
    assert str(refused.value) == f"INVALID_ARGUMENT: {TooManyShares(RESOURCE, 2)}"
    assert f"write '{RESOURCE}: 1' in the container's resources.limits" in str(refused.value)
    assert (await desk.allocate("GPU-1::2")).envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


async def test_devices_of_a_shared_resource_that_are_not_shared_may_be_several() -> None:
    desk = _Desk(Sharing(replicas=3, own_replicas=(("*", 1),), fail_multiple=True))
    assert [*desk.listing.devices] == ["GPU-0", "GPU-1"]
    assert (await desk.allocate("GPU-0", "GPU-1")).envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (EditOptions(device_specs=False), {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-0"}),
        (EditOptions(device_specs=False, ids=IdStrategy.INDEX), {"NVIDIA_VISIBLE_DEVICES": "0,1"}),
    ],
)
async def test_two_shares_of_one_device_are_one_device_for_the_container(
    options: EditOptions, told: Mapping[str, str]
) -> None:
    answer = await _Desk(DISTRIBUTED, options).allocate("GPU-1::3", "GPU-0::0", "GPU-1::1")
    assert answer.envs == told


async def test_device_nodes_mounts_and_cdi_names_are_given_once() -> None:
    every = EditOptions(strategies=tuple(ListStrategy), cdi_mode=CdiMode.NODES)
    desk = _Desk(DISTRIBUTED, every)
    answer = await desk.allocate("GPU-1::3", "GPU-1::1")
    paths = [node.container_path for node in answer.devices]
    assert len(paths) == len(set(paths))
    assert paths.count("/dev/nvidia2") == 1
    assert [each.name for each in answer.cdi_devices] == ["k8s.device-plugin.nvidia.com/gpu=GPU-1"]
    assert [mount.container_path for mount in answer.mounts] == ["/var/run/nvidia-container-devices/GPU-1"]
    files, problems = desk.specs
    assert [device.name for device in files["k8s.device-plugin.nvidia.com-gpu.json"].devices] == ["GPU-0", "GPU-1"]
    assert len(problems) == len(set(problems))


def test_every_replica_tells_the_numa_node_of_its_device() -> None:
    message = encode(shown(DISTRIBUTED, 4).values())
    nodes = {device.ID: [node.ID for node in device.topology.nodes] for device in message.devices}
    assert nodes["GPU-1::3"] == [0]
    assert nodes["GPU-2::0"] == [1]
