"""The keys ``sharing`` and ``partitions`` of our own format become what rules and devices know of shares."""

from __future__ import annotations

import pytest

from node.inventory.model import Attribute, Capacity, Device, DeviceKind, Version
from node.sharing import SharePreference, Sharing, SharingStrategy, most_clients
from ostler.config.load import load, load_bytes
from tests.ostler.config.samples import FOLDER

GIB = 2**30
HEADER = "apiVersion: ostler.dev/v1alpha1\nkind: Config\n"


def gpu(memory: int | None = 80 * GIB, capability: str | None = "9.0.0", *, mig: bool = False) -> Device:
    facts = [Attribute("migEnabled", mig)]
    if capability is not None:
        facts.insert(0, Attribute("cudaComputeCapability", Version(capability)))
    capacity = () if memory is None else (Capacity("memory", memory),)
    return Device(
        "gpu-0000-3b-00-0", DeviceKind.GPU, "nvidia", "GPU-1f5e", "0", attributes=tuple(facts), capacity=capacity
    )


def test_every_key_arrives() -> None:
    settings = load(FOLDER / "good" / "sharing.yaml", {}, {}).settings
    shared, mps, mig, partitioned, amd = settings.rules
    assert shared.sharing == Sharing(
        SharingStrategy.TIME_SLICING,
        10,
        (("GPU-1f5e*", 4), ("0", 1), ("gpu-0000-3b-*", 16)),
        fail_multiple=True,
        same_device=True,
        preference=SharePreference.PACKED,
    )
    assert mps.sharing == Sharing(SharingStrategy.MPS, 4, memory_limit=16 * GIB, thread_percentage=50)
    assert mig.sharing == Sharing(replicas=2)
    assert amd.sharing == Sharing(replicas=8)
    assert (partitioned.sharing, partitioned.partitions) == (None, True)
    assert not any(rule.partitions for rule in (shared, mps, mig, amd))
    assert settings.nvidia.mps_root == "/run/mps"


@pytest.mark.parametrize(
    ("nvidia", "size"),
    [
        ("{}", 256 << 20),
        ("{mpsFileSystem: perDaemon, mpsFileSystemSize: 1Gi}", GIB),
        ("{mpsFileSystem: provided}", None),
    ],
)
def test_daemons_have_a_file_system_of_256_mib_unless_said_otherwise(nvidia: str, size: int | None) -> None:
    assert load_bytes("f", f"{HEADER}nvidia: {nvidia}\n".encode(), {}, {}).settings.nvidia.mps_size == size


def test_a_resource_without_sharing_is_not_shared() -> None:
    (rule,) = load_bytes("f", f"{HEADER}resources: [{{name: a.b/gpu}}]\n".encode(), {}, {}).settings.rules
    assert (rule.sharing, rule.partitions) == (None, False)


@pytest.mark.parametrize(
    ("text", "size"), [("1Mi", 2**20), ("8Gi", 8 * GIB), ("2G", 2 * 10**9), ("8589934592", 8 * GIB)]
)
def test_sizes_are_kubernetes_quantities(text: str, size: int) -> None:
    sharing = f"{{strategy: mps, replicas: 2, memoryLimit: {text}}}"
    body = f"resources: [{{name: a.b/gpu, devices: {{vendor: nvidia, kind: gpu}}, sharing: {sharing}}}]"
    (rule,) = load_bytes("f", f"{HEADER}{body}\n".encode(), {}, {}).settings.rules
    assert rule.sharing is not None
    assert rule.sharing.memory_limit == size


def test_the_first_item_that_matches_gives_the_replicas() -> None:
    sharing = Sharing(replicas=10, own_replicas=(("GPU-2*", 4), ("0", 1), ("gpu-*", 16)))
    assert sharing.replicas_of(gpu()) == 1
    assert Sharing(replicas=10, own_replicas=(("GPU-1f*", 4), ("0", 1))).replicas_of(gpu()) == 4
    assert Sharing(replicas=10).replicas_of(gpu()) == 10


def test_a_replica_takes_an_equal_part_or_its_memory_limit() -> None:
    assert Sharing(replicas=3).replica_amounts(gpu()) == (("compute", 333333), ("memory", 80 * GIB // 3))
    limited = Sharing(SharingStrategy.MPS, 3, memory_limit=16 * GIB, thread_percentage=90)
    assert limited.replica_amounts(gpu()) == (("compute", 333333), ("memory", 16 * GIB))


@pytest.mark.parametrize(
    ("sharing", "device", "reason"),
    [
        (Sharing(replicas=500), gpu(mig=True), ""),
        (Sharing(SharingStrategy.MPS, 48), gpu(), ""),
        (Sharing(SharingStrategy.MPS, 4, memory_limit=20 * GIB), gpu(), ""),
        (Sharing(SharingStrategy.MPS, 4, memory_limit=20 * GIB), gpu(memory=None), ""),
        (Sharing(SharingStrategy.MPS, 4, (("0", 1),), memory_limit=90 * GIB), gpu(), ""),
        (
            Sharing(SharingStrategy.MPS, 17),
            gpu(capability="7.0.0"),
            "MPS serves at most 16 clients on this GPU, and the rule makes 17 replicas of it",
        ),
        (
            Sharing(SharingStrategy.MPS, 49),
            gpu(capability=None),
            "MPS serves at most 48 clients on this GPU, and the rule makes 49 replicas of it",
        ),
        (
            Sharing(SharingStrategy.MPS, 4, memory_limit=21 * GIB),
            gpu(),
            "4 replicas with a memoryLimit of 21504 MiB exceed the GPU's 81920 MiB; lower memoryLimit or replicas",
        ),
        (
            Sharing(SharingStrategy.MPS, 4),
            gpu(mig=True),
            "MPS cannot share a GPU in MIG mode; share its MIG devices with strategy timeSlicing",
        ),
        (
            Sharing(SharingStrategy.MPS, 4),
            Device("gpu-0", DeviceKind.GPU, "amd"),
            "MPS shares whole GPUs of NVIDIA only; use strategy timeSlicing for this device",
        ),
    ],
)
def test_a_device_says_why_it_cannot_be_shared(sharing: Sharing, device: Device, reason: str) -> None:
    assert sharing.unsuited(device) == reason


@pytest.mark.parametrize(("capability", "clients"), [("7.0.0", 16), ("7.5.0", 48), ("10.0.0", 48), (None, 48)])
def test_clients_follow_the_compute_capability(capability: str | None, clients: int) -> None:
    assert most_clients(gpu(capability=capability)) == clients
