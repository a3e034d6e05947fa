from __future__ import annotations

import pytest

from driver.claims.model import AllocatedConfig, AllocatedDevice, Allocation, ClaimError, ClaimReference, ConfigSource
from driver.devices.view import DoorView, DraDevice
from driver.parameters.decoding import API_VERSION
from driver.parameters.errors import ParameterError
from driver.parameters.options import device_parameters
from kube.bodies import Json
from node.edits.options import CdiMode, EditOptions
from node.inventory.model import Device, Host
from node.rules import Rule
from tests.making.devices import gpu, lacking, mig, nic, rdma

CLAIM = ClaimReference("default", "claim", "uid")


def config(kind: str, *requests: str, source: ConfigSource = ConfigSource.CLAIM, **fields: Json) -> AllocatedConfig:
    parameters: dict[str, Json] = {"apiVersion": API_VERSION, "kind": kind, **fields}
    return AllocatedConfig(source, requests, parameters, f"config[{kind}]")


def allocated(device: Device, request: str = "gpu") -> AllocatedDevice:
    return AllocatedDevice(request, "node-a", device.name)


def shown(*devices: Device, rule: EditOptions | None = None, host: Host | None = None) -> DoorView:
    made = Rule("example.com/device", edits=rule or EditOptions())
    return DoorView(tuple(DraDevice(device, made, True) for device in devices), host or Host())


def options(
    devices: list[tuple[str, Device]],
    *configs: AllocatedConfig,
    rule: EditOptions | None = None,
    host: Host | None = None,
) -> list[EditOptions]:
    """The options of these devices, in their order."""
    results = tuple(allocated(device, request) for request, device in devices)
    view = shown(*(device for _, device in devices), rule=rule, host=host)
    found = device_parameters(Allocation(CLAIM, results, configs), view, "ostler.dev").options
    return [found[result.key] for result in results]


def test_without_parameters_the_rule_says_it_all() -> None:
    rule = EditOptions(features=("gdrcopy",), cdi_mode=CdiMode.FULL)
    assert options([("gpu", gpu(0))], rule=rule) == [rule]


def test_parameters_change_what_they_name_and_nothing_else() -> None:
    rule = EditOptions(cdi_mode=CdiMode.FULL, hook="/usr/bin/nvidia-cdi-hook", features=("mofed",))
    (found,) = options([("gpu", gpu(0))], config("GpuConfig", gdrcopy=True), rule=rule)
    assert found.features == ("gdrcopy", "mofed")
    assert (found.cdi_mode, found.hook) == (rule.cdi_mode, rule.hook)


def test_parameters_can_take_away_what_the_rule_gives() -> None:
    (found,) = options([("gpu", gpu(0))], config("GpuConfig", gds=False), rule=EditOptions(features=("gds",)))
    assert found.features == ()


def test_the_claim_wins_over_the_class_field_by_field() -> None:
    of_class = config("GpuConfig", "gpu", source=ConfigSource.CLASS, gdrcopy=True, mofed=True, imexChannels=[2])
    of_claim = config("GpuConfig", gdrcopy=False)
    (found,) = options([("gpu", gpu(0))], of_claim, of_class)
    assert found.features == ("mofed",)
    assert found.imex_channels == (2,)


def test_the_last_one_for_a_request_wins() -> None:
    (found,) = options([("gpu", gpu(0))], config("GpuConfig", gdrcopy=True), config("GpuConfig", "gpu", gdrcopy=False))
    assert found.features == ()


def test_parameters_are_for_the_requests_that_they_name() -> None:
    first, second = options([("a", gpu(0)), ("b", gpu(1))], config("GpuConfig", "b", gdrcopy=True))
    assert first.features == ()
    assert second.features == ("gdrcopy",)


def test_parameters_for_all_requests_are_for_the_devices_that_they_fit() -> None:
    card, adapter = options(
        [("gpu", gpu(0)), ("nic", rdma(3))], config("GpuConfig", gdrcopy=True), config("NicConfig", rdma=True)
    )
    assert (card.features, card.rdma) == (("gdrcopy",), False)
    assert (adapter.features, adapter.rdma) == ((), True)


def test_parameters_that_name_a_request_must_fit_its_device() -> None:
    with pytest.raises(ParameterError) as raised:
        options([("gpu", mig(1))], config("GpuConfig", "gpu"))
    assert str(raised.value) == (
        "config[GpuConfig].kind: GpuConfig is for request gpu, whose device mig-0000-0b-00-0-1-1 is of kind mig; "
        "write MigConfig, or name other requests"
    )


def test_an_alternative_is_named_by_itself_or_with_all_others() -> None:
    for name in ("gpu", "gpu/part"):
        (found,) = options([("gpu/part", mig(1))], config("MigConfig", name, gdrcopy=True))
        assert found.features == ("gdrcopy",)
    (untouched,) = options([("gpu/part", mig(1))], config("MigConfig", "gpu/whole", gdrcopy=True))
    assert untouched.features == ()


def test_the_other_alternatives_parameters_do_not_harm() -> None:
    (found,) = options([("gpu/part", mig(1))], config("GpuConfig", "gpu", gds=True), config("MigConfig", "gpu"))
    assert found.features == ()


def test_a_mistake_shows_even_where_no_device_is_concerned() -> None:
    with pytest.raises(ParameterError, match=r"config\[NicConfig\]\.rmda: NicConfig has no such field; did you mean"):
        options([("gpu", gpu(0))], config("NicConfig", rmda=True))


def test_shares_of_one_device_have_options_of_their_own() -> None:
    first = AllocatedDevice("a", "node-a", gpu(0).name, "share-1")
    second = AllocatedDevice("b", "node-a", gpu(0).name, "share-2")
    allocation = Allocation(CLAIM, (first, second), (config("GpuConfig", "b", gdrcopy=True),))
    found = device_parameters(allocation, shown(gpu(0)), "ostler.dev").options
    assert found[first.key].features == ()
    assert found[second.key].features == ("gdrcopy",)


def test_a_device_that_is_not_offered_is_left_to_the_caller() -> None:
    assert device_parameters(Allocation(CLAIM, (allocated(gpu(0)),)), shown(), "ostler.dev").options == {}


def test_a_feature_that_the_node_lacks_is_refused() -> None:
    with pytest.raises(ParameterError) as raised:
        options([("gpu", lacking(gpu(0), "/dev/gdrdrv"))], config("GpuConfig", gdrcopy=True))
    assert str(raised.value) == (
        "config[GpuConfig].gdrcopy: the node has no /dev/gdrdrv; load its kernel module on the node, or leave it out"
    )


def test_a_feature_is_the_vendors_to_know_where_its_specs_are_used() -> None:
    rule = EditOptions(cdi_mode=CdiMode.DELEGATE)
    without = lacking(gpu(0), "/dev/gdrdrv")
    assert options([("gpu", without)], config("GpuConfig", gdrcopy=True), rule=rule)[0].features == ("gdrcopy",)


def test_features_are_nvidias() -> None:
    from tests.making.devices import amd

    with pytest.raises(ParameterError, match=r"gdrcopy, gds, mofed and IMEX are NVIDIA's, .* is amd's; leave its"):
        options([("gpu", amd(0))], config("GpuConfig", gdrcopy=True))


def test_a_required_channel_that_is_missing_is_refused() -> None:
    of_class = config("GpuConfig", "gpu", source=ConfigSource.CLASS, imexChannels=[0, 1], imexRequired=True)
    with pytest.raises(ParameterError) as raised:
        options([("gpu", gpu(0))], of_class)
    assert str(raised.value) == (
        "config[GpuConfig].imexChannels: missing on this node: /dev/nvidia-caps-imex-channels/channel1; "
        "create them (nvidia-modprobe, /dev/nvidia-caps-imex-channels/channelN), or set imexRequired to false"
    )


def test_rdma_of_a_nic_that_has_none_is_refused() -> None:
    with pytest.raises(ParameterError) as raised:
        options([("nic", nic(3))], config("NicConfig", rdma=True))
    fix = "select devices with RDMA, or leave it out"
    assert str(raised.value) == f"config[NicConfig].rdma: nic-0000-03-00-0: it has no RDMA device; {fix}"


def test_rdma_without_its_nodes_is_refused() -> None:
    with pytest.raises(ParameterError, match="these RDMA device nodes are missing: uverbs"):
        options([("nic", rdma(3, "umad"))], config("NicConfig", rdma=True))


FIX = "run 'rdma system set netns shared' on the node before any pod has a network"
EXCLUSIVE = (
    "RDMA devices of this node are bound to network namespaces (exclusive mode), and ostler moves one only with its "
    "network interface; "
)


def test_rdma_in_exclusive_mode_is_refused_where_a_claim_asks_for_it() -> None:
    with pytest.raises(ParameterError) as raised:
        options([("nic", rdma(3))], config("NicConfig", rdma=True), host=Host(rdma_exclusive=True))
    assert str(raised.value) == f"config[NicConfig].rdma: nic-0000-03-00-0: {EXCLUSIVE}{FIX}"


def test_rdma_in_exclusive_mode_is_refused_where_the_rule_gives_it() -> None:
    with pytest.raises(ClaimError) as raised:
        options([("nic", rdma(3))], rule=EditOptions(rdma=True), host=Host(rdma_exclusive=True))
    assert str(raised.value) == f"device nic-0000-03-00-0: its rule gives RDMA; {EXCLUSIVE}{FIX}"
    with pytest.raises(ClaimError) as raised:
        options([("nic", rdma(3, ifName="ens3"))], rule=EditOptions(rdma=True), host=Host(rdma_exclusive=True))
    move = "set moveInterface: true for its resource in ostler's configuration, or "
    assert str(raised.value) == f"device nic-0000-03-00-0: its rule gives RDMA; {EXCLUSIVE}{move}{FIX}"


def test_exclusive_mode_is_no_matter_to_claims_without_rdma() -> None:
    rule = EditOptions(rdma=True)
    (found,) = options([("nic", rdma(3))], config("NicConfig", rdma=False), rule=rule, host=Host(rdma_exclusive=True))
    assert not found.rdma


def test_vhost_net_that_the_node_lacks_is_refused() -> None:
    with pytest.raises(ParameterError) as raised:
        options([("nic", lacking(nic(3), "/dev/vhost-net"))], config("NicConfig", vhostNet=True))
    assert str(raised.value) == (
        "config[NicConfig].vhostNet: /dev/vhost-net missing on this node; load the kernel module vhost_net on the "
        "node, or leave it out"
    )


def test_a_fault_is_that_of_the_last_one_who_asked_for_it() -> None:
    first, last = config("GpuConfig", imexChannels=[0]), config("GpuConfig", imexChannels=[7], imexRequired=True)
    named = [
        AllocatedConfig(ConfigSource.CLASS, each.requests, each.parameters, place)
        for each, place in ((first, "config[0]"), (last, "config[1]"))
    ]
    with pytest.raises(ParameterError) as raised:
        options([("gpu", gpu(0))], *named)
    assert raised.value.place == "config[1]"


def test_who_asks_for_what_the_rule_gives_anyway_is_not_at_fault() -> None:
    rule = EditOptions(features=("gdrcopy",))
    (found,) = options([("gpu", lacking(gpu(0), "/dev/gdrdrv"))], config("GpuConfig", gdrcopy=True), rule=rule)
    assert found == rule


def test_rdma_nodes_of_a_nic_that_is_in_a_pod_are_not_looked_for() -> None:
    (found,) = options([("nic", nic(3, inPod=True))], config("NicConfig", rdma=True))
    assert found.rdma


def test_vhost_net_that_is_taken_away_need_not_be_there() -> None:
    rule = EditOptions(vhost_net=True)
    without = lacking(nic(3), "/dev/vhost-net")
    assert not options([("nic", without)], config("NicConfig", vhostNet=False), rule=rule)[0].vhost_net


def test_channels_that_are_not_required_may_be_missing() -> None:
    of_class = config("GpuConfig", "gpu", source=ConfigSource.CLASS, imexChannels=[0, 1], imexRequired=False)
    (found,) = options([("gpu", gpu(0))], of_class, rule=EditOptions(imex_required=True))
    assert (found.imex_channels, found.imex_required) == ((0, 1), False)
