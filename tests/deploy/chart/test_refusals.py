"""What the chart refuses, and what it says then: every sentence that a user can meet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.chart.rendering import Values, refusal, render, template

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm

MPS: dict[str, Any] = {"name": "nvidia.com/gpu", "sharing": {"strategy": "mps", "replicas": 4}}
NICS: dict[str, Any] = {"name": "example.com/nic", "devices": {"kind": "nic"}}
MIG: dict[str, Any] = {"name": "nvidia.com/mig-1g.10gb", "devices": {"kind": ["gpu", "mig"]}}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"imag": {}}, "additional properties 'imag' not allowed"),
        ({"image": {"pullPolicy": "Sometimes"}}, "'/image/pullPolicy': value must be one of 'IfNotPresent'"),
        ({"image": {"repository": "x:1"}}, "'/image/repository': 'x:1' does not match pattern"),
        ({"image": {"digest": "abc"}}, "'/image/digest': 'abc' does not match pattern"),
        ({"image": {"tag": 1.2}}, "'/image/tag': got number, want string"),
        (
            {"image": {"repository": "registry.example/Ostler"}},
            "'/image/repository': 'registry.example/Ostler' does not",
        ),
        ({"image": {"repository": None}}, "'/image': missing property 'repository'"),
        ({"nvidia": None}, "missing property 'nvidia'"),
        ({"kubeletRoot": "var/lib"}, "'/kubeletRoot': 'var/lib' does not match pattern"),
        ({"stateDir": "/"}, "'/stateDir': '/' does not match pattern"),
        ({"cdiRoot": "/run/../etc"}, "'/cdiRoot': '/run/../etc' does not match pattern"),
        ({"driverRoot": ""}, "'/driverRoot': '' does not match pattern"),
        ({"nvidia": {"acces": "none"}}, "'/nvidia': additional properties 'acces' not allowed"),
        ({"nvidia": {"mps": "yes"}}, "'/nvidia/mps': got string, want boolean"),
        ({"nvidia": {"mps": True}}, "nvidia.mps is true, but nvidia.access is runtime: set it to privileged"),
        (
            {"config": {"resources": [MPS]}},
            (
                "config shares GPUs by MPS, whose daemons the agent runs only with more rights: "
                "set nvidia.mps=true and nvidia.access=privileged"
            ),
        ),
        ({"nvidia": {"access": "all"}}, "'/nvidia/access': value must be one of 'runtime', 'privileged', 'none'"),
        ({"nics": {"enabled": "yes"}}, "'/nics/enabled': got string, want boolean"),
        ({"http": {"port": 99999}}, "'/http/port': maximum: got 99,999, want 65,535"),
        ({"http": {"address": "::"}}, "'/http/address': '::' does not match pattern"),
        ({"http": {"address": "10.1.2.300"}}, "'/http/address': '10.1.2.300' does not match pattern"),
        ({"maxSurge": 0}, "'/maxSurge': minimum: got 0, want 1"),
        ({"maxSurge": "0%"}, "'/maxSurge': '0%' does not match pattern"),
        ({"nodeFeatureDiscovery": ["nvida"]}, "'/nodeFeatureDiscovery/0': value must be one of 'nvidia', 'amd'"),
        ({"tolerations": [{"operator": "Exist"}]}, "'/tolerations/0/operator': value must be one of 'Exists', 'Equal'"),
        ({"nodeSelector": {"gpu": True}}, "'/nodeSelector/gpu': got boolean, want string"),
        ({"podLabels": {"team": "a b"}}, "'/podLabels/team': 'a b' does not match pattern"),
        ({"commonLabels": {"a b": "c"}}, "invalid propertyName 'a b'"),
        ({"resources": {"limits": {"memory": "lots"}}}, "'/resources/limits/memory': 'lots' does not match pattern"),
        ({"resources": {"limits": {"memory": -1}}}, "'/resources/limits/memory': minimum: got -1, want 0"),
        ({"resources": {"limit": {}}}, "'/resources': additional properties 'limit' not allowed"),
        ({"seLinuxOptions": {"kind": "x"}}, "'/seLinuxOptions': additional properties 'kind' not allowed"),
        ({"podMonitor": {"interval": "1 minute"}}, "'/podMonitor/interval': '1 minute' does not match pattern"),
        ({"dra": {"driverName": "Ostler"}}, "'/dra/driverName': 'Ostler' does not match pattern"),
        ({"dra": {"driverName": "a" * 60 + ".dev"}}, "'/dra/driverName': maxLength: got 64, want 63"),
        ({"dra": {"alsoPublishAs": ["gpu.amd.com"]}}, "'/dra/alsoPublishAs/0': value must be one of 'gpu.nvidia.com'"),
        ({"dra": {"taintEffect": "None"}}, "'/dra/taintEffect': value must be one of 'NoSchedule', 'NoExecute'"),
        ({"dra": {"extendedResources": ["gpu"]}}, "'/dra/extendedResources/0': 'gpu' does not match pattern"),
        ({"patchAllocatable": {"resources": ["*"]}}, "'/patchAllocatable/resources/0': '*' does not match pattern"),
        (
            {"patchAllocatable": {"resources": ["a/*x"]}},
            "'/patchAllocatable/resources/0': 'a/*x' does not match pattern",
        ),
        ({"dra": {"deviceClasses": None}}, "'/dra': missing property 'deviceClasses'"),
        ({"config": {"nvidia": {"migStrategy": "some"}}}, "'/config/nvidia/migStrategy': value must be one of 'none'"),
        ({"config": {"resources": [{"devices": {}}]}}, "'/config/resources/0': missing property 'name'"),
        ({"config": {"defaults": {"cdimode": "full"}}}, "'/config/defaults': additional properties 'cdimode' not"),
        ({"config": {"kind": "ConfigMap"}}, "'/config/kind': value must be"),
    ],
    ids=lambda given: given if isinstance(given, str) else None,
)
def test_the_schema_names_the_value_and_what_is_allowed(values: Values, text: str) -> None:
    assert text in refusal(values)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"nodeName": "a"}, "config.nodeName: the chart gives each pod the name of its node: remove it"),
        ({"instance": "a"}, "config.instance: the chart names its instances: remove it"),
        ({"socket": "/a"}, "config.socket: the agent's socket is inside its pod: remove it"),
        ({"roots": {"sys": "/s"}}, "config.roots: /sys and /proc are where a container has them: remove it"),
        ({"state": {"directory": "/a"}}, "config.state: set stateDir"),
        ({"http": {"address": ":1"}}, "config.http: set http.port or http.address"),
        (
            {"kubernetes": {"events": True}},
            "config.kubernetes: set events.enabled, dra.doorByNode, patchAllocatable.enabled or recordedDevices",
        ),
        ({"cdi": {"directory": "/a"}}, "config.cdi: set cdiRoot"),
        (
            {"dra": {"driverName": "a"}},
            "config.dra: set dra.driverName, dra.alsoPublishAs, dra.taintEffect, dra.deviceMetadata or",
        ),
        ({"topology": {"file": "/a"}}, "config.topology: set topology, the text of the file"),
        ({"kubelet": {"devicePluginDir": "/a"}}, "config.kubelet.devicePluginDir: set devicePluginDir"),
        ({"kubelet": {"pluginsRegistryDir": "/a"}}, "config.kubelet.pluginsRegistryDir: set kubeletRoot"),
        ({"nvidia": {"driverRoot": "/a"}}, "config.nvidia.driverRoot: set driverRoot"),
        ({"nvidia": {"driverRootMount": "/a"}}, "config.nvidia.driverRootMount: the chart decides it: remove it"),
        ({"nvidia": {"devRoot": "/a"}}, "config.nvidia.devRoot: set devRoot"),
        ({"nvidia": {"devRootMount": "/a"}}, "config.nvidia.devRootMount: the chart decides it: remove it"),
        ({"nvidia": {"library": "/a"}}, "config.nvidia.library: set driverRoot, or nvidia.access"),
        ({"nvidia": {"migConfigFile": "/a"}}, "config.nvidia.migConfigFile: set nvidia.migLayouts, the text of the"),
    ],
    ids=str,
)
def test_what_the_chart_decides_is_refused_in_the_configuration(config: Values, text: str) -> None:
    assert text in refusal({"config": config})


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"config": {"log": {"level": "debug"}}, "configText": "version: v1"},
            "config and configText are both given: remove one of them",
        ),
        (
            {"config": {"inventory": {"recorded": "/a"}}, "recording": "devices: []"},
            "config.inventory.recorded and recording are both given: remove one of them",
        ),
        (
            {"affinity": {"nodeAffinity": {"x": []}}, "nodeFeatureDiscovery": ["amd"]},
            "affinity.nodeAffinity and nodeFeatureDiscovery are both given: remove one of them",
        ),
        (
            {"config": {"resources": [{"name": "nvidia.com/gpu"}, NICS]}},
            "config.resources[1] selects NICs, which a pod sees only in the network namespace of the node: set nics.",
        ),
        (
            {"config": {"resources": [{"name": "x.io/a", "devices": {"interfaces": "ens1f0"}}]}},
            "config.resources[0] selects NICs",
        ),
        (
            {"config": {"virtualFunctions": [{"devices": {}, "count": 4}]}, "nics": {"enabled": True}},
            "for which the agent writes to the node's /sys: set nics.virtualFunctions=true",
        ),
        (
            {
                "config": {"resources": [{"name": "x.io/a", "door": "dra", "moveInterface": True}]},
                "nics": {"enabled": True},
                "dra": {"enabled": True},
            },
            "for which the agent needs more rights: set nics.moveInterfaces=true",
        ),
        (
            {"nics": {"moveInterfaces": True}, "dra": {"enabled": True}},
            "nics.moveInterfaces is true, but nics.enabled is false: set it to true",
        ),
        (
            {"nics": {"enabled": True, "moveInterfaces": True}},
            "dra.enabled is false: interfaces move into the pods of claims, so set it to true",
        ),
        (
            {"nics": {"virtualFunctions": True}},
            "nics.virtualFunctions is true, but nics.enabled is false: set it to true",
        ),
        (
            {"config": {"nvidia": {"migStrategy": "mixed"}}},
            "shows only to a container with SYS_ADMIN: set nvidia.mig=true, or nvidia.access=privileged",
        ),
        ({"config": {"resources": [MIG]}}, "config offers MIG devices"),
        (
            {"config": {"resources": [{"name": "nvidia.com/gpu", "mig": {"layout": ["1g.10gb"]}}]}},
            "config.resources[0] divides GPUs by MIG, which the driver lets only a privileged container do: set nvidia",
        ),
        (
            {"config": {"resources": [{"name": "nvidia.com/gpu", "door": "dra", "partitions": "onDemand"}]}},
            "config.resources[0] divides GPUs by MIG",
        ),
        (
            {"config": {"nvidia": {"migConfig": "all"}}, "nvidia": {"migLayouts": "version: v1"}},
            "config.nvidia.migConfig divides GPUs by MIG",
        ),
        (
            {"config": {"nvidia": {"migConfig": "all"}}},
            "config.nvidia.migConfig is all, but no file has it: set nvidia.migLayouts, the text of the file",
        ),
        (
            {"nvidia": {"migLayouts": "version: v1"}},
            "nvidia.migLayouts is given, but not which of its configurations to use: set config.nvidia.migConfig",
        ),
        (
            {"nvidia": {"migLayouts": "version: v1"}, "configText": "version: v1"},
            "nvidia.migLayouts and configText are both given: write the resources into config, or divide the GPUs",
        ),
        ({"configText": '{"resourceList": []}'}, "configText is a file of the SR-IOV network device plugin"),
        (
            {"http": {"address": "127.0.0.1"}},
            "http.address is one of the machine's own alone, and the kubelet's probes",
        ),
        ({"http": {"address": "[::1]"}}, "come to the address of the pod: give that one, or leave it empty"),
        (
            {"http": {"address": "127.0.0.1"}, "nics": {"enabled": True}, "podMonitor": {"enabled": True}},
            "http.address is the node's loopback, where podMonitor.enabled scrapes nothing: leave one of them out",
        ),
        (
            {"networkPolicy": {"enabled": True}, "nics": {"enabled": True}},
            "networkPolicy.enabled has no effect on pods in the network of the node (nics.enabled)",
        ),
        (
            {"dra": {"enabled": True, "evictByName": True}, "admissionPolicy": {"enabled": False}},
            "without an admission policy every agent could delete every pod: set admissionPolicy.enabled",
        ),
        (
            {"dra": {"evictByName": True}},
            "dra.evictByName is true, but dra.enabled is false: set it to true, or leave dra.evictByName out",
        ),
        (
            {"patchAllocatable": {"enabled": True}, "admissionPolicy": {"enabled": False}},
            "without an admission policy every agent could write the status of every Node: set admissionPolicy.enabled",
        ),
        (
            {"recordedDevices": {"enabled": True}, "admissionPolicy": {"enabled": False}},
            "without an admission policy every agent could write the status of every pod: set admissionPolicy.enabled",
        ),
        (
            {"patchAllocatable": {"enabled": True, "resources": []}},
            "patchAllocatable.resources is empty: give the resources that the agents serve",
        ),
        (
            {"commonLabels": {"helm.sh/chart": "x"}},
            "commonLabels: the chart gives the label helm.sh/chart itself: remove it",
        ),
        (
            {"podLabels": {"app.kubernetes.io/instance": "x"}},
            "podLabels: the chart gives the label app.kubernetes.io/instance itself: remove it",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else None,
)
def test_contradictions_are_refused_with_what_to_do(values: Values, text: str) -> None:
    assert text in refusal(values)


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"resources": [NICS]}, "nics": {"enabled": True}},
        {"config": {"resources": [NICS, MIG]}, "recording": "a recorded node"},
        {"config": {"resources": [MIG]}, "nvidia": {"mig": True}},
        {"config": {"resources": [MIG]}, "nvidia": {"access": "privileged"}},
        {"affinity": {"nodeAffinity": {"x": []}}},
        {"maxSurge": "25%"},
        {"configText": '{"resourceList": []}', "nics": {"enabled": True}},
        {"podLabels": {"app.kubernetes.io/version": "1", "example.com/team": ""}},
        {"image": {"repository": "registry.example:5000/team-a/ostler__agent"}},
        {"image": {"repository": "[fd00::1]:5000/ostler"}},
        {"kubeletRoot": "/var/lib/..kubelet/.root/"},
        {"http": {"address": "$(POD_IP)"}},
        {"resources": {"requests": {"cpu": 0.5, "memory": "1.5Gi"}, "limits": {"memory": "129e6"}}},
        # The usual way to take a default map or list away.
        dict.fromkeys(("nodeSelector", "tolerations", "resources", "affinity", "podLabels", "imagePullSecrets")),
        {"global": {"anything": 1}},
    ],
    ids=str,
)
def test_what_fits_together_is_accepted(values: Values) -> None:
    assert render(values)


def test_a_cluster_that_is_too_old_is_refused() -> None:
    answer = template(None, "--kube-version", "1.24.0")
    assert answer.returncode != 0
    assert "chart requires kubeVersion: >=1.25.0-0" in answer.stderr
