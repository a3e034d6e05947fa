"""Which sources the settings ask for."""

from __future__ import annotations

from node.inventory.source import Source
from ostler.config.settings import Settings


def make_sources(settings: Settings) -> tuple[Source, ...]:
    """The sources of this node, or of the recorded one; raises ``RecordingError`` for a file that cannot be replayed.

    Modules are imported where they are needed: a recorded node needs no NVML, a real one no YAML.
    """
    if settings.inventory.recorded is not None:
        from node.inventory.recordings.source import RecordedSource

        source = RecordedSource(settings.inventory.recorded)
        source.read()  # A file that cannot be replayed is told now; later only while it changes.
        return (source,)
    from driver.claims.cdi_files import file_prefix
    from node.edits.families import OWN_FILES
    from node.inventory.cdi_specs import CdiSpecSource
    from node.inventory.network.host import HostNetwork
    from node.inventory.nvidia.nvml import NvmlSource
    from node.inventory.sysfs.source import SysfsSource

    nvidia = settings.nvidia
    nvml = NvmlSource(nvidia.driver_root_mount, nvidia.library, proc=settings.roots.proc)
    sources: list[Source] = [
        nvml,
        SysfsSource(settings.roots.sys, nvidia.dev_root_mount, settings.roots.proc),
        HostNetwork(),
        CdiSpecSource(settings.cdi.directories, OWN_FILES, (file_prefix(settings.dra.driver_name),)),
    ]
    if nvidia.full:
        from node.inventory.driver_files import DriverFilesSource

        sources.append(DriverFilesSource(nvidia.driver_root_mount, lambda: nvml.driver_version))
    return tuple(sources)
