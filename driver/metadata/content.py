"""Describes the devices of a claim for its metadata files, and writes the files' text (KEP-5304).

Pure. A file is a stream of JSON objects that say the same, one for each version of the API, the newest first: a reader
takes the first one that it knows. The attributes are those of the slice, in the same form. A container gets the file of
each request that it gets devices of; several drivers may serve one request, each with a file of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from driver.claims.model import Allocation, ClaimError, ClaimReference
from driver.claims.record import RecordedDevice
from driver.claims.status_entries import network_data
from driver.devices.description import slice_device
from driver.devices.view import DoorView
from driver.metadata.model import ClaimMetadata, DescribedDevice, DescribedRequest, cdi_entry, cdi_kind
from driver.names import MetadataVersion, Peer
from kube.bodies import Json, JsonObject
from node.interfaces.model import AttachedInterface
from node.values import replace
from scheduling.api.excerpts import shown
from scheduling.api.labels import label_faults

GROUP = "metadata.resource.k8s.io"
IN_CONTAINER = "/var/run/kubernetes.io/dra-device-attributes"


def described(
    allocation: Allocation,
    view: DoorView,
    versions: Iterable[MetadataVersion],
    *,
    pod_claim: str = "",
    peers: tuple[Peer, ...] = (),
) -> ClaimMetadata | None:
    """The description of the claim's devices as slices show them in this view, None without ``versions``.

    Raises ClaimError for a request whose name cannot be part of a path.
    """
    wanted = set(versions)
    if not wanted:
        return None
    requests: dict[str, list[DescribedDevice]] = {}
    for allocated in allocation.devices:
        faults = label_faults(allocated.main_request)
        if faults:
            raise ClaimError(f"request {shown(allocated.main_request)} {faults[0]}, so it can have no metadata file")
        offered = view.device_for(allocated.device, looking=allocated.admin_access)
        attributes = slice_device(offered, peers)["attributes"] if offered is not None else {}
        text = json.dumps(attributes, separators=(",", ":"), sort_keys=True)
        requests.setdefault(allocated.request, []).append(DescribedDevice(allocated.pool, allocated.device, text))
    return ClaimMetadata(
        pod_claim,
        tuple(version.value for version in MetadataVersion if version in wanted),
        tuple(DescribedRequest(name, tuple(devices)) for name, devices in requests.items()),
    )


def named(devices: Sequence[RecordedDevice], driver: str, uid: str) -> tuple[RecordedDevice, ...]:
    """The devices; the first one of each request also has the CDI name of the request's metadata file, as its last."""
    seen: set[str] = set()
    found = []
    for device in devices:
        main = device.request.partition("/")[0]
        if main not in seen:
            seen.add(main)
            name = f"{cdi_kind(driver)}={cdi_entry(uid, main)}"
            device = replace(device, cdi_devices=(*device.cdi_devices, name))  # noqa: PLW2901
        found.append(device)
    return tuple(found)


def unnamed(devices: Sequence[RecordedDevice], driver: str) -> tuple[RecordedDevice, ...]:
    """The devices without such CDI names."""
    prefix = f"{cdi_kind(driver)}="
    return tuple(
        replace(device, cdi_devices=tuple(name for name in device.cdi_devices if not name.startswith(prefix)))
        for device in devices
    )


def path_in_container(metadata: ClaimMetadata, claim: ClaimReference, request: DescribedRequest, driver: str) -> str:
    """Where a container finds the file of a request."""
    named_by = f"resourceclaimtemplates/{metadata.pod_claim}" if metadata.pod_claim else f"resourceclaims/{claim.name}"
    return f"{IN_CONTAINER}/{named_by}/{request.main}/{driver}-metadata.json"


def stream(
    claim: ClaimReference,
    metadata: ClaimMetadata,
    request: DescribedRequest,
    *,
    driver: str,
    generation: int,
    networks: Mapping[str, Json],
) -> str:
    """The text of a request's file; ``networks``: ``networkData`` of the devices whose interface is in the pod."""
    body: JsonObject = {
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": generation,
        },
        **({"podClaimName": metadata.pod_claim} if metadata.pod_claim else {}),
        "requests": [{"name": request.name, "devices": [_device(each, driver, networks) for each in request.devices]}],
    }
    objects = ({"apiVersion": f"{GROUP}/{version}", "kind": "DeviceMetadata", **body} for version in metadata.versions)
    return "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in objects)


def networks_of(interfaces: Iterable[AttachedInterface]) -> dict[str, Json]:
    """``networkData`` by device."""
    return {interface.device: network_data(interface) for interface in interfaces}


def _device(device: DescribedDevice, driver: str, networks: Mapping[str, Json]) -> JsonObject:
    found: JsonObject = {"driver": driver, "pool": device.pool, "name": device.name}
    attributes = json.loads(device.attributes)
    if attributes:
        found["attributes"] = attributes
    if device.name in networks:
        found["networkData"] = networks[device.name]
    return found
