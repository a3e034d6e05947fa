"""For every alert: series that make it fire, and series so near to that as can be that do not.

Series are in promtool's notation, one sample a minute: ``0+1x60`` grows by one a minute, ``1x60`` stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

AGENT = {"job": "ostler", "instance": "n1"}
"""Labels that every series gets in a scrape."""
Series = dict[str, str]
"""Values by ``name{labels}``, without the labels of a scrape."""


@dataclass(frozen=True, slots=True)
class Case:
    """With the series of ``fires`` it fires by minute ``at``, with these ``labels`` besides the scrape's.

    It must not fire a minute before its ``for`` has passed, and never with the series of ``quiet`` or of one of
    ``quiet_too``. ``value``: what ``$value`` is shown as. ``scraped``: whether the alert tells of one agent.
    """

    fires: Series
    quiet: Series
    quiet_too: tuple[Series, ...] = ()
    at: int = 60
    labels: dict[str, str] = field(default_factory=dict)
    value: str = ""
    scraped: bool = True


def _up(name: str) -> tuple[Series, Series]:
    """A state that lasts, and one that never is."""
    return {name: "1x1600"}, {name: "0x1600"}


def _down(name: str) -> tuple[Series, Series]:
    return {name: "0x1600"}, {name: "1x1600"}


GPU = {"resource": "nvidia.com/gpu"}
DEVICE = {"device": "gpu-0000-3b-00-0", "kind": "gpu", **GPU}


def _fault(health: str, kind: str = "gpu", resource: str = "nvidia.com/gpu", device: str = "gpu-0000-3b-00-0") -> str:
    labels = f'device="{device}",kind="{kind}",resource="{resource}",health="{health}"'
    return f"ostler_device_fault_timestamp_seconds{{{labels}}}"


def _ill(cause: str, resource: str = "nvidia.com/gpu") -> str:
    return f'ostler_resource_unhealthy_devices{{resource="{resource}",cause="{cause}"}}'


def _shown(health: str) -> str:
    return f'ostler_resource_devices{{resource="nvidia.com/gpu",health="{health}"}}'


def _allocations(result: str) -> str:
    return f'ostler_allocations_total{{resource="nvidia.com/gpu",result="{result}"}}'


def _bucket(bound: str, method: str = "Allocate") -> str:
    labels = f'resource="nvidia.com/gpu",method="{method}",le="{bound}"'
    return f"ostler_kubelet_call_duration_seconds_bucket{{{labels}}}"


def _holds(door: str, state: str) -> str:
    return f'ostler_holds{{door="{door}",state="{state}"}}'


STREAMS = 'ostler_registration_streams{resource="nvidia.com/gpu"}'
REGISTRATIONS = 'ostler_registrations_total{resource="nvidia.com/gpu",path="registry"}'
FAILURES = 'ostler_registration_failures_total{resource="nvidia.com/gpu",path="register"}'
REJECTED = 'ostler_resource_list_rejected{resource="nvidia.com/gpu"}'
CONTESTED = 'ostler_registration_state{resource="nvidia.com/gpu",state="contested"}'
WAITING = 'ostler_source_state{source="nvml",state="waiting"}'
NETWORK_WAITING = 'ostler_source_state{source="network",state="waiting"}'
NVML_OK = 'ostler_source_state{source="nvml",state="ok"}'
KNOWN = 'ostler_devices{kind="gpu",vendor="nvidia",resource="nvidia.com/gpu",health="unknown"}'
OTHERS = 'ostler_devices{kind="gpu",vendor="amd",resource="amd.com/gpu",health="healthy"}'
ADAPTERS = 'ostler_devices{kind="rdma",vendor="nvidia",resource="example.com/rdma",health="healthy"}'
INFO = 'ostler_build_info{version="1.0.0",revision="a"}'
OTHER = 'ostler_build_info{version="1.0.1",revision="b"}'
FAULT = 'ostler_config_notes{kind="fault"}'
HEARTBEAT, SCANNED, INTERVAL = (
    "ostler_heartbeat_timestamp_seconds",
    "ostler_last_scan_timestamp_seconds",
    "ostler_scan_interval_seconds",
)

CASES = {
    "OstlerDown": Case(*_down("up"), quiet_too=({'up{job="node"}': "0x60"},), at=5),
    "OstlerAbsent": Case({"up": "1x60"}, {INFO: "1x60"}, at=15, scraped=False),
    "OstlerNotReady": Case(*_down("ostler_ready"), at=5),
    "OstlerLoopStuck": Case(
        {HEARTBEAT: "0x60"}, {HEARTBEAT: "0+60x60"}, quiet_too=({HEARTBEAT: "-25+60x60"},), at=2, value="2m 0s"
    ),
    "OstlerStandbyTooLong": Case(*_down("ostler_active"), at=30),
    "OstlerQuiescedTooLong": Case(*_up("ostler_quiesced"), at=120),
    "OstlerMemoryHigh": Case(
        {"process_resident_memory_bytes": "160000000x60", INFO: "1x60"},
        {"process_resident_memory_bytes": "300000000x60"},
        quiet_too=({"process_resident_memory_bytes": "150000000x60", INFO: "1x60"},),
        at=30,
        value="152.6Mi",
    ),
    "OstlerFileDescriptorsLow": Case(
        {"process_open_fds": "90x60", "process_max_fds": "100x60", INFO: "1x60"},
        {"process_open_fds": "79x60", "process_max_fds": "100x60", INFO: "1x60"},
        quiet_too=({"process_open_fds": "90x60", "process_max_fds": "100x60"},),
        at=10,
        value="90%",
    ),
    "OstlerVersionSkew": Case({INFO: "1x400", OTHER: "1x400"}, {INFO: "1x400"}, at=360, value="2", scraped=False),
    "OstlerNodeEventsFailing": Case(*_up("ostler_node_events_failing"), at=15),
    "OstlerResourceNotRegistered": Case(
        {STREAMS: "0x60", _shown("healthy"): "0x60", _shown("unhealthy"): "1x60"},
        {STREAMS: "0x60", _shown("healthy"): "0x60", _shown("unhealthy"): "0x60"},
        at=2,
        labels=GPU,
    ),
    "OstlerForeignPlugin": Case(
        *_up(CONTESTED),
        quiet_too=({'ostler_registration_state{resource="nvidia.com/gpu",state="registered"}': "1x60"},),
        at=1,
        labels={**GPU, "state": "contested"},
    ),
    "OstlerRegistrationFlapping": Case(
        {REGISTRATIONS: "0 0 1 2 3 4 5 6 6x30"}, {REGISTRATIONS: "0 0 1 2 3 4 5x40"}, at=20, labels=GPU
    ),
    # A kubelet that goes on refusing is asked every five minutes, in the end.
    "OstlerRegistrationFailing": Case(
        {FAILURES: "0x4 1x4 2x4 3x4 4x4 5x4 6x4 7x4 8x4 9x4"}, {FAILURES: "0 0 1 2 3x50"}, at=45, labels=GPU
    ),
    "OstlerKubeletRestarting": Case(
        {"ostler_kubelet_restarts_total": "0 0 1 2 3 4x60"}, {"ostler_kubelet_restarts_total": "0 0 1 2 3x60"}, at=20
    ),
    "OstlerListRejected": Case(*_up(REJECTED), at=5, labels=GPU),
    "OstlerDeviceUnhealthy": Case(
        {_fault("unhealthy"): "5x60"},
        {_fault("degraded"): "5x60"},
        quiet_too=(
            {_fault("unhealthy", "nic", resource=""): "5x60"},
            {_fault("unhealthy", "mig"): "5x60", _ill("gone"): "1x60", _ill("health", "nvidia.com/mig"): "1x60"},
            {_fault("degraded", "nic"): "5x60", _fault("degraded", "mig"): "5x60", _ill("health"): "1x60"},
        ),
        at=5,
        labels={**DEVICE, "health": "unhealthy"},
    ),
    "OstlerDeviceUnknown": Case(
        {_fault("unknown"): "5x60", "ostler_quiesced": "0x60"},
        {_fault("unknown"): "5x60", "ostler_quiesced": "1x60"},
        quiet_too=({_fault("unhealthy"): "5x60", "ostler_quiesced": "0x60"},),
        at=10,
        labels={**DEVICE, "health": "unknown"},
    ),
    "OstlerDeviceDegraded": Case(
        {_fault("degraded"): "5x90"}, {_fault("unhealthy"): "5x90"}, at=60, labels={**DEVICE, "health": "degraded"}
    ),
    "OstlerNoHealthyDevices": Case(
        {_shown("healthy"): "0x60", _shown("unhealthy"): "1x60", _ill("health"): "1x60", "ostler_quiesced": "0x60"},
        {_shown("healthy"): "1x60", _shown("unhealthy"): "7x60", _ill("health"): "7x60", "ostler_quiesced": "0x60"},
        quiet_too=(
            {_shown("healthy"): "0x60", _shown("unhealthy"): "8x60", _ill("health"): "8x60", "ostler_quiesced": "1x60"},
            {_shown("healthy"): "0x60", _shown("unhealthy"): "8x60", _ill("gone"): "8x60"},
            *(
                {_shown("healthy"): "0x60", _shown("unhealthy"): "8x60", _ill(cause): "8x60"}
                for cause in ("other_door", "overlap", "draining", "moving")
            ),
            {_shown("healthy"): "0x60", _shown("unhealthy"): "0x60", _ill("health", "example.com/nic"): "1x60"},
        ),
        at=5,
        labels={**GPU, "health": "healthy"},
    ),
    # It is well every other minute; then its series has a gap, and a later time.
    "OstlerDeviceFlapping": Case(
        {_fault("unhealthy"): "1 _ 2 _ 3 _ 4 _x60"},
        {_fault("unhealthy"): "1 _ 2 _ 3 _x60"},
        quiet_too=(
            {_fault("unhealthy", device=f"gpu-{number}"): "1 1 _x60" for number in range(8)},
            {_fault("unhealthy", "nic", resource=""): "1 _ 2 _ 3 _ 4 _x60"},
            {_fault("degraded"): "1 _ 2 _ 3 _ 4 _x60"},
        ),
        at=15,
        labels={**DEVICE, "health": "unhealthy"},
    ),
    "OstlerDevicesUnfit": Case(
        {_ill("unfit"): "1x60"},
        {_ill("health"): "2x60"},
        at=10,
        labels={**GPU, "cause": "unfit"},
        value="1",
    ),
    "OstlerRulesFaulty": Case(
        {'ostler_devices_withheld{kind="gpu",cause="bad_name"}': "1x60"},
        {'ostler_devices_withheld{kind="gpu",cause="no_rule"}': "2x60"},
        at=10,
        labels={"cause": "bad_name"},
        value="1",
    ),
    "OstlerHealthBrake": Case(*_up('ostler_health_brake{kind="gpu"}'), at=1, labels={"kind": "gpu"}),
    "OstlerCdiWriteFailed": Case(*_up("ostler_cdi_write_failed"), at=5),
    "OstlerAllocationsRefused": Case(
        {_allocations("refused"): "0 0 1x60"},
        {_allocations("refused"): "3x60", _allocations("granted"): "0+1x60"},
        at=5,
        labels={**GPU, "result": "refused"},
    ),
    "OstlerAllocationsFailed": Case(
        {_allocations("failed"): "0 0 1x60"},
        {_allocations("failed"): "0x60", _allocations("refused"): "0+1x60"},
        at=5,
        labels={**GPU, "result": "failed"},
    ),
    "OstlerAllocateSlow": Case(
        {_bucket("0.1"): "0x60", _bucket("0.5"): "0+60x60", _bucket("+Inf"): "0+60x60"},
        {_bucket("0.1"): "0+60x60", _bucket("0.5"): "0+60x60", _bucket("+Inf"): "0+60x60"},
        quiet_too=(
            {_bucket("0.1", "GetPreferredAllocation"): "0x60", _bucket("+Inf", "GetPreferredAllocation"): "0+1x60"},
        ),
        at=30,
        value="496ms",
    ),
    "OstlerDraNotRegistered": Case(
        *_up('ostler_dra_registration_state{state="offered"}'),
        quiet_too=({'ostler_dra_registration_state{state="leaving"}': "1x60"},),
        at=2,
        labels={"state": "offered"},
    ),
    "OstlerDraPublishingFailing": Case(*_up("ostler_dra_publishing_failing"), at=2),
    "OstlerDraSlicesDiffer": Case(*_down("ostler_dra_slices_in_order"), at=5),
    "OstlerDraClaimsFailing": Case(
        {'ostler_dra_claim_preparations_total{outcome="unavailable"}': "0+1x60"},
        {'ostler_dra_claim_preparations_total{outcome="refused"}': "0 0 1 2x60"},
        quiet_too=({'ostler_dra_claim_preparations_total{outcome="ok"}': "0+9x60"},),
        at=20,
        labels={"outcome": "unavailable"},
    ),
    "OstlerDraClaimRecordsDamaged": Case(
        {"ostler_dra_damaged_claim_records_total": "0 0 1x60"},
        {"ostler_dra_damaged_claim_records_total": "1x60"},
        at=5,
    ),
    "OstlerDraMetadataFailing": Case(
        {"ostler_dra_metadata_failures_total": "0 0 1x60"},
        {"ostler_dra_metadata_failures_total": "1x60"},
        at=5,
    ),
    "OstlerInterfacesFailing": Case(
        {'ostler_interfaces_out{state="failing"}': "2x60"},
        {'ostler_interfaces_out{state="failing"}': "0x60"},
        quiet_too=({'ostler_interfaces_out{state="in_pod"}': "8x60"},),
        at=5,
        value="2",
        labels={"state": "failing"},
    ),
    "OstlerInterfacesLost": Case(
        {"ostler_interfaces_lost_total": "0 0 1x60"},
        {"ostler_interfaces_lost_total": "1x60"},
        at=5,
    ),
    "OstlerInterfacesUnmovable": Case(*_up("ostler_interfaces_runtime_failing"), at=5),
    "OstlerClaimLost": Case(*_up("ostler_hold_losers"), at=5, value="1"),
    "OstlerDeviceDraining": Case(
        {_holds("none", "draining"): "1x60", _holds("plugin", "draining"): "1x60"},
        {_holds("none", "draining"): "0x60", _holds("plugin", "listed"): "8x60"},
        at=15,
        value="2",
    ),
    # Where no claim is served, nobody waits for it.
    "OstlerHoldsUnknown": Case(
        {"ostler_holds_known": "0x60", "ostler_dra_slices": "0x60"},
        {"ostler_holds_known": "1x60", "ostler_dra_slices": "1x60"},
        quiet_too=({"ostler_holds_known": "0x60"},),
        at=10,
    ),
    "OstlerDeviceMoving": Case(*_up("ostler_moving_devices"), at=15, value="1"),
    "OstlerDoorBothOff": Case(*_up("ostler_door_both_off"), at=15),
    "OstlerHoldConflicts": Case(
        {'ostler_hold_conflicts_total{door="dra"}': "0+1x90"},
        {'ostler_hold_conflicts_total{door="dra"}': "0 0 20x90"},
        at=60,
        labels={"door": "dra"},
    ),
    "OstlerMpsFileSystemFull": Case(
        {'ostler_mps_file_system_used_ratio{resource="nvidia.com/gpu"}': "0.95x60"},
        {'ostler_mps_file_system_used_ratio{resource="nvidia.com/gpu"}': "0.94x60"},
        at=5,
        labels=GPU,
    ),
    "OstlerMpsCrashing": Case(
        {'ostler_mps_crashes_total{resource="nvidia.com/gpu"}': "0+1x60"},
        {'ostler_mps_crashes_total{resource="nvidia.com/gpu"}': "0 0 3x60"},
        at=10,
        labels=GPU,
    ),
    "OstlerScanStalled": Case(
        {SCANNED: "0x60", INTERVAL: "60x60"}, {SCANNED: "0+180x60", INTERVAL: "60x60"}, at=6, value="6m 0s"
    ),
    "OstlerScanSlow": Case(
        {"ostler_scan_duration_seconds_sum": "0+12x60", "ostler_scan_duration_seconds_count": "0+2x60"},
        {"ostler_scan_duration_seconds_sum": "0+8x60", "ostler_scan_duration_seconds_count": "0+2x60"},
        at=30,
        value="6s",
    ),
    "OstlerSourceFailed": Case(
        {'ostler_source_state{source="nvml",state="failed"}': "1x60"},
        {'ostler_source_state{source="nvml",state="failed"}': "0x60", WAITING: "1x60"},
        at=10,
        labels={"source": "nvml", "state": "failed"},
    ),
    "OstlerDriverMissing": Case(
        {WAITING: "1x60", KNOWN: "1x60", "ostler_quiesced": "0x60"},
        {WAITING: "1x60", "ostler_quiesced": "0x60"},
        quiet_too=(
            {WAITING: "1x60", KNOWN: "8x60", "ostler_quiesced": "1x60"},
            {WAITING: "1x60", OTHERS: "8x60", ADAPTERS: "8x60"},
            {NETWORK_WAITING: "1x60", NVML_OK: "1x60", KNOWN: "8x60"},
        ),
        at=15,
        labels={"source": "nvml", "state": "waiting"},
    ),
    "OstlerHardwarePolled": Case(
        {'ostler_uevent_source{source="polling"}': "1x60"},
        {'ostler_uevent_source{source="polling"}': "0x60", 'ostler_uevent_source{source="udev"}': "1x60"},
        at=30,
        labels={"source": "polling"},
    ),
    "OstlerConfigReloadFailed": Case(*_down("ostler_config_last_reload_successful"), at=5),
    "OstlerConfigFault": Case(
        *_up(FAULT), quiet_too=({'ostler_config_notes{kind="remark"}': "3x60"},), at=10, labels={"kind": "fault"}
    ),
    "OstlerRestartPending": Case(*_up("ostler_config_pending_settings"), at=1440, value="1"),
}

NIC = {"device": "nic-0000-17-00-0", "kind": "nic", "resource": "example.com/nic", "health": "unhealthy"}
MIG = {**NIC, "device": "mig-0000-1b-00-0-0-1", "kind": "mig"}


def _labelled(name: str, labels: dict[str, str]) -> str:
    inner = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{inner}}}"


def _withheld(cause: str) -> Case:
    series = f'ostler_devices_withheld{{kind="gpu",cause="{cause}"}}'
    return Case(*_up(series), at=10, labels={"cause": cause}, value="1")


FURTHER: tuple[tuple[str, Case], ...] = (
    (
        "OstlerDeviceUnhealthy",
        Case({_labelled("ostler_device_fault_timestamp_seconds", NIC): "5x60"}, {}, at=5, labels=NIC),
    ),
    (
        "OstlerDeviceUnhealthy",
        Case(
            {_labelled("ostler_device_fault_timestamp_seconds", MIG): "5x60", _ill("health", NIC["resource"]): "1x60"},
            {_labelled("ostler_device_fault_timestamp_seconds", MIG): "5x60", _ill("health", NIC["resource"]): "0x60"},
            at=5,
            labels=MIG,
        ),
    ),
    (
        "OstlerDeviceUnhealthy",
        Case(
            {_fault("unhealthy", resource=""): "5x60"},
            {},
            at=5,
            labels={**DEVICE, "resource": "", "health": "unhealthy"},
        ),
    ),
    ("OstlerDevicesUnfit", Case(*_up(_ill("link_down")), at=10, labels={**GPU, "cause": "link_down"}, value="1")),
    ("OstlerRulesFaulty", _withheld("rule_conflict")),
    ("OstlerRulesFaulty", _withheld("not_uniform")),
)
"""Other ways for an alert to fire."""
