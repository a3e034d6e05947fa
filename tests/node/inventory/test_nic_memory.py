"""A NIC whose interface is in a pod: what is remembered, for how long, and when it is written."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from node.clocks import SystemClocks
from node.files import JsonValue, read_record, write_record
from node.inventory.facts import NodeFacts
from node.inventory.identity import SCHEMA, Identities, IdentityStore
from node.inventory.model import Snapshot
from node.inventory.net_facts import HostLink, NetworkFacts
from node.inventory.nics.devices import network_status
from node.inventory.scan import Scanner
from node.opening import boot_id
from node.rules import FunctionRange, NicSelector
from tests.making.nic_facts import (
    attributes,
    interface,
    learned,
    nic,
    nics,
    only,
    port,
    rdma,
    seen,
    subfunction,
    vf,
)

ONE = nic(sriov_totalvfs=8)
LINK = interface(ONE, "ens1np0")
HERE = nics(
    ONE,
    interfaces=(LINK,),
    rdma=(rdma(ONE, "mlx5_0"),),
    network=NetworkFacts(links=(HostLink("ens1np0", firmware_version="28.39"),)),
)
GONE = nics(ONE)
MOMENTARY = {"linkUp", "operState", "rdmaPortState"}


def test_nic_in_a_pod_is_the_same_device_with_its_last_seen_facts() -> None:
    before = only(HERE)
    after = only(GONE, learned(HERE))
    assert (after.name, after.kind, after.health) == (before.name, before.kind, before.health)
    known = {name: value for name, value in attributes(before).items() if name not in MOMENTARY}
    assert attributes(after) == {**known, "inPod": True}
    assert after.nodes == before.nodes


def test_nic_in_a_pod_is_selected_by_the_same_facts() -> None:
    selector = NicSelector(interfaces=(FunctionRange("ens1np0"),), link_types=("ethernet",), rdma=True)
    assert selector.matches(only(HERE))
    assert selector.matches(only(GONE, learned(HERE)))
    assert not selector.matches(only(GONE))


def test_memory_lasts_while_the_nic_is_away() -> None:
    once = learned(HERE)
    assert learned(GONE, learned(GONE, once)) == once


def test_nic_that_comes_back_is_in_no_pod() -> None:
    assert "inPod" not in attributes(only(HERE, learned(GONE, learned(HERE))))


def test_rename_in_the_host_is_taken_over() -> None:
    renamed = nics(ONE, interfaces=(interface(ONE, "rail0"),))
    assert only(GONE, learned(renamed, learned(HERE))).text("ifName") == "rail0"


def test_rdma_device_that_stays_visible_tells_of_itself_while_the_interface_is_away() -> None:
    shared = nics(ONE, rdma=(rdma(ONE, "mlx5_0", port(state="1: DOWN")),))
    found = attributes(only(shared, learned(HERE)))
    assert (found["inPod"], found["rdmaPortState"], found["linkUp"]) == (True, "down", False)


def test_rdma_module_that_was_unloaded_is_no_pod() -> None:
    unloaded = nics(ONE, interfaces=(LINK,))
    found = attributes(only(unloaded, learned(HERE)))
    assert found["rdma"] is False
    assert "inPod" not in found
    assert not learned(unloaded, learned(HERE)).nics[0].rdma


def test_adapter_without_interface_is_remembered_by_its_rdma_device() -> None:
    hca = nic(class_code="0x020700")
    before = learned(nics(hca, rdma=(rdma(hca, "mlx5_0"),)))
    found = attributes(only(nics(hca), before))
    assert (found["inPod"], found["rdmaDevice"]) == (True, "mlx5_0")


def test_adapter_of_another_class_stays_a_device_while_in_a_pod() -> None:
    other = nic(class_code="0x120000")
    before = learned(nics(other, rdma=(rdma(other, "hbl_0"),)))
    assert only(nics(other), before).name == "rdma-0000-86-00-0"
    assert seen(nics(replace(other, driver=None)), before) == {}


def test_one_of_two_ports_may_be_in_a_pod() -> None:
    one = nic()
    first, second = interface(one, "eth0"), interface(one, "eth1", dev_port=1)
    before = learned(nics(one, interfaces=(first, second)))
    found = seen(nics(one, interfaces=(second,)), before)
    assert list(found) == ["nic-0000-86-00-0", "nic-0000-86-00-0-p1"]
    assert found["nic-0000-86-00-0"].attribute("inPod") is True
    assert found["nic-0000-86-00-0-p1"].attribute("inPod") is None
    assert [device.text("ifName") for device in found.values()] == ["eth0", "eth1"]


def test_virtual_functions_name_a_physical_function_that_is_in_a_pod() -> None:
    found = seen(nics(ONE, vf(0)), learned(nics(ONE, vf(0), interfaces=(LINK,))))
    assert found["nic-0000-86-00-2"].text("pfName") == "ens1np0"


def test_subfunction_is_remembered_by_itself() -> None:
    sub = subfunction(ONE)
    before = learned(nics(ONE, subfunctions=(sub,), interfaces=(LINK, interface(sub, "ens1s88"))))
    found = seen(nics(ONE, subfunctions=(sub,), interfaces=(LINK,)), before)["nic-0000-86-00-0-sf88"]
    assert (found.text("ifName"), found.attribute("inPod")) == ("ens1s88", True)
    assert [nic.auxiliary for nic in learned(nics(ONE), before).nics] == [""]


@pytest.mark.parametrize("driver", [None, "vfio-pci", "mlx4_core", "pci-stub"])
def test_other_driver_or_none_ends_the_memory(driver: str | None) -> None:
    changed = nics(replace(ONE, driver=driver))
    assert "inPod" not in attributes(only(changed, learned(HERE)))
    assert learned(changed, learned(HERE)).nics == ()


def test_function_that_left_the_bus_is_forgotten() -> None:
    assert learned(nics(), learned(HERE)).nics == ()


def test_function_that_could_not_be_read_is_not_forgotten() -> None:
    before = learned(HERE)
    assert learned(nics(errors=("/sys/bus/pci/devices: Input/output error",)), before) == before
    assert learned(NodeFacts(), before) == before


def test_interface_that_moved_to_another_port_number_is_not_in_a_pod_too() -> None:
    moved = nics(ONE, interfaces=(replace(LINK, dev_port=1),))
    assert "inPod" not in attributes(only(moved, learned(HERE)))


def stored(path: Path, identities: Identities, boot: str = "") -> Identities:
    store = IdentityStore(path, boot)
    store.load()
    store.save(identities)
    return IdentityStore(path, boot).load()


def test_memory_survives_a_restart_of_the_agent(tmp_path: Path) -> None:
    sub = subfunction(ONE)
    facts = nics(ONE, subfunctions=(sub,), interfaces=(LINK, interface(sub, "ens1s88")), rdma=(rdma(ONE, "mlx5_0"),))
    recalled = stored(tmp_path / "identities.json", learned(facts), "boot-1")
    assert recalled == learned(facts)
    assert seen(GONE, recalled)["nic-0000-86-00-0"].attribute("inPod") is True


def test_memory_of_another_boot_is_not_recalled(tmp_path: Path) -> None:
    path = tmp_path / "identities.json"
    identities = replace(learned(HERE), pairs=(("0000:1b:00.0", "GPU-1"),))
    stored(path, identities, "boot-1")
    later = IdentityStore(path, "boot-2")
    assert later.load() == replace(identities, nics=())
    later.save(identities)
    assert IdentityStore(path, "boot-2").load() == identities


def test_boot_is_the_kernels_and_may_be_unknown(tmp_path: Path) -> None:
    assert boot_id(tmp_path) == ""
    folder = tmp_path / "sys/kernel/random"
    folder.mkdir(parents=True)
    (folder / "boot_id").write_text("f1c2\n")
    assert boot_id(tmp_path) == "f1c2"


@pytest.mark.parametrize(
    "changes",
    [{"carrier": False}, {"operstate": "down"}, {"speed_mbps": None}, {"speed_mbps": 100}, {"ifindex": 77}],
)
def test_state_of_the_link_is_no_reason_to_write(tmp_path: Path, changes: dict[str, object]) -> None:
    path = tmp_path / "identities.json"
    store = IdentityStore(path)
    store.save(learned(HERE, store.load()))
    written = path.stat().st_ino
    down = port(state="1: DOWN", physical_state="3: Disabled", rate="10 Gb/sec (4X SDR)")
    flapped = nics(
        ONE,
        interfaces=(replace(LINK, **changes),),  # type: ignore[arg-type]
        rdma=(rdma(ONE, "mlx5_0", down),),
        network=HERE.network,
    )
    store.save(learned(flapped, store.load()))
    assert path.stat().st_ino == written
    store.save(learned(nics(ONE, interfaces=(replace(LINK, mtu=1500),)), store.load()))
    assert path.stat().st_ino != written


def test_last_known_speed_is_kept_in_memory(tmp_path: Path) -> None:
    store = IdentityStore(tmp_path / "identities.json")
    store.save(learned(HERE, store.load()))
    store.save(learned(nics(ONE, interfaces=(replace(LINK, speed_mbps=100),)), store.load()))
    assert attributes(only(GONE, store.load()))["linkSpeedMbps"] == 100


def test_unchanged_memory_is_the_same_object() -> None:
    before = learned(HERE)
    assert learned(HERE, before).nics[0] is before.nics[0]


@pytest.mark.parametrize(
    "entry",
    [
        7,
        {},
        {"address": "0000:86:00.0"},
        {"address": 7, "driver": "mlx5_core"},
        {"address": "0000:86:00.0", "driver": "mlx5_core", "interfaces": {}},
        {"address": "0000:86:00.0", "driver": "mlx5_core", "interfaces": [{"name": "eth0", "path": "x", "mtu": True}]},
    ],
)
def test_entry_of_another_form_is_left_out(tmp_path: Path, entry: JsonValue) -> None:
    path = tmp_path / "identities.json"
    good: JsonValue = {"address": "0000:87:00.0", "driver": "ice", "of_a_later_version": [1]}
    write_record(path, SCHEMA, {"gpus": {}, "nics": [entry, good]})
    assert [nic.address for nic in IdentityStore(path).load().nics] == ["0000:87:00.0"]


def test_record_holds_the_facts_and_not_their_defaults(tmp_path: Path) -> None:
    path = tmp_path / "identities.json"
    stored(path, learned(nics(ONE, interfaces=(LINK,))), "boot-1")
    record = read_record(path, SCHEMA)
    assert isinstance(record, dict)
    assert record["nics"] == [
        {
            "address": "0000:86:00.0",
            "driver": "mlx5_core",
            "interfaces": [
                {
                    "name": "ens1np0",
                    "path": f"{ONE.path}/net/ens1np0",
                    "link_type": 1,
                    "address": "94:6d:ae:00:00:01",
                    "mtu": 9000,
                    "speed_mbps": 400000,
                    "dev_port": 0,
                }
            ],
        }
    ]
    assert record["boot"] == "boot-1"


def test_full_disk_is_told_once_and_memory_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where the state folder should be")
    store = IdentityStore(blocked / "identities.json")
    with caplog.at_level(logging.WARNING):
        store.save(learned(HERE))
        store.save(learned(HERE))
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1
    assert attributes(only(GONE, store.load()))["inPod"] is True


def test_network_without_one_interface_gives_a_hint() -> None:
    status = network_status(nics(nic(0), nic(1), nic(0, "87", class_code="0x020700")), Identities())
    assert status is not None
    assert (status.state.value, status.detail) == (
        "waiting",
        (
            "no network interface of 2 NICs is visible: the agent is probably not in the host's network namespace "
            "(hostNetwork: true)"
        ),
    )


@pytest.mark.parametrize(
    ("facts", "remembered"),
    [
        (HERE, Identities()),
        (GONE, learned(HERE)),
        (nics(nic(driver="vfio-pci"), nic(1, driver=None)), Identities()),
        (nics(), Identities()),
        (NodeFacts(), Identities()),
    ],
)
def test_hint_is_for_nodes_that_show_nothing_only(facts: NodeFacts, remembered: Identities) -> None:
    assert network_status(replace(facts, network=None), remembered) is None


def test_errors_of_the_network_source_are_its_status() -> None:
    status = network_status(NodeFacts(network=NetworkFacts(errors=("no socket", "other"))), Identities())
    assert status is not None
    assert (status.state.value, status.detail) == ("failed", "no socket (and 1 more)")
    fine = network_status(NodeFacts(network=NetworkFacts()), Identities())
    assert fine is not None
    assert fine.state.value == "ok"


class _Scripted:
    """A source that shows these facts."""

    name = "sysfs"

    def __init__(self, facts: NodeFacts) -> None:
        self.facts = facts

    def read(self) -> NodeFacts:
        return self.facts

    def close(self) -> None:
        return


def test_nic_that_is_in_a_pod_at_the_agents_restart_is_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "identities.json"
    source = _Scripted(HERE)
    Scanner((source,), IdentityStore(path, "boot-1"), SystemClocks(clock=lambda: 0.0)).scan(Snapshot())
    source.facts = GONE
    (device,) = (
        Scanner((source,), IdentityStore(path, "boot-1"), SystemClocks(clock=lambda: 0.0)).scan(Snapshot()).devices
    )
    assert device.health.usable
    assert (device.text("ifName"), device.attribute("inPod")) == ("ens1np0", True)
