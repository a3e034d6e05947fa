"""What a running agent's /metrics tells, read as Prometheus reads it."""

from __future__ import annotations

import asyncio
import re
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from ostler.cli.main import main
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.waiting import eventually

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def address(box: SandboxNode) -> str:
    found: list[str] = []

    def serving() -> bool:
        found[:] = re.findall(r"serving probes and metrics.*port=(\d+)", box.log.read_text())
        return bool(found)

    await eventually(serving)
    return f"http://127.0.0.1:{found[0]}"


async def scrape(box: SandboxNode) -> Samples:
    url = f"{await address(box)}/metrics"

    def read() -> str:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    families = text_string_to_metric_families(await asyncio.to_thread(read))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def labelled(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


async def test_devices_resources_and_calls_are_counted() -> None:
    async with SandboxNode(path("l4-2"), flags={"--http": "127.0.0.1:0"}, reconcile_interval=0.05) as box:
        await box.registered()
        await box.give("nvidia.com/gpu", 1)
        samples = await scrape(box)
        assert samples["ostler_devices", labelled(kind="gpu", vendor="nvidia", health="healthy")] == 2
        assert samples["ostler_resource_devices", labelled(resource="nvidia.com/gpu", health="Healthy")] == 2
        calls = labelled(resource="nvidia.com/gpu", method="Allocate", code="OK")
        assert samples["ostler_calls_total", calls] == 1
        assert samples["ostler_active", ()] == samples["ostler_ready", ()] == 1
        assert samples["ostler_quiesced", ()] == 0
        # A recorded node has no events of hardware.
        assert not [name for name, _ in samples if name.startswith("ostler_uevent")]


async def test_events_of_real_hardware_and_quiesce_are_told() -> None:
    async with SandboxNode(None, flags={"--http": "127.0.0.1:0"}, reconcile_interval=0.05) as box:
        await eventually(lambda: _listening(box))
        await asyncio.to_thread(main, ["quiesce", "--socket", str(box.root / "ostler.sock")])
        samples = await scrape(box)
        assert samples["ostler_quiesced", ()] == 1
        sources = {labels: value for (name, labels), value in samples.items() if name == "ostler_uevent_source"}
        assert sum(sources.values()) == 1
        counters = {name for name, _ in samples if name.endswith("_total")}
        assert counters >= {
            "ostler_uevents_total",
            "ostler_uevent_overflows_total",
            "ostler_link_messages_total",
            "ostler_link_overflows_total",
            "ostler_polled_changes_total",
            "ostler_hardware_wakeups_total",
        }


async def _listening(box: SandboxNode) -> bool:
    return any(source.name == "events" for source in (await box.agent.status()).sources)
