"""The one place that touches the untyped NVML binding (package nvidia-ml-py, module ``pynvml``).

It turns the binding's calls into typed values and its faults into ``CallFailed`` with names that stay: the call is the
binding's function name, the error NVML's without ``NVML_ERROR_``. A function that the library or the binding lacks is
FUNCTION_NOT_FOUND, so every call may be asked on any driver. What only MIG profiles and partitions need is asked
through ``ask``, in modules that are loaded with them. The states of links are asked through ``ask`` as well, because
they are many.

Invariant: the binding keeps its library and its function pointers in module globals, hence at most one ``Binding`` of
the process is attached; attaching another detaches the one before, whose calls then fail with UNINITIALIZED. Threads
other than the one that attaches and detaches call it inside ``shared``, which keeps the library under their feet.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from node.inventory.facts import Fabric, SramErrors
from node.inventory.nvidia.nvml_fields import FieldQuery
from node.inventory.nvidia.nvml_library import Gate
from node.libraries import found_by_soname
from node.values import Value, value

T = TypeVar("T")

UNREADABLE_TEXT = "UNREADABLE_TEXT"
"""Not an error of NVML: the driver returned text that is not UTF-8."""

_ERROR = "NVML_ERROR_"
_ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}
_NVLINK_REMOTE_TYPES = {0: "gpu", 1: "ibmnpu", 2: "switch"}
_TRY_OLDER = ("FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT")
_FOR_GOOD = ("FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH")
"""Errors of a call that this library refuses for every GPU; INVALID_ARGUMENT may concern one GPU."""
_OLD_FABRIC = "nvmlDeviceGetGpuFabricInfo"
_FABRIC_V3, _FABRIC_V2, _FABRIC_V1 = "c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t", "c_nvmlGpuFabricInfo_t"
_FABRICS = 64
"""Most answers about the fabric that are remembered."""
_TAKEN_WITHIN = 6.0
"""Seconds that a new binding waits for the users of the previous one."""


class CallFailed(Exception):
    """An NVML call failed: ``call`` and ``error`` as in CallError."""

    def __init__(self, call: str, error: str) -> None:
        super().__init__(f"{call} says {error}")
        self.call = call
        self.error = error


class Handle:
    """An opaque NVML handle of a GPU, a MIG device or a GPU instance; valid while its binding is attached."""

    __slots__ = ("_address", "value")

    def __init__(self, value: object) -> None:
        self.value = value
        self._address: int | None = None

    @property
    def address(self) -> int:
        """Identifies the handle within one session."""
        if self._address is None:
            self._address = _address(self.value)
        return self._address


@value
class NvmlEvent(Value):
    """An event as NVML reports it: the address of the GPU's handle, and numbers."""

    address: int
    kind: int
    data: int
    gpu_instance: int
    compute_instance: int


@value
class NvmlProcess(Value):
    """A process as NVML reports it; ``memory`` in bytes."""

    pid: int
    memory: int | None
    gpu_instance: int
    compute_instance: int


class Binding:
    """NVML through one loaded library. Every method raises CallFailed; arguments are handles and numbers."""

    _attached: Binding | None = None

    def __init__(self, library: ctypes.CDLL) -> None:
        # Imported with the first library: nodes without NVIDIA's driver need not pay for the module.
        with found_by_soname():
            import pynvml

        self._gate = Gate()
        self._library = library
        self._module: Any = pynvml
        self._refused: dict[tuple[str, str], str] = {}
        """Calls with a layout that this driver has reported as unknown, and the error."""
        self._fabrics: dict[tuple[str, bytes], Fabric] = {}
        """The last answers about the fabric, by layout and bytes: all GPUs of a fabric say the same."""
        self._errors: dict[int, str] = {
            code: name.removeprefix(_ERROR) for name, code in vars(pynvml).items() if name.startswith(_ERROR)
        }
        if Binding._attached is not None:
            Binding._attached.detach(_TAKEN_WITHIN)
        # The binding opens the soname only while this global is None, and never again: after a driver change it would
        # go on with the old library and the old function pointers. Should a newer binding keep it elsewhere, its own
        # load of the soname still finds this library, which was loaded with RTLD_GLOBAL.
        pynvml.nvmlLib = library
        self._forget_functions()
        Binding._attached = self
        try:
            # Without the flag a node whose GPUs are all bound to another driver looks like one without a driver.
            self._invoke("nvmlInitWithFlags", pynvml.NVML_INIT_FLAG_NO_GPUS)
        except CallFailed:
            self._release()
            raise

    @property
    def max_nvlinks(self) -> int:
        """The most links of one GPU that NVML knows."""
        return int(self._module.NVML_NVLINK_MAX_LINKS)

    @property
    def mig_profiles(self) -> int:
        """The number of GPU instance profiles that the binding knows."""
        return int(self._module.NVML_GPU_INSTANCE_PROFILE_COUNT)

    @property
    def compute_profiles(self) -> int:
        """The number of compute instance profiles that the binding knows."""
        return int(self._module.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)

    def error_name(self, code: int) -> str:
        """The name of an error that NVML returns as a value, such as IN_USE."""
        return self._errors.get(code, f"ERROR_{code}")

    @property
    def attached(self) -> bool:
        """Whether calls can be made; ends with ``detach`` or when another binding is made."""
        return Binding._attached is self

    @property
    def ending(self) -> bool:
        """Whether threads inside ``shared`` must leave."""
        return self._gate.closed

    @property
    def left(self) -> bool:
        """Whether no thread is inside ``shared``."""
        return self._gate.empty

    @contextmanager
    def shared(self) -> Iterator[None]:
        """For other threads: inside, the library stays. Leave soon after ``ending`` is true."""
        if not self._gate.enter():
            raise CallFailed("nvmlInit", "UNINITIALIZED")
        try:
            yield
        finally:
            self._gate.leave()

    def ring(self, bell: threading.Event) -> None:
        """Set this event when the binding ends: for threads that wait outside ``shared``."""
        self._gate.ring(bell)

    def pause(self, seconds: float) -> bool:
        """Wait inside ``shared``, at most until the binding ends; returns whether it ends."""
        return self._gate.pause(seconds)

    def detach(self, within: float = 0.0) -> bool:
        """Shut NVML down and forget the library; may be called twice.

        Waits that many seconds for those inside ``shared``. False if a call is still in progress: then NVML is left as
        it is, and the library must not be unloaded until ``left``.
        """
        if not self.attached:
            return self.left
        if not self._gate.close(within):
            self._release()
            return False
        try:
            self._invoke("nvmlShutdown")
        except CallFailed:
            pass  # A session is often closed because it is dead already; the cause has been reported.
        finally:
            self._release()
        return True

    def _release(self) -> None:
        self._module.nvmlLib = None
        self._forget_functions()
        Binding._attached = None

    def _forget_functions(self) -> None:
        # Pointers into a library that may be unloaded; the binding offers no way to drop them.
        self._module._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001

    def _invoke(self, call: str, *arguments: object) -> Any:
        return self._run(call, getattr(self._module, call, None), *arguments)

    def _run(self, call: str, function: Any, *arguments: object) -> Any:
        if not self.attached:
            raise CallFailed(call, "UNINITIALIZED")
        if function is None:
            raise CallFailed(call, "FUNCTION_NOT_FOUND")
        try:
            return function(*[item.value if isinstance(item, Handle) else item for item in arguments])
        except self._module.NVMLError as error:
            raise CallFailed(call, self.error_name(error.value)) from error
        except UnicodeDecodeError as error:
            raise CallFailed(call, UNREADABLE_TEXT) from error

    def ask(self, call: str, ask: Callable[[Any], T]) -> T:
        """The result of ``ask`` with the binding's module, for calls with structures."""
        return cast("T", self._run(call, ask, self._module))

    def do(self, call: str, *arguments: object) -> None:
        """A call that returns nothing."""
        self._invoke(call, *arguments)

    def give_back(self, call: str, made: Handle) -> None:
        """Free what a call has made, also where this binding was left behind; for those inside ``shared``.

        Then it goes straight to the library, which stays initialised and loaded until they have left.
        """
        if self.attached:
            self.do(call, made)
        else:
            getattr(self._library, call)(made.value)

    def handle(self, call: str, *arguments: object) -> Handle:
        """What a call returns as a handle."""
        return Handle(self._invoke(call, *arguments))

    def text(self, call: str, *arguments: object) -> str:
        """What a call returns as text."""
        return str(self._invoke(call, *arguments))

    def number(self, call: str, *arguments: object) -> int:
        """What a call returns as one number."""
        return int(self._invoke(call, *arguments))

    def numbers(self, call: str, *arguments: object) -> tuple[int, ...]:
        """What a call returns as several numbers."""
        return tuple(int(value) for value in self._invoke(call, *arguments))

    def field(self, call: str, name: str, *arguments: object) -> int:
        """One number out of the structure that a call returns."""
        return int(getattr(self._invoke(call, *arguments), name))

    def fields(self, call: str, names: tuple[str, ...], *arguments: object) -> tuple[int, ...]:
        """Numbers out of the structure that a call returns; ``a.b`` is field b of its field a."""
        structure = self._invoke(call, *arguments)
        values = []
        for name in names:
            value = structure
            for part in name.split("."):
                value = getattr(value, part)
            values.append(int(value))
        return tuple(values)

    def bus_id(self, call: str, *arguments: object) -> str:
        """The PCI address out of the structure that a call returns, as NVML writes it."""
        structure = self._invoke(call, *arguments)
        try:
            # Drivers before the long field fill only the old one, which has four digits for the domain.
            return str(structure.busId or structure.busIdLegacy)
        except UnicodeDecodeError as error:
            raise CallFailed(call, UNREADABLE_TEXT) from error

    def module_id(self, call: str, gpu: Handle) -> int:
        """Number of the GPU's module on its baseboard."""
        # The binding's own default argument is one object for all calls; a fresh one keeps results separate.
        return int(self._invoke(call, gpu, ctypes.c_uint()))

    def addressing_mode(self, call: str, gpu: Handle) -> str:
        """``None``, ``HMM`` or ``ATS``; a mode that is newer than this table as its number."""
        mode = self.number(call, gpu)
        return _ADDRESSING_MODES.get(mode, str(mode))

    def nvlink_remote_type(self, call: str, gpu: Handle, link: int) -> str:
        """``gpu``, ``ibmnpu`` or ``switch``; empty when NVML does not know."""
        return _NVLINK_REMOTE_TYPES.get(self.number(call, gpu, link), "")

    def fabric(self, call: str, gpu: Handle) -> Fabric:
        """Fabric membership and health by the versioned call, or membership by the first one if the driver lacks it.

        Raises the error for the newest layout.
        """
        first: CallFailed | None = None
        for name, layout in ((call, _FABRIC_V3), (call, _FABRIC_V2), (_OLD_FABRIC, _FABRIC_V1)):
            made = getattr(self._module, layout, None)
            if made is None:
                continue
            if (name, layout) in self._refused:
                first = first or CallFailed(name, self._refused[name, layout])
                continue
            info = made()
            try:
                self._invoke(name, gpu, ctypes.byref(info))
            except CallFailed as failed:
                if failed.error not in _TRY_OLDER:
                    raise first or failed from None
                first = first or failed
                if failed.error in _FOR_GOOD:
                    self._refused[name, layout] = failed.error
            else:
                return self._fabric_of(layout, info)
        raise first or CallFailed(call, "FUNCTION_NOT_FOUND")

    def _fabric_of(self, layout: str, info: Any) -> Fabric:
        """The fabric of a filled structure, which is taken apart only where it says something new."""
        written = layout, bytes(info)
        fabric = self._fabrics.get(written)
        if fabric is None:
            if len(self._fabrics) >= _FABRICS:
                self._fabrics.clear()
            fabric = self._fabrics[written] = _fabric(info)
        return fabric

    def sram(self, call: str, gpu: Handle) -> SramErrors:
        """Uncorrectable errors of a GPU's SRAM."""
        status = self._module.c_nvmlEccSramErrorStatus_v1_t()
        self._invoke(call, gpu, ctypes.byref(status))
        return SramErrors(
            int(status.volatileUncParity + status.volatileUncSecDed),
            int(status.aggregateUncParity + status.aggregateUncSecDed),
            bool(status.bThresholdExceeded),
        )

    def events(self, call: str, event_set: Handle) -> Callable[[int], NvmlEvent | None]:
        """A function that waits that many milliseconds for the next event; it returns None when there was none.

        Only for one thread, inside ``shared``. The library is called directly: the binding's own call raises if there
        was no event, which is how nearly all waits end.
        """
        function, data = getattr(self._library, call, None), self._module.c_nvmlEventData_t()
        room, over = ctypes.byref(data), self._module.NVML_ERROR_TIMEOUT

        def wait(timeout: int) -> NvmlEvent | None:
            if not self.attached:
                raise CallFailed(call, "UNINITIALIZED")
            if function is None:
                raise CallFailed(call, "FUNCTION_NOT_FOUND")
            code = function(event_set.value, room, ctypes.c_uint(timeout))
            if code == over:
                return None
            if code:
                raise CallFailed(call, self.error_name(code))
            return NvmlEvent(
                _address(data.device),
                int(data.eventType),
                int(data.eventData),
                int(data.gpuInstanceId),
                int(data.computeInstanceId),
            )

        return wait

    def field_values(self, call: str, gpu: Handle, query: FieldQuery) -> Mapping[tuple[int, int], int | str]:
        """The value of each field, or the name of NVML's error for it."""

        def ask(handle: object) -> None:
            function = self._module._nvmlGetFunctionPointer(call)  # noqa: SLF001 - its own call fills slow structures
            arguments = handle, ctypes.c_int(len(query.fields)), ctypes.byref(query.values)
            self._module._nvmlCheckReturn(function(*arguments))  # noqa: SLF001

        self._run(call, ask, gpu)
        return query.answers(self._errors)

    def question(self, call: str, layout: str) -> Callable[[str, Handle], bool]:
        """A function that makes this call, which fills such a structure, and returns True once NVML has answered.

        It raises ``CallFailed``. For questions that are asked all the time: it keeps the call's address and the
        structure. Only for one thread, inside ``shared``.
        """
        function, made = getattr(self._library, call, None), getattr(self._module, layout, None)
        room = None if made is None else ctypes.byref(made())

        def ask(call: str, handle: Handle) -> bool:
            if not self.attached:
                raise CallFailed(call, "UNINITIALIZED")
            if function is None or room is None:
                raise CallFailed(call, "FUNCTION_NOT_FOUND")
            if code := function(handle.value, room):
                raise CallFailed(call, self.error_name(code))
            return True

        return ask

    def processes(self, call: str, device: Handle) -> tuple[NvmlProcess, ...]:
        """The processes on a GPU or a MIG device."""
        return tuple(
            NvmlProcess(
                int(each.pid),
                None if each.usedGpuMemory is None else int(each.usedGpuMemory),
                int(each.gpuInstanceId),
                int(each.computeInstanceId),
            )
            for each in self._invoke(call, device)
        )


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


def _fabric(info: Any) -> Fabric:
    mask, summary = getattr(info, "healthMask", None), getattr(info, "healthSummary", None)
    return Fabric(
        _uuid_text(bytes(info.clusterUuid)),
        int(info.cliqueId),
        int(info.state),
        int(info.status),
        None if mask is None else int(mask),
        None if summary is None else int(summary),
    )


def _uuid_text(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
