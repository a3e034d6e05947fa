"""One NVML session: the library initialised once, and everything read through it.

A session is long-lived, because each nvmlInit costs hundreds of milliseconds on nodes without persistence mode, and
because handles and static facts live as long as it does. It ends when the driver says so (``SessionLost``) or when the
kernel side of the driver changed: NVML lists GPUs at nvmlInit only, so a GPU bound later needs a new session.

The source opens and ends sessions. Other threads use the one there is (``NvmlSessions``), inside ``Binding.shared``,
and never open their own: a process has one binding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from node.inventory.facts import CallError, GpuFacts, MigProfile, MigTable, NvmlFacts
from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle
from node.inventory.nvidia.nvml_calls import SESSION_ENDED, Identity, NvmlCalls, identity_of, read_gpu, with_errors
from node.inventory.nvidia.nvml_library import NvmlLibrary
from node.inventory.nvidia.nvml_queries import (
    PARTITION_CALLS,
    KnownLinks,
    read_mig_devices,
    read_nvlinks,
    with_ancestors,
)
from node.opening import read_kernel_text
from node.values import replace

DriverMark = tuple[str, ...]


class SessionLost(Exception):
    """NVML does not answer as a whole: ``status`` as in NvmlFacts, ``detail`` one sentence."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def driver_mark(proc: Path) -> DriverMark:
    """The loaded kernel module's version and GPUs; empty without one."""
    folder = proc / "driver" / "nvidia"
    try:
        version = read_kernel_text(folder / "version")
        gpus = sorted(entry.name for entry in (folder / "gpus").iterdir())
    except OSError:  # No module, or one that is being unloaded: the next call to NVML shows which.
        return ()
    return (version, *gpus)


class NvmlSession:
    """An initialised NVML; ``mark`` is the driver's at the time of opening. Raises SessionLost when made or read."""

    def __init__(self, library: NvmlLibrary, mark: DriverMark) -> None:
        self.library = library
        self.mark = mark
        try:
            self.binding = Binding(library.handle)
            """Others may use it inside ``Binding.shared``. Another session of the same process detaches it."""
        except CallFailed as failed:
            raise SessionLost(failed.error, f"nvmlInit of {library.path} says {failed.error}") from failed
        self._known: dict[Identity, GpuFacts] = {}
        self._profiles: dict[Identity, tuple[MigProfile, ...]] = {}
        self._links = KnownLinks()
        self._handles: tuple[Handle | None, ...] = ()
        """Of the GPUs of the last read; None for one without an answer."""

    def close(self, within: float = 0.0) -> bool:
        """Shut NVML down; the library stays loaded. False if a thread is still in a call after that many seconds."""
        return self.binding.detach(within)

    def read(self, previous: tuple[GpuFacts, ...], *, profiles: bool = False) -> NvmlFacts:
        """All current facts of NVML; a GPU that does not answer keeps those of ``previous``.

        ``profiles``: also read the GPUs' MIG profiles.
        """
        with self._lost_by_failure():
            return self._read(previous, profiles=profiles)

    def reread(self, last: NvmlFacts, uuids: frozenset[str], *, profiles: bool = False) -> NvmlFacts:
        """The session's last read with the partitions of these GPUs read again.

        A GPU whose MIG mode is another, or that does not answer as before, is read in full; and everything is if the
        last read lacks one of them.
        """
        indices = [index for index, gpu in enumerate(last.gpus) if gpu.uuid in uuids and gpu.index == index]
        with self._lost_by_failure():
            count = self.binding.number("nvmlDeviceGetCount")
            if len(indices) != len(uuids) or not count == len(last.gpus) == len(self._handles):
                return self._read(last.gpus, profiles=profiles)
            parted = {index: self._parted(last.gpus[index]) for index in indices}
            if all(parted.values()) and profiles == bool(last.mig_tables):
                gpus = tuple(parted.get(index) or gpu for index, gpu in enumerate(last.gpus))
                return replace(last, gpus=gpus)
            return self._reread(last, indices, profiles=profiles)

    @contextmanager
    def _lost_by_failure(self) -> Iterator[None]:
        try:
            yield
        except CallFailed as failed:
            raise SessionLost(failed.error, f"{failed.call} of {self.library.path} says {failed.error}") from failed

    def _parted(self, last: GpuFacts) -> GpuFacts | None:
        """A GPU with its present MIG devices; None if anything else about it may have changed."""
        handle = self._handles[last.index]
        if handle is None or last.error is not None or any(each.call in PARTITION_CALLS for each in last.errors):
            return None
        calls = NvmlCalls(self.binding)
        uuid = calls(self.binding.text, "nvmlDeviceGetUUID", handle)
        mode = calls(self.binding.numbers, "nvmlDeviceGetMigMode", handle)
        if uuid != last.uuid or mode != (last.mig_mode, last.mig_pending):
            return None
        migs = read_mig_devices(calls, handle, last.mig_max_devices or 0) if last.mig_mode else ()
        return None if calls.errors or calls.gone is not None else replace(last, mig_devices=migs)

    def _reread(self, last: NvmlFacts, indices: Iterable[int], *, profiles: bool) -> NvmlFacts:
        gpus: list[GpuFacts] = list(last.gpus)
        handles = [*self._handles]
        for index in indices:
            gpus[index], handles[index] = self._read_gpu(index, profiles=profiles)
        gpus = with_ancestors(self.binding, remembered(gpus, last.gpus), handles, self._links)
        return replace(last, gpus=tuple(gpus), mig_tables=self._mig_tables(gpus) if profiles else ())

    def _read(self, previous: tuple[GpuFacts, ...], *, profiles: bool) -> NvmlFacts:
        binding = self.binding
        # Without the count no GPU is known, whatever the error is.
        count = binding.number("nvmlDeviceGetCount")
        calls = NvmlCalls(binding)
        driver_version = calls(binding.text, "nvmlSystemGetDriverVersion")
        nvml_version = calls(binding.text, "nvmlSystemGetNVMLVersion")
        # The second version of this call fails where libcuda is not installed beside NVML.
        cuda_version = calls(binding.number, "nvmlSystemGetCudaDriverVersion")
        handles: list[Handle | None] = []
        gpus: list[GpuFacts] = []
        for index in range(count):
            gpu, handle = self._read_gpu(index, profiles=profiles)
            gpus.append(gpu)
            handles.append(handle)
        self._handles = tuple(handles)
        # Remembered first: the pairs of a lost GPU are known by its identity, and so stay as they were at the others.
        gpus = with_ancestors(binding, remembered(gpus, previous), handles, self._links)
        return NvmlFacts(
            driver_version=driver_version,
            nvml_version=nvml_version,
            cuda_driver_version=cuda_version,
            gpus=tuple(gpus),
            mig_tables=self._mig_tables(gpus) if profiles else (),
            errors=calls.errors,
        )

    def _read_gpu(self, index: int, *, profiles: bool) -> tuple[GpuFacts, Handle | None]:
        """The GPU, and its handle if it has one."""
        call = "nvmlDeviceGetHandleByIndex"
        try:
            handle = self.binding.handle(call, index)
        except CallFailed as failed:
            if failed.error in SESSION_ENDED:
                raise
            return GpuFacts(index, error=failed.error, errors=(CallError(call, failed.error),)), None
        calls = NvmlCalls(self.binding)
        gpu = read_gpu(calls, index, handle, self._known)
        if gpu.error is not None:
            return with_errors(gpu, calls), handle
        migs = read_mig_devices(calls, handle, gpu.mig_max_devices or 0) if gpu.mig_mode else ()
        links = read_nvlinks(calls, handle, gpu, self._links)
        if profiles:
            self._read_profiles(calls, handle, gpu)
        return with_errors(replace(gpu, mig_devices=migs, nvlinks=links), calls), handle

    def _read_profiles(self, calls: NvmlCalls, handle: Handle, gpu: GpuFacts) -> None:
        from node.inventory.nvidia.nvml_profiles import read_profiles

        identity = identity_of(gpu)
        if gpu.mig_mode is None or identity is None or identity in self._profiles or calls.gone is not None:
            return
        found = read_profiles(calls, handle)
        if found is not None:
            self._profiles[identity] = found

    def _mig_tables(self, gpus: list[GpuFacts]) -> tuple[MigTable, ...]:
        from node.inventory.nvidia.nvml_profiles import mig_tables

        return mig_tables(gpus, self._profiles)


def remembered(gpus: list[GpuFacts], previous: tuple[GpuFacts, ...]) -> list[GpuFacts]:
    """GPUs in which those with an error are replaced by what was known of them before, with the error.

    The index identifies it, and only if that cannot mislead: the number of GPUs is the same and no other GPU has its
    identity.
    """
    if len(gpus) != len(previous):
        return gpus
    alive = {gpu.uuid for gpu in gpus if gpu.error is None}
    kept = []
    for gpu, before in zip(gpus, previous, strict=True):
        contradicted = before.uuid in alive or (gpu.uuid is not None and gpu.uuid != before.uuid)
        if gpu.error is None or contradicted or identity_of(before) is None:
            kept.append(gpu)
        else:
            kept.append(replace(before, error=gpu.error))
    return kept


LEAVE_WITHIN = 6.0
"""Seconds that the end of a session waits for other threads to leave; longer than a wait for events lasts."""


class NvmlSessions:
    """The source's current session, for others. All methods may be called from any thread.

    ``patience``: seconds that the end of a session waits for those who still use it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Binding | None = None
        self._followers: tuple[Callable[[Binding], None], ...] = ()
        self.patience = LEAVE_WITHIN

    @property
    def current(self) -> Binding | None:
        """The open session's binding, None while there is none."""
        return self._current

    def follow(self, opened: Callable[[Binding], None]) -> Callable[[], None]:
        """Call back with every session when it opens, and with the open one; returns a function that unsubscribes.

        Called in the thread that opens it; must return at once and not raise.
        """
        with self._lock:
            self._followers = (*self._followers, opened)
            current = self._current
        if current is not None:
            opened(current)

        def leave() -> None:
            with self._lock:
                self._followers = tuple(each for each in self._followers if each is not opened)

        return leave

    def opened(self, binding: Binding) -> None:
        """Note the source's new session."""
        with self._lock:
            self._current = binding
            followers = self._followers
        for follower in followers:
            follower(binding)

    def closing(self) -> None:
        """End the session."""
        with self._lock:
            self._current = None

    def hurry(self) -> None:
        """Stop waiting for users of a session: the process ends, and what is left open ends with it."""
        self.patience = 0.0
