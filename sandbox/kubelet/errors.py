"""The errors of the embedded kubelet. Messages are a real kubelet's, because tests grep for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio

_SHOWN_CHARACTERS: Final = 512


def shortened(text: str) -> str:
    """``text`` as it is shown and counted: at most 512 characters, with a sign of what was cut off."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"


def cause_of(error: Exception) -> str:
    """What an error says; of the system's only its reason, without Python's number and file names."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


@dataclass(frozen=True, slots=True)
class CallFault:
    """Where a call to a plugin went wrong: the plugin, the call, its seconds so far, and what to look at.

    ``resource`` may be empty while the plugin has not said what it serves.
    """

    resource: str
    socket: str
    call: str
    seconds: float
    advice: str

    def __str__(self) -> str:
        plugin = f"the plugin of {self.resource}" if self.resource else "the plugin"
        return f"{self.call} of {plugin} at {self.socket}, {self.seconds:.1f} s: {self.advice}"


class KubeletError(Exception):
    """Base of everything the embedded kubelet raises on purpose."""


class DeviceAllocationError(KubeletError):
    """A container cannot get what it asks for; ``resource`` is the one that failed."""

    def __init__(self, resource: str, message: str) -> None:
        super().__init__(message)
        self.resource = resource


class ContainerStartError(KubeletError):
    """PreStartContainer failed or could not be called; the container stays waiting for ``reason``."""

    reason: Final = "CreateContainerConfigError"


class RegistrationError(KubeletError):
    """A plugin's registration is refused or fails; ``fault`` is the call that failed, if it was one."""

    def __init__(self, message: str, fault: CallFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


class PluginError(KubeletError):
    """A call to a plugin failed; ``code`` is the status, ``details`` the plugin's words, ``fault`` what to look at."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(f"rpc error: code = {_go_name(code)} desc = {details}")
        self.code = code
        self.details = details
        self.fault: CallFault | None = None

    @classmethod
    def of(cls, error: grpc.aio.AioRpcError) -> PluginError:
        """The error as a kubelet words it."""
        return cls(error.code(), error.details() or "")


class EndpointStoppedError(KubeletError):
    """The plugin behind ``resource`` has disconnected; nothing is sent to it."""

    def __init__(self, resource: str, socket: str) -> None:
        super().__init__(f"endpoint {{{resource} {socket}}} has been stopped")


def _go_name(code: grpc.StatusCode) -> str:
    # The Go names differ from the wire's only in case, and in the spelling of one.
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    if code is grpc.StatusCode.OK:
        return "OK"
    return "".join(part.capitalize() for part in code.name.split("_"))
