"""The metrics of a kubelet that concern plugins, under a kubelet's names and in Prometheus' text format.

They count from one start of the kubelet to its stop, as those of a process do. Labels that come from plugins are
bounded where they are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Final, Literal

from node.metrics import Counter, Histogram, Labels, Metric, metrics_of

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MILLISECONDS: Final = tuple(0.05 * 2**power for power in range(15))

Method = Literal["list", "get", "get_allocatable"]


class KubeletMetrics:
    """Counted where things happen; ``text`` is what a scrape gets. Names of counters are complete here."""

    def __init__(self) -> None:
        resource, version = ("resource_name",), ("server_api_version",)
        self.registrations = Counter(
            "kubelet_device_plugin_registration_total",
            "Register calls of device plugins, refused ones included.",
            resource,
        )
        self.allocations = Histogram(
            "kubelet_device_plugin_alloc_duration_seconds",
            "Seconds of Allocate, failed calls included.",
            _SECONDS,
            resource,
        )
        self.admissions = Counter(
            "kubelet_topology_manager_admission_requests_total", "Pods that the topology manager was asked to admit."
        )
        self.admission_errors = Counter(
            "kubelet_topology_manager_admission_errors_total", "Pods that it refused or whose allocation failed."
        )
        self.admission_time = Histogram(
            "kubelet_topology_manager_admission_duration_ms", "Milliseconds of its admissions.", _MILLISECONDS
        )
        self.requests = Counter(
            "kubelet_pod_resources_endpoint_requests_total", "Calls to podresources within its rate limit.", version
        )
        self.requests_list = Counter("kubelet_pod_resources_endpoint_requests_list", "Calls to List.", version)
        self.requests_get = Counter("kubelet_pod_resources_endpoint_requests_get", "Calls to Get.", version)
        self.requests_get_allocatable = Counter(
            "kubelet_pod_resources_endpoint_requests_get_allocatable", "Calls to GetAllocatableResources.", version
        )
        self.errors_get = Counter("kubelet_pod_resources_endpoint_errors_get", "Calls to Get that failed.", version)

    def requested(self, method: Method, version: str = "v1") -> None:
        """Count a call to podresources."""
        self.requests.add(version)
        per_method = {
            "list": self.requests_list,
            "get": self.requests_get,
            "get_allocatable": self.requests_get_allocatable,
        }
        per_method[method].add(version)

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        return "\n".join(line for metric in metrics_of(self) for line in _lines(metric)) + "\n"


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}"
    if isinstance(metric, Histogram):
        yield f"# TYPE {metric.name} histogram"
        for labels, seen in sorted(metric.series.items(), key=itemgetter(0)):
            below = 0
            for bound, count in zip((*map(repr, metric.bounds), "+Inf"), seen.counts, strict=True):
                below += count
                yield f"{metric.name}_bucket{_braces(metric, labels, bound)} {below}"
            yield f"{metric.name}_sum{_braces(metric, labels)} {seen.total}"
            yield f"{metric.name}_count{_braces(metric, labels)} {below}"
    elif isinstance(metric, Counter):
        yield f"# TYPE {metric.name} counter"
        for labels, number in metric.samples({}):
            if labels or not metric.labels:
                yield f"{metric.name}{_braces(metric, labels)} {number}"


def _braces(metric: Metric, labels: Labels, bound: str = "") -> str:
    pairs = [*zip(metric.labels, labels, strict=True), *([("le", bound)] if bound else ())]
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
