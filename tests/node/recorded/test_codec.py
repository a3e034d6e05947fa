from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.inventory.facts import CdiFacts, GpuFacts, NodeFacts, NvLink, NvmlFacts, PciFunction, SysfsFacts
from node.inventory.recordings.document import SCHEMA, Recording, RecordingError, dump, load
from tests.node.recorded.strategies import facts, texts

WHEN = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
HEAD = f"schema: {SCHEMA}\nname: n\ndescription: d\nrecorded_at: 2026-01-31T09:30:00Z\n"
GPU = GpuFacts(
    index=0,
    bus_id="00000000:1B:00.0",
    memory_bytes=85520809984,
    remapped_rows_pending=False,
    nvlinks=(NvLink(0, True, "switch", "00000000:07:00.0"), NvLink(1, False)),
)
NODE = NodeFacts(
    nvml=NvmlFacts(driver_version="570.172.08", gpus=(GPU,)),
    sysfs=SysfsFacts(
        pci=(PciFunction("0000:1b:00.0", "pci0000:15/0000:1b:00.0", "0x030200", "0x10de", "0x2330", drm=("card1",)),)
    ),
    cdi=CdiFacts(),
)


@given(facts, texts, texts, st.datetimes(timezones=st.just(UTC)))
def test_what_is_dumped_is_loaded_again(node: NodeFacts, name: str, description: str, when: datetime) -> None:
    text = dump(node, name=name, description=description, recorded_at=when)

    assert load(text, "test") == Recording(SCHEMA, name, description, when, node)


@given(facts)
def test_the_same_facts_give_the_same_text(node: NodeFacts) -> None:
    first = dump(node, name="n", description="d", recorded_at=WHEN)

    assert dump(load(first, "test").facts, name="n", description="d", recorded_at=WHEN) == first


def test_the_text_is_readable() -> None:
    assert dump(NODE, name="n", description="d", recorded_at=WHEN) == HEAD + (
        "facts:\n"
        "  nvml:\n"
        "    status: ok\n"
        "    driver_version: 570.172.08\n"
        "    gpus:\n"
        "    - index: 0\n"
        "      bus_id: 00000000:1B:00.0\n"
        "      memory_bytes: 85520809984\n"
        "      remapped_rows_pending: false\n"
        "      nvlinks:\n"
        "      - {link: 0, active: true, remote_type: switch, remote_bus_id: '00000000:07:00.0'}\n"
        "      - {link: 1, active: false}\n"
        "  sysfs:\n"
        "    pci:\n"
        "    - address: 0000:1b:00.0\n"
        "      path: pci0000:15/0000:1b:00.0\n"
        "      class_code: '0x030200'\n"
        "      vendor: '0x10de'\n"
        "      device: '0x2330'\n"
        "      drm: [card1]\n"
        "  cdi: {}\n"
    )


def test_a_time_of_another_zone_keeps_it() -> None:
    when = WHEN.astimezone(timezone(timedelta(hours=2)))

    assert load(dump(NODE, name="n", description="d", recorded_at=when), "test").recorded_at == when


def test_a_time_without_zone_is_not_written() -> None:
    with pytest.raises(ValueError, match="recorded_at 2026-01-31T09:30:00 has no time zone; pass an aware datetime"):
        dump(NODE, name="n", description="d", recorded_at=WHEN.replace(tzinfo=None))


def test_texts_need_no_quotes_where_a_text_is_expected() -> None:
    text = HEAD + (
        "facts:\n  sysfs:\n    pci:\n"
        "    - {address: 0000:1b:00.0, path: p, class_code: 0x030200, vendor: 0x10de, device: 0x2, iommu_group: 37}\n"
        "  nvml:\n    detail: yes\n    driver_version: 550\n    gpus: [{index: 0, serial: 01:30, vbios_version: ~}]\n"
    )

    node = load(text, "test").facts

    assert node.sysfs is not None
    assert node.sysfs.pci[0].class_code == "0x030200"
    assert node.sysfs.pci[0].iommu_group == "37"
    assert node.nvml == NvmlFacts(detail="yes", driver_version="550", gpus=(GpuFacts(0, serial="01:30"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"node.yaml: empty; a recorded node begins with 'schema: {SCHEMA}'"),
        ("# nothing\n", f"node.yaml: empty; a recorded node begins with 'schema: {SCHEMA}'"),
        ("name: n\n", f"node.yaml:1: schema: missing; a recorded node begins with 'schema: {SCHEMA}'"),
        ("- a\n", f"node.yaml:1: schema: missing; a recorded node begins with 'schema: {SCHEMA}'"),
        (
            "schema: ostler.dev/recorded-node/v2\nnew: 1\n",
            (
                "node.yaml:1: schema: ostler.dev/recorded-node/v2 was written by a newer ostler; "
                f"this one reads {SCHEMA}: record again or upgrade"
            ),
        ),
        ("schema: v1\n", f"node.yaml:1: schema: 'v1' is not the schema of a recorded node; allowed: {SCHEMA}"),
        ("schema: [1]\n", f"node.yaml:1: schema: a list is not the schema of a recorded node; allowed: {SCHEMA}"),
        (
            f"schema: {SCHEMA}\nfact: {{}}\n",
            "node.yaml:2: fact: unknown key; allowed: schema, name, description, recorded_at, facts",
        ),
        (HEAD, "node.yaml:1: facts: missing; it must be given"),
        (
            HEAD + "facts:\n",
            (
                "node.yaml:5: facts: nothing where a mapping is expected, "
                "with keys nvml, sysfs, network, cdi, driver_files"
            ),
        ),
        (
            HEAD + "facts: {gpus: []}\n",
            "node.yaml:5: facts.gpus: unknown key; allowed: nvml, sysfs, network, cdi, driver_files",
        ),
        (HEAD + "facts:\n  cdi:\n    [a]: 1\n", "node.yaml:7: facts.cdi.a list: unknown key; allowed: devices, errors"),
        (
            HEAD + "facts:\n  nvml:\n    gpus:\n    - uuid: GPU-1\n",
            "node.yaml:8: facts.nvml.gpus[0].index: missing; it must be given",
        ),
        (
            HEAD + "facts:\n  nvml:\n    gpus:\n    - index: 0\n    - index: one\n",
            "node.yaml:9: facts.nvml.gpus[1].index: 'one' where a whole number is expected, in decimal digits",
        ),
        (
            HEAD + "facts:\n  nvml:\n    gpus:\n    - index: 0\n      minor: 0x10\n",
            "node.yaml:9: facts.nvml.gpus[0].minor: '0x10' where a whole number is expected, in decimal digits",
        ),
        (
            HEAD + "facts:\n  nvml:\n    gpus:\n    - index: 0\n      minor: '1'\n",
            "node.yaml:9: facts.nvml.gpus[0].minor: '1' where a whole number is expected, in decimal digits",
        ),
        (
            HEAD + "facts:\n  nvml:\n    gpus:\n    - index: 0\n      remapped_rows_failed: no\n",
            "node.yaml:9: facts.nvml.gpus[0].remapped_rows_failed: 'no' where true or false is expected",
        ),
        (HEAD + "facts:\n  nvml:\n    gpus: 8\n", "node.yaml:7: facts.nvml.gpus: '8' where a list is expected"),
        (
            HEAD + "facts:\n  nvml:\n    status: {a: b}\n",
            "node.yaml:7: facts.nvml.status: a mapping where a text is expected",
        ),
        (
            HEAD + "facts:\n  nvml:\n    status: null\n",
            "node.yaml:7: facts.nvml.status: 'null' where a text is expected",
        ),
        (HEAD + "facts: {}\nname: again\n", "node.yaml:6: name: given twice; remove one of them"),
        (
            HEAD.replace("2026-01-31T09:30:00Z", "yesterday") + "facts: {}\n",
            "node.yaml:4: recorded_at: 'yesterday' where a time is expected, such as 2026-01-31T12:00:00Z",
        ),
        (
            HEAD.replace("00Z", "00") + "facts: {}\n",
            "node.yaml:4: recorded_at: '2026-01-31T09:30:00' where a time is expected, such as 2026-01-31T12:00:00Z",
        ),
        (HEAD + "facts: {\n", "node.yaml:6: not valid YAML: "),
        ("a: b\n---\nc: d\n", "node.yaml:2: not valid YAML: "),
    ],
)
def test_a_bad_file_is_one_error_with_line_key_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(RecordingError) as caught:
        load(text, "node.yaml")

    assert str(caught.value).startswith(message)
    if not message.endswith(": "):
        assert str(caught.value) == message


def test_an_error_carries_its_parts() -> None:
    with pytest.raises(RecordingError) as caught:
        load(HEAD + "facts: {nvml: {gpus: [{index: 0, mig_mode: on}]}}\n", "node.yaml")

    error = caught.value
    assert (error.source, error.line, error.key) == ("node.yaml", 5, "facts.nvml.gpus[0].mig_mode")
    assert error.problem == "'on' where a whole number is expected, in decimal digits"


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
def test_no_text_makes_loading_fail_in_another_way(text: str) -> None:
    for document in (text, f"{HEAD}{text}", f"{HEAD}facts: {{nvml: {{gpus: {text}"):
        with suppress(RecordingError):
            load(document, "test")


def test_deep_nesting_is_an_error() -> None:
    with pytest.raises(RecordingError):
        load("[" * 20_000, "test")
