"""The DRA door in the chart: folders, flags, classes, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from driver.names import Peer, TaintEffect
from node.health.signal import Trouble
from node.rules import Doors
from scheduling.api.validation.objects import validate_class
from tests.deploy.chart.rendering import (
    Document,
    Values,
    container_of,
    flags_of,
    of_kind,
    pod_of,
    refusal,
    render,
    template,
)
from tests.deploy.chart.test_configuration import settings_of

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm

EVERYTHING: dict[str, Any] = {
    "enabled": True,
    "alsoPublishAs": [peer.value for peer in Peer],
    "extendedResources": ["nvidia.com/gpu", "example.com/NIC_fast"],
}
OWN = ["gpu.ostler.dev", "mig.ostler.dev", "nic.ostler.dev", "partition.ostler.dev", "rdma.ostler.dev"]
PEERS = ["dra.net", "gpu.nvidia.com", "mig.nvidia.com", "sriovnetwork.k8snetworkplumbingwg.io"]
EXTENDED = {"nvidia.com-gpu": "nvidia.com/gpu", "example.com-nic-fast": "example.com/NIC_fast"}


def rules(names: Iterable[str]) -> list[Document]:
    """Each of another vendor's GPUs, by claims."""
    vendors = ("nvidia", "amd", "intel")
    return [
        {"name": name, "door": "dra", "devices": {"kind": "gpu", "vendor": vendor}}
        for name, vendor in zip(names, vendors, strict=False)
    ]


def classes(dra: Values) -> dict[str, Document]:
    documents = render({"dra": dra, "config": {"resources": rules(dra.get("extendedResources", EXTENDED.values()))}})
    return {each["metadata"]["name"]: each for each in of_kind(documents, "DeviceClass")}


def test_without_the_dra_door_there_is_nothing_of_it() -> None:
    documents = render()
    assert not of_kind(documents, "DeviceClass")
    assert not {"dra", "dra-manager-state"} & {volume["name"] for volume in pod_of(documents)["volumes"]}
    assert not [flag for flag in flags_of(documents) if flag.startswith("--dra")]


def test_a_name_may_be_at_both_doors(tmp_path: Path) -> None:
    dra = {"enabled": True, "extendedResources": ["nvidia.com/gpu"]}
    both = [{"name": "nvidia.com/gpu", "door": "both", "devices": {"kind": "gpu"}}]
    documents = render({"dra": dra, "config": {"resources": both}})
    assert [rule.door for rule in settings_of(documents, tmp_path).rules] == [Doors.BOTH]
    names = [each["spec"].get("extendedResourceName") for each in of_kind(documents, "DeviceClass")]
    assert "nvidia.com/gpu" in names


def test_nodes_may_say_their_door_where_the_values_say_so(tmp_path: Path) -> None:
    plain = [{"name": "nvidia.com/gpu", "devices": {"kind": "gpu"}}]
    dra = {"enabled": True, "doorByNode": True, "extendedResources": ["nvidia.com/gpu"]}
    documents = render({"dra": dra, "config": {"resources": plain}})
    assert settings_of(documents, tmp_path).kubernetes.door_by_node
    assert flags_of(render({"dra": {"enabled": True}}))["--kubernetes-door-by-node"] == "off"


def test_the_nodes_processes_are_seen_where_the_values_say_so() -> None:
    assert pod_of(render({"hostPID": True}))["hostPID"] is True
    assert "hostPID" not in pod_of(render())


def test_the_drivers_folder_is_at_one_path_in_the_container_and_on_the_node() -> None:
    documents = render(
        {"dra": {"enabled": True, "driverName": "d.example.com"}, "kubeletRoot": "/var/lib/k0s/kubelet/"}
    )
    paths = {each["name"]: each["hostPath"]["path"] for each in pod_of(documents)["volumes"] if "hostPath" in each}
    mounts = {each["name"]: each for each in container_of(documents)["volumeMounts"]}
    folder = "/var/lib/k0s/kubelet/plugins/d.example.com"
    assert paths["dra"] == mounts["dra"]["mountPath"] == folder
    assert paths["dra-manager-state"] == "/var/lib/k0s/kubelet/dra_manager_state"
    assert mounts["dra-manager-state"]["readOnly"] is True
    assert "cdi" in mounts
    flags = flags_of(documents)
    assert flags["--dra-driver-name"] == "d.example.com"
    assert flags["--dra-plugins-dir"] == "/var/lib/k0s/kubelet/plugins"


def test_the_agent_takes_the_flags_and_looks_where_files_are_mounted(tmp_path: Path) -> None:
    documents = render({"dra": EVERYTHING, "config": {"resources": rules(EVERYTHING["extendedResources"])}})
    settings = settings_of(documents, tmp_path)
    assert settings.dra.peers == tuple(Peer)
    assert {rule.door for rule in settings.rules} == {Doors.DRA}
    mounts = {each["name"]: each["mountPath"] for each in container_of(documents)["volumeMounts"]}
    assert mounts["dra"] == str(settings.dra.plugins_dir / settings.dra.driver_name)
    assert mounts["dra-manager-state"] == str(settings.kubelet.registry_dir.parent / "dra_manager_state")
    assert mounts["cdi"] == str(settings.cdi.directory)


def test_classes_of_our_own_are_made_and_of_peers_and_resources_on_demand() -> None:
    assert sorted(classes({"enabled": True})) == OWN
    assert sorted(classes(EVERYTHING)) == sorted([*OWN, *PEERS, *EXTENDED])
    assert sorted(classes({**EVERYTHING, "peerClasses": False})) == sorted([*OWN, *EXTENDED])
    assert sorted(classes({**EVERYTHING, "deviceClasses": False})) == sorted([*PEERS, *EXTENDED])
    assert "gpu.devices.example.com" in classes({"enabled": True, "driverName": "devices.example.com"})


def test_a_class_has_the_extended_resource_it_is_for() -> None:
    found = {name: each["spec"].get("extendedResourceName") for name, each in classes(EVERYTHING).items()}
    assert {name: given for name, given in found.items() if given} == EXTENDED


@pytest.mark.parametrize("driver", ["ostler.dev", "a" * 59 + ".dev"])
def test_the_api_server_takes_every_class(driver: str) -> None:
    for name, document in classes({**EVERYTHING, "driverName": driver}).items():
        assert validate_class(document) == [], name


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"config": {"resources": [{"name": "nvidia.com/gpu", "door": "dra"}]}},
            "config.resources[0] has door dra: set dra.enabled=true",
        ),
        (
            {"config": {"resources": [{"name": "nvidia.com/gpu", "door": "both"}]}},
            "config.resources[0] has door both: set dra.enabled=true",
        ),
        ({"dra": {"doorByNode": True}}, "dra.doorByNode is true, but dra.enabled is false: set it to true"),
        (
            {"dra": {"extendedResources": ["a/b"]}},
            "dra.extendedResources has names, but dra.enabled is false: set it to",
        ),
        (
            {"dra": {"alsoPublishAs": ["dra.net"]}},
            "dra.alsoPublishAs has names, but dra.enabled is false: set it to true",
        ),
        (
            {"dra": {"enabled": True, "extendedResources": ["a/b_c", "a/b-c"]}},
            "dra.extendedResources: a/b_c and a/b-c would have one class: leave one out",
        ),
        (
            {
                "dra": {"enabled": True, "extendedResources": ["nvidia.com/gpu"]},
                "config": {"resources": [{"name": "nvidia.com/gpu"}]},
            },
            "dra.extendedResources has nvidia.com/gpu, which config.resources[0] offers through the door plugin: give",
        ),
        (
            {
                "nvidia": {"mig": True},
                "dra": {"enabled": True, "extendedResources": ["nvidia.com/mig-1g.10gb"]},
                "config": {"resources": [{"name": "nvidia.com/mig-{profile}", "devices": {"kind": "mig"}}]},
            },
            "dra.extendedResources has nvidia.com/mig-1g.10gb, which config.resources[0] offers through the door",
        ),
        (
            # The rules that there are without resources are of the first door.
            {"dra": {"enabled": True, "extendedResources": ["nvidia.com/gpu"]}},
            "dra.extendedResources has nvidia.com/gpu, which no rule of config.resources offers through the door dra:",
        ),
        (
            {
                "dra": {"enabled": True, "extendedResources": ["nvidia.com/gpus"]},
                "config": {"resources": [{"name": "nvidia.com/gpu", "door": "dra"}]},
            },
            "dra.extendedResources has nvidia.com/gpus, which no rule of config.resources offers through the door dra:",
        ),
    ],
)
def test_what_the_dra_door_cannot_be_is_refused(values: Values, text: str) -> None:
    assert text in refusal(values)


def test_names_of_resources_are_served_by_a_rule_with_profiles_or_by_a_text_that_the_chart_does_not_read() -> None:
    rule = {"name": "nvidia.com/mig-{profile}", "door": "dra", "devices": {"kind": "mig"}}
    names = ["nvidia.com/mig-1g.10gb", "nvidia.com/mig-1c.3g.40gb"]
    values: Values = {"nvidia": {"mig": True}, "config": {"resources": [rule]}}
    documents = render({**values, "dra": {"enabled": True, "extendedResources": names}})
    assert {"nvidia.com-mig-1g.10gb", "nvidia.com-mig-1c.3g.40gb"} <= {
        each["metadata"]["name"] for each in of_kind(documents, "DeviceClass")
    }
    render({"configText": "any: text", "dra": {"enabled": True, "extendedResources": names}})


def test_a_taints_effect_is_what_the_values_say(tmp_path: Path) -> None:
    for effect in TaintEffect:
        documents = render({"dra": {"enabled": True, "taintEffect": effect.value}})
        evicting = settings_of(documents, tmp_path).health.evicting
        assert (Trouble.NVLINK in evicting) is (effect is TaintEffect.NO_EXECUTE)
    assert flags_of(render({"dra": {"enabled": True}}))["--dra-taint-effect"] == "NoSchedule"


def test_an_older_cluster_is_refused() -> None:
    answer = template({"dra": {"enabled": True}}, "--kube-version", "1.33.4")
    assert "dra.enabled needs Kubernetes 1.34, and this cluster has v1.33.4: set it to false" in answer.stderr
