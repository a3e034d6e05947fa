"""The calls of the DevicePlugin service, made as a kubelet makes them, but with a deadline each and no limit of size.

A kubelet takes 4 MiB a message and waits for ever; here a list of any size arrives and a call that hangs ends, so that
one fault of a plugin does not hide the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import TypeVar

import grpc
import grpc.aio

from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.dialling import UNLIMITED, answer, plugin_channel, ready
from sandbox.kubelet.errors import PluginError

Message = TypeVar("Message")


class JudgedCallFailed(Exception):
    """A call to the plugin or driver failed: its name, the status and the words that came with it."""

    def __init__(self, method: str, code: grpc.StatusCode, details: str) -> None:
        status = "" if code is grpc.StatusCode.OK else f" failed with {code.name}"
        super().__init__(f"{method}{status}: {details or '(no text)'}")
        self.method = method
        self.code = code
        self.details = details

    @property
    def late(self) -> bool:
        """Whether the call had not been answered at its deadline."""
        return self.code is grpc.StatusCode.DEADLINE_EXCEEDED


async def answered(method: str, call: Awaitable[Message], seconds: float) -> Message:
    """The answer of a call within ``seconds``; raises ``JudgedCallFailed``."""
    try:
        async with asyncio.timeout(seconds):
            return await answer(call)
    except TimeoutError:
        raise JudgedCallFailed(method, grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {seconds:g} s") from None
    except PluginError as error:
        raise JudgedCallFailed(method, error.code, error.details) from error


class PluginClient:
    """A client of the plugin at ``socket``; a call has ``seconds``. Every method raises ``JudgedCallFailed``."""

    def __init__(self, socket: str, seconds: float) -> None:
        self.socket = socket
        self._seconds = seconds
        self._channel = plugin_channel(socket, limit=UNLIMITED)
        self._stub = api_pb2_grpc.DevicePluginStub(self._channel)

    async def close(self) -> None:
        """End the connection, and streams and calls with it."""
        await self._channel.close()

    async def ready(self, seconds: float) -> bool:
        """Whether the connection is there within ``seconds``."""
        return await ready(self._channel, seconds)

    async def options(self, seconds: float | None = None) -> api_pb2.DevicePluginOptions:
        """Call GetDevicePluginOptions."""
        call = self._stub.GetDevicePluginOptions(api_pb2.Empty())
        return await answered("GetDevicePluginOptions", call, self._seconds if seconds is None else seconds)

    async def allocate(self, *containers: Sequence[str]) -> list[api_pb2.ContainerAllocateResponse]:
        """Call Allocate for containers with these ids each; returns the container responses."""
        requests = [api_pb2.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        call = self._stub.Allocate(api_pb2.AllocateRequest(container_requests=requests))
        return list((await answered("Allocate", call, self._seconds)).container_responses)

    async def preferred(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[list[str]]:
        """Call GetPreferredAllocation for one container; returns the ids of every container response."""
        wanted = api_pb2.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        call = self._stub.GetPreferredAllocation(api_pb2.PreferredAllocationRequest(container_requests=[wanted]))
        response = await answered("GetPreferredAllocation", call, self._seconds)
        return [list(each.deviceIDs) for each in response.container_responses]

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Call PreStartContainer."""
        call = self._stub.PreStartContainer(api_pb2.PreStartContainerRequest(devices_ids=ids))
        await answered("PreStartContainer", call, self._seconds)

    async def lists(self) -> AsyncGenerator[api_pb2.ListAndWatchResponse]:
        """The messages of a new ListAndWatch stream until the plugin ends it; the stream ends with the iteration."""
        call = self._stub.ListAndWatch(api_pb2.Empty())
        try:
            async for message in call:
                if message is None:
                    raise JudgedCallFailed(
                        "ListAndWatch", grpc.StatusCode.INTERNAL, "it sent bytes that are not a message"
                    )
                yield message
        except grpc.aio.AioRpcError as error:
            raise JudgedCallFailed("ListAndWatch", error.code(), error.details() or "") from error
        finally:
            call.cancel()

    async def first_list(self) -> api_pb2.ListAndWatchResponse:
        """The first message of a new stream, which ends then."""
        lists = self.lists()
        try:
            async with asyncio.timeout(self._seconds):
                return await anext(lists)
        except TimeoutError:
            problem = f"no list within {self._seconds:g} s"
            raise JudgedCallFailed("ListAndWatch", grpc.StatusCode.DEADLINE_EXCEEDED, problem) from None
        except StopAsyncIteration:
            problem = "the plugin ended the stream before a list"
            raise JudgedCallFailed("ListAndWatch", grpc.StatusCode.OK, problem) from None
        finally:
            await lists.aclose()
