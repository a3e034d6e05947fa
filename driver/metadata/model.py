"""The content of metadata files about a claim's devices, as a part of the claim's record.

The record has it, so that files which are lost can be written again without the API server, and so that a repeated
preparation gives the kubelet the same answer whatever the configuration says by then.
"""

from __future__ import annotations

from collections.abc import Collection

from node.values import Value, value


@value
class DescribedDevice(Value):
    """A device of a request. ``attributes``: the JSON text of its attributes in the slice."""

    pool: str
    name: str
    attributes: str


@value
class DescribedRequest(Value):
    """A request with its devices, in the order of the allocation.

    ``name``: includes the alternative of ``firstAvailable`` that was chosen (``main/sub``).
    """

    name: str
    devices: tuple[DescribedDevice, ...]

    @property
    def main(self) -> str:
        """The request's name as pods know it, which is part of paths."""
        return self.name.partition("/")[0]


@value
class ClaimMetadata(Value):
    """Everything that the files of a claim say, except where its interfaces are.

    ``pod_claim``: the pod's own name for a claim made from its template, empty for any other claim. ``versions``: of
    the API, the newest first.
    """

    pod_claim: str
    versions: tuple[str, ...]
    requests: tuple[DescribedRequest, ...]

    @property
    def mains(self) -> tuple[str, ...]:
        """The names of the requests as pods know them."""
        return tuple(request.main for request in self.requests)

    def concern(self, devices: Collection[str]) -> bool:
        """Whether one of these devices is described."""
        return any(device.name in devices for request in self.requests for device in request.devices)


def cdi_entry(uid: str, request: str) -> str:
    """The name of the CDI device that mounts the metadata file of a request; ``request``: as pods know it."""
    return f"{uid}_{request}"


def cdi_kind(driver: str) -> str:
    """The kind of these CDI devices."""
    return f"{driver}/metadata"
