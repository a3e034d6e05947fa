"""Makes the sources that the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from node.inventory.source import Source
from node.opening import boot_id
from node.rules import makes_partitions
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from node.inventory.model import Device
    from node.inventory.nics.function_maker import VfMaker
    from node.inventory.nvidia.nvml import NvmlSource
    from node.inventory.nvidia.nvml_session import NvmlSessions
    from node.ledger.processes import ComputeProcesses, Process
    from node.partitions import PartitionMaker


def make_sources(settings: Settings, *, profiles: bool = False) -> tuple[Source, ...]:
    """The sources of this node, or of the recorded one; raises ``RecordingError`` for a file that cannot be replayed.

    ``profiles``: read what MIG can make of the GPUs, even if no rule makes partitions. Modules are imported where they
    are needed: a recorded node needs no NVML, a real one no YAML.
    """
    if settings.inventory.recorded is not None:
        from node.inventory.recordings.partitions import RecordedPartitions
        from node.inventory.recordings.source import RecordedSource

        source = RecordedSource(settings.inventory.recorded, RecordedPartitions(settings.state_dir))
        source.read()  # Reports a file that cannot be replayed now; later, only while the file changes.
        return (source,)
    from driver.names import file_prefix, metadata_prefix
    from node.edits.allocation import OWN_FILES
    from node.inventory.cdi_specs import CdiSpecSource
    from node.inventory.network.host import HostNetwork
    from node.inventory.nvidia.nvml import NvmlSource
    from node.inventory.sysfs.source import SysfsSource

    nvidia, driver = settings.nvidia, settings.dra.driver_name
    nvml = NvmlSource(
        nvidia.driver_root_mount,
        nvidia.library,
        proc=settings.roots.proc,
        profiles=profiles or makes_partitions(settings.rules) or has_layouts(settings),
    )
    sources: list[Source] = [
        nvml,
        SysfsSource(settings.roots.sys, nvidia.dev_root_mount, settings.roots.proc),
        HostNetwork(),
        CdiSpecSource(settings.cdi.directories, OWN_FILES, (file_prefix(driver), metadata_prefix(driver))),
    ]
    if nvidia.full:
        from node.inventory.nvidia.driver_files import DriverFilesSource

        sources.append(DriverFilesSource(nvidia.driver_root_mount, nvml))
    return tuple(sources)


def read_profiles(sources: Iterable[Source]) -> None:
    """From the next scan on, read what MIG can make of the GPUs."""
    nvml = _nvml_of(sources)
    if nvml is not None:
        nvml.read_profiles()


def nvml_sessions(sources: Iterable[Source]) -> NvmlSessions | None:
    """The present NVML sessions, for others; None if no source has one."""
    nvml = _nvml_of(sources)
    return None if nvml is None else nvml.sessions


def _nvml_of(sources: Iterable[Source]) -> NvmlSource | None:
    real = [source for source in sources if source.name == "nvml"]
    if not real:
        return None
    from node.inventory.nvidia.nvml import NvmlSource

    return next((source for source in real if isinstance(source, NvmlSource)), None)


def compute_processes(sources: Iterable[Source], proc: Path) -> ComputeProcesses:
    """The source that knows which processes are on a device."""
    sessions = nvml_sessions(sources)
    if sessions is None:
        return _NoProcesses()
    from node.inventory.nvidia.nvml_processes import NvmlProcesses

    return NvmlProcesses(sessions, proc)


def has_layouts(settings: Settings) -> bool:
    """Whether any GPU should be divided."""
    return bool(settings.mig_layouts) or any(rule.layout is not None for rule in settings.rules)


def dividing_modules(settings: Settings) -> tuple[str, ...]:
    """The modules that divide hardware as the configuration asks for it; none if it does not."""
    layouts = ("ostler.agent.mig_layouts",) if has_layouts(settings) else ()
    functions = ("ostler.agent.virtual_functions",) if settings.virtual_functions else ()
    return (*layouts, *functions, "ostler.agent.divider") if layouts or functions else ()


def partition_maker(
    settings: Settings, sources: Iterable[Source], may_change_mode: Callable[[Device], bool]
) -> PartitionMaker | None:
    """The maker of partitions of GPUs; None if no source has a driver that can. Reads its journal from the disk.

    One for the process: two would write one journal. ``may_change_mode``: whether the present rules allow it for a GPU.
    """
    sources = tuple(sources)
    for source in sources:
        if source.name == "recorded":
            from node.inventory.recordings.source import RecordedSource

            return source.partitions if isinstance(source, RecordedSource) else None
    sessions = nvml_sessions(sources)
    if sessions is None:
        return None
    from node.inventory.nvidia.partition_journal import PartitionJournal
    from node.inventory.nvidia.partition_maker import NvidiaPartitionMaker

    journal = PartitionJournal(settings.state_dir, boot_id(settings.roots.proc))
    return NvidiaPartitionMaker(sessions, journal, may_change_mode)


def vf_maker(settings: Settings) -> VfMaker:
    """The maker of virtual functions of this node."""
    from node.inventory.nics.function_maker import SysfsVfMaker

    return SysfsVfMaker(settings.roots.sys) if settings.inventory.recorded is None else _NoVfMaker()


class _NoVfMaker:
    """Makes no virtual functions of a recorded node."""

    def make(self, address: str, count: int, *, autoprobe: bool | None) -> bool:
        """See ``VfMaker``."""
        from node.inventory.nics.function_maker import VfError

        raise VfError("this is a recorded node, of which none can be made; record one that has them")


class _NoProcesses:
    """Knows of no processes; a recorded node has none."""

    def compute_processes(self, device: Device) -> tuple[Process, ...] | None:
        """See ``ComputeProcesses``."""
        return None
