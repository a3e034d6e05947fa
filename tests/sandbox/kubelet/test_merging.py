"""The pure parts: alignment, run options, order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.allocation import Alignment, filter_by_affinity
from sandbox.kubelet.devices import DeviceSet, in_order
from sandbox.kubelet.pod_devices import DeviceInfo, OptionConflict, RunOptions, merge
from sandbox.kubelet.topology import TopologyHint
from tests.sandbox.kubelet.scripted_plugin import device

_SPREAD = DeviceSet.listed(
    api_pb2.ListAndWatchResponse(
        devices=[
            device("dev1", nodes=[1]),
            device("dev2", nodes=[1, 2]),
            device("dev3", nodes=[2]),
            device("dev4", nodes=[2]),
            device("dev5"),
        ]
    )
)


@pytest.mark.parametrize(
    ("available", "aligned", "unaligned", "without"),
    [
        (("dev1", "dev2"), {"dev2"}, {"dev1"}, set()),
        (("dev1", "dev2", "dev3", "dev4"), {"dev2", "dev3", "dev4"}, {"dev1"}, set()),
        (("dev5", "dev1"), set(), {"dev1"}, {"dev5"}),
    ],
)
def test_device_goes_to_the_first_node_that_has_it(
    available: tuple[str, ...], aligned: set[str], unaligned: set[str], without: set[str]
) -> None:
    found = filter_by_affinity(_SPREAD, available, TopologyHint(frozenset({2})))
    assert (set(found.aligned), set(found.unaligned), set(found.no_affinity)) == (aligned, unaligned, without)


@given(st.sets(st.sampled_from(sorted(_SPREAD.known))), st.none() | st.frozensets(st.integers(0, 3)))
def test_every_free_device_is_in_exactly_one_list(available: set[str], mask: frozenset[int] | None) -> None:
    found = filter_by_affinity(_SPREAD, available, TopologyHint(mask))
    assert sorted((*found.aligned, *found.unaligned, *found.no_affinity)) == sorted(available)


def test_without_a_mask_nothing_is_aligned() -> None:
    assert filter_by_affinity(_SPREAD, {"dev2", "dev1"}, TopologyHint()) == Alignment(no_affinity=("dev1", "dev2"))


def test_first_answer_wins_and_each_conflict_is_reported() -> None:
    spec, mount = api_pb2.DeviceSpec, api_pb2.Mount
    first = api_pb2.ContainerAllocateResponse(
        envs={"A": "1", "SAME": "x"},
        devices=[spec(host_path="/dev/h0", container_path="/dev/d", permissions="r")],
        mounts=[mount(host_path="/h0", container_path="/m", read_only=True)],
        annotations={"k": "1"},
        cdi_devices=[api_pb2.CDIDevice(name="v/c=1"), api_pb2.CDIDevice(name="v/c=1")],
    )
    second = api_pb2.ContainerAllocateResponse(
        envs={"A": "2", "SAME": "x"},
        devices=[spec(host_path="/dev/h1", container_path="/dev/d", permissions="rw")],
        mounts=[mount(host_path="/h1", container_path="/m")],
        annotations={"k": "2"},
        cdi_devices=[api_pb2.CDIDevice(name="v/c=2"), api_pb2.CDIDevice(name="v/c=1")],
    )
    options = merge({"b.example/x": second, "a.example/x": first})
    assert options.envs == {"A": "1", "SAME": "x"}
    assert options.devices == (DeviceInfo("/dev/h0", "/dev/d", "r"),)
    assert options.cdi_devices == ("v/c=1", "v/c=2")
    assert options.conflicts == (
        OptionConflict("env", "A", "1", "2", "b.example/x"),
        OptionConflict("device", "/dev/d", "/dev/h0 (r)", "/dev/h1 (rw)", "b.example/x"),
        OptionConflict("mount", "/m", "/h0 (ro)", "/h1 (rw)", "b.example/x"),
        OptionConflict("annotation", "k", "1", "2", "b.example/x"),
    )
    assert str(options.conflicts[0]) == "env 'A': '1' kept, '2' of b.example/x dropped"


def test_empty_answer_gives_empty_options() -> None:
    assert merge({"a.example/x": api_pb2.ContainerAllocateResponse()}) == RunOptions()


@given(st.lists(st.text(max_size=6)))
def test_order_is_total(ids: list[str]) -> None:
    assert sorted(in_order(ids)) == sorted(ids)


def test_numbers_in_ids_count_as_numbers() -> None:
    assert in_order(["gpu-10", "gpu-2", "gpu-" + "9" * 5000, "a", "gpu-02", "²"]) == [
        "a",
        "gpu-02",
        "gpu-2",
        "gpu-10",
        "gpu-" + "9" * 5000,
        "²",
    ]
