"""What stands between the answers of ``ostler kubelet``."""

from __future__ import annotations

import asyncio
import logging
import re
import urllib.error
import urllib.request

import pytest

from sandbox.apiserver.server import ApiServer
from sandbox.kubelet.errors import CallFault
from sandbox.kubelet.events import (
    CheckpointFailed,
    DriverConnection,
    DriverHealth,
    HealthChanged,
    KubeletEvent,
    ListReceived,
    PluginCallFailed,
    PluginCallPending,
    PluginDeregistered,
    PluginRegistered,
    PodWarning,
    RegistrationFailed,
    RunOptionsConflict,
)
from sandbox.kubelet.pod_devices import OptionConflict
from sandbox.standalone.console import LINES_A_SECOND, EventDisplay, PluginLog, ServerLog
from sandbox.standalone.event_lines import event_line


class _Lines(list[str]):
    def aside(self, source: str, text: str) -> None:
        self.append(f"{source} | {text}")


async def test_flood_of_the_log_is_cut_and_counted() -> None:
    lines = _Lines()
    log = PluginLog(lines)
    for number in range(10 * LINES_A_SECOND):
        log.line(str(number))
    log.flush()
    log.flush()
    left_out = [
        int(found[1]) for line in lines if (found := re.search(r"\.\.\. (\d+) more lines within a second", line))
    ]
    assert lines[0] == "plugin | 0"
    assert len(lines) - len(left_out) + sum(left_out) == 10 * LINES_A_SECOND
    # More than one second may have passed.
    assert len(lines) < 5 * LINES_A_SECOND


async def test_changes_of_one_list_are_a_few_lines() -> None:
    lines = _Lines()
    display = EventDisplay(lines, "/kubelet/")
    for number in range(8):
        display.show(HealthChanged("a/b", f"d{number}", "Healthy", "Unhealthy"))
    await asyncio.sleep(0)
    assert lines == [
        *(f"kubelet | a/b: device d{number} Healthy -> Unhealthy" for number in range(5)),
        "kubelet | a/b: 3 more devices changed their health",
    ]


async def test_who_watches_gets_every_event_and_nothing_is_shown_after_the_end() -> None:
    lines, seen = _Lines(), list[KubeletEvent]()
    display = EventDisplay(lines, "/kubelet/")
    listed = ListReceived("a/b", 1, 2, 0)
    display.show(listed)
    display.watched_by(seen.append)
    display.show(listed)
    display.watched_by(None)
    display.silence()
    display.show(PluginRegistered("a/b", "/kubelet/s", "watcher"))
    assert seen == [listed]
    assert lines == []


_FAULT = CallFault("a/b", "/kubelet/device-plugins/s", "Allocate", 1.5, "see the plugin")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (PluginRegistered("a/b", "/kubelet/s", "register"), "a/b is registered by its Register call, socket s"),
        (
            RegistrationFailed("", "/kubelet/s", "watcher", "no answer", _FAULT),
            (
                "registration of s by plugins_registry failed: no answer; Allocate of the plugin of a/b at "
                "device-plugins/s, 1.5 s: see the plugin"
            ),
        ),
        (
            PluginDeregistered("a/b", "/kubelet/s", True, "it ended"),
            "a/b is disconnected, socket s: it ended; nothing serves it now",
        ),
        (
            PluginCallPending(_FAULT),
            "waiting for Allocate of the plugin of a/b at device-plugins/s, 1.5 s: see the plugin",
        ),
        (
            PluginCallFailed(_FAULT, "rpc error"),
            "failed: Allocate of the plugin of a/b at device-plugins/s, 1.5 s: see the plugin; error: rpc error",
        ),
        (
            CheckpointFailed("/kubelet/device-plugins/c", "no space", "written"),
            (
                "the checkpoint device-plugins/c cannot be written: no space; pods that need devices are refused until "
                "it can be; see whether the folder is writable and the disk has room"
            ),
        ),
        (
            RunOptionsConflict("u", "main", OptionConflict("env", "A", "1", "2", "a/b")),
            "container main: env 'A': '1' kept, '2' of a/b dropped",
        ),
        (DriverConnection("d", "/kubelet/s", False), "driver d at s is disconnected"),
        (PodWarning("u", "Failed", "why"), "pod u: Failed: why"),
    ],
)
async def test_event_is_one_line(event: KubeletEvent, line: str) -> None:
    lines = _Lines()
    EventDisplay(lines, "/kubelet/").show(event)
    assert lines == [f"kubelet | {line}"]


async def test_warning_of_the_api_server_is_shown_once() -> None:
    lines = _Lines()
    log = logging.getLogger("ostler.sandbox.apiserver")
    handler = ServerLog(lines)
    log.addHandler(handler)
    try:
        with ApiServer() as server:
            for _ in range(2):
                request = urllib.request.Request(
                    f"{server.url}/apis/resource.k8s.io/v1/resourceslices?x=1",
                    b"k8s",
                    {"Content-Type": "application/cbor", "User-Agent": "driver/v1 (linux)"},
                )
                with pytest.raises(urllib.error.HTTPError, match="415"):
                    await asyncio.to_thread(urllib.request.urlopen, request)
    finally:
        log.removeHandler(handler)
    assert lines == [
        (
            "apiserver | the API server's stand-in cannot read what driver/v1 sent to "
            "/apis/resource.k8s.io/v1/resourceslices as application/cbor; have the client send application/json"
        )
    ]


def test_watched_details_are_lines_too() -> None:
    assert [
        event_line(event) for event in (ListReceived("a/b", 3, 2, 1), DriverHealth("d", 2), DriverHealth("d", 0, True))
    ] == [
        "a/b sent list 3: 2 healthy, 1 unhealthy",
        "driver d: health of 2 devices",
        "driver d: health stream ended",
    ]


async def test_details_are_for_who_watches() -> None:
    lines = _Lines()
    EventDisplay(lines, "/kubelet/").show(DriverHealth("d", 2))
    assert lines == []
