"""The public documents and behaviours of the kubelet that rules come from."""

from __future__ import annotations

from typing import Final

from sandbox.conformance.rule import RuleSource

_DOCS = "https://kubernetes.io/docs/concepts"
_KEPS = "https://github.com/kubernetes/enhancements/tree/master/keps/sig-node"
_KUBELET = "https://github.com/kubernetes/kubernetes/tree/release-1.36/pkg/kubelet"
_PROTOS = "https://github.com/kubernetes/kubernetes/blob/release-1.36/staging/src/k8s.io/kubelet/pkg/apis"
_PLUGINS = f"{_DOCS}/extend-kubernetes/compute-storage-net/device-plugins/"

PLUGIN_REGISTRATION: Final = RuleSource("docs: Device plugin registration", f"{_PLUGINS}#device-plugin-registration")
PLUGIN_IMPLEMENTATION: Final = RuleSource(
    "docs: Device plugin implementation", f"{_PLUGINS}#device-plugin-implementation"
)
KUBELET_RESTARTS: Final = RuleSource("docs: Handling kubelet restarts", f"{_PLUGINS}#handling-kubelet-restarts")
PLUGIN_DEPLOYMENT: Final = RuleSource("docs: Device plugin deployment", f"{_PLUGINS}#device-plugin-deployment")
TOPOLOGY: Final = RuleSource(
    "docs: Device plugin integration with the Topology Manager",
    f"{_PLUGINS}#device-plugin-integration-with-the-topology-manager",
)
POD_TERMINATION: Final = RuleSource(
    "docs: Termination of Pods", f"{_DOCS}/workloads/pods/pod-lifecycle/#pod-termination"
)
DEVICE_PLUGIN_KEP: Final = RuleSource("KEP-3573", f"{_KEPS}/3573-device-plugin")
CDI_KEP: Final = RuleSource("KEP-4009", f"{_KEPS}/4009-add-cdi-devices-to-device-plugin-api")
CDI_SPEC: Final = RuleSource(
    "CDI specification", "https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md"
)
PLUGIN_API: Final = RuleSource("API: device plugin v1beta1", f"{_PROTOS}/deviceplugin/v1beta1/api.proto")
WATCHER_API: Final = RuleSource("API: plugin registration v1", f"{_PROTOS}/pluginregistration/v1/api.proto")
DEVICE_MANAGER: Final = RuleSource("kubelet: device manager", f"{_KUBELET}/cm/devicemanager")
PLUGIN_MANAGER: Final = RuleSource("kubelet: plugin manager", f"{_KUBELET}/pluginmanager")

DRA_DOCS: Final = RuleSource(
    "docs: Dynamic Resource Allocation", f"{_DOCS}/scheduling-eviction/dynamic-resource-allocation/"
)
DRA_KEP: Final = RuleSource("KEP-4381", f"{_KEPS}/4381-dra-structured-parameters")
HEALTH_KEP: Final = RuleSource("KEP-4680", f"{_KEPS}/4680-add-resource-health-to-pod-status")
DRA_API: Final = RuleSource("API: DRA plugin v1", f"{_PROTOS}/dra/v1/api.proto")
DRA_MANAGER: Final = RuleSource("kubelet: DRA manager", f"{_KUBELET}/cm/dra")
DRA_LIBRARY: Final = RuleSource(
    "library: kubeletplugin", "https://pkg.go.dev/k8s.io/dynamic-resource-allocation/kubeletplugin"
)
SLICE_API: Final = RuleSource(
    "API: ResourceSlice",
    "https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/resource-slice-v1/",
)
DOUBLE_USE: Final = RuleSource("kubernetes#141471", "https://github.com/kubernetes/kubernetes/issues/141471")
