"""``ostler topology``: forms, sources and messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import grpc
import pytest

from node.inventory.devices import devices_of
from node.inventory.identity import Identities
from node.inventory.model import Device, Snapshot
from node.inventory.places import places_of
from node.inventory.recordings.source import read
from node.offer import Offer
from node.topology.cells import topology_of
from node.topology.model import Topology
from ostler.admin.messages import devices_message, topology_from, topology_message
from ostler.cli.main import main
from protos.agent.v1alpha1 import agent_pb2, agent_pb2_grpc
from sandbox.nodes import names, path
from tests.ostler.drawing.scenes import recorded

RECORDED = ["--scan", "--recorded", str(path("h100-sxm-8"))]


def test_the_matrix_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", *RECORDED]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[1].split()[:4] == ["GPU0", "X", "NV18", "NV18"]
    assert "NICs:" in text


def test_every_form_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", *RECORDED, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["node"], document["cells"]["level"]) == ("h100-sxm-8", "node")
    assert main(["topology", *RECORDED, "-o", "tree"]) == 0
    assert capsys.readouterr().out.startswith("h100-sxm-8\n├─ NUMA node 0\n")
    assert main(["topology", *RECORDED, "-o", "svg"]) == 0
    assert ET.fromstring(capsys.readouterr().out).tag == "{http://www.w3.org/2000/svg}svg"


def test_without_an_agent_it_scans_and_says_so(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--socket", str(short_dir / "none.sock"), "--recorded", str(path("l4-2")), "--node-name", "worker-1"]
    assert main(["topology", "-o", "tree", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err.endswith("scanned by this command instead:\n")
    assert printed.out.startswith("worker-1\n")


def test_an_unknown_form_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["topology", "-o", "png"])
    assert ended.value.code == 2
    assert "invalid choice: 'png' (choose from" in capsys.readouterr().err


def test_a_node_without_devices_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("sys", "proc", "root"):
        (tmp_path / name).mkdir()
    roots = ["--sys-root", str(tmp_path / "sys"), "--proc-root", str(tmp_path / "proc")]
    assert main(["topology", "--scan", *roots, "--nvidia-driver-root", str(tmp_path / "root")]) == 0
    assert capsys.readouterr().out == "no GPUs and no NICs\n"


@pytest.mark.parametrize("name", names())
def test_a_topology_survives_its_message(name: str) -> None:
    topology = recorded(name).topology
    assert topology_from(topology_message(Snapshot(7, topology=topology))) == topology


def test_an_empty_topology_survives_its_message() -> None:
    message = topology_message(Snapshot(7))
    assert message.generation == 7
    assert topology_from(message) == Topology()


OVERRIDE = path("vm-flat-8").with_suffix(".topology.xml")


def test_an_override_file_places_devices(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scan", "-o", "json", "--recorded", str(path("vm-flat-8"))]
    assert main(["topology", *arguments, "--topology-file", str(OVERRIDE)]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["overridden"]) == 16
    assert printed.err == ""
    arguments[2] = "tree"
    assert main(["topology", *arguments, "--topology-file", str(OVERRIDE)]) == 0
    assert "\nPlaced by the override file: 0001:00:00.0, 0002:00:00.0," in capsys.readouterr().out


def test_devices_of_the_override_file_that_are_not_here_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.yaml"
    file.write_text('apiVersion: ostler.dev/v1alpha1\nkind: Topology\nhostBridges: [{devices: ["0000:99:00.0"]}]\n')
    assert main(["topology", *RECORDED, "--topology-file", str(file)]) == 0
    assert capsys.readouterr().err == f"{file} places devices that this node lacks: 0000:99:00.0\n"


def test_a_broken_override_file_is_told_and_everything_else_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "t.xml"
    file.write_text("<system>\n</cpu>")
    assert main(["topology", *RECORDED, "--topology-file", str(file)]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith(f"{file}:2: not valid XML: mismatched tag; correct it")
    assert len(printed.err.splitlines()) == 1
    assert "GPU7" in printed.out


class _Agent(agent_pb2_grpc.AgentServicer):
    """A running agent, as far as the command asks."""

    def __init__(self, devices: tuple[Device, ...], node_name: str) -> None:
        self._snapshot = Snapshot(3, devices, topology=topology_of(places_of(devices)))
        self._node_name = node_name

    def GetStatus(self, request: object, context: object) -> agent_pb2.GetStatusResponse:
        return agent_pb2.GetStatusResponse(node_name=self._node_name)

    def GetTopology(self, request: object, context: object) -> agent_pb2.GetTopologyResponse:
        return topology_message(self._snapshot)

    def ListDevices(self, request: object, context: object) -> agent_pb2.ListDevicesResponse:
        return devices_message(self._snapshot, Offer())


@pytest.fixture
def agent_socket(short_dir: Path) -> Iterator[Path]:
    """The socket of a running agent on a recorded node."""
    server = grpc.server(ThreadPoolExecutor(2))
    devices = devices_of(read(path("dgx1-v100-8")).facts, Identities())
    agent_pb2_grpc.add_AgentServicer_to_server(_Agent(devices, "worker-7"), server)
    socket = short_dir / "agent.sock"
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    yield socket
    server.stop(None).wait()


def test_a_running_agent_is_asked(agent_socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "-o", "tree", "--socket", str(agent_socket)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("worker-7\n├─ NUMA node 0\n")
    assert "NIC0  0000:05:00.0  mlx5_0 ib0            up 100G" in printed.out
    assert "pair-0: GPU0, GPU3" in printed.out
    assert printed.err == ""


class NewerAgent(_Agent):
    """An agent of another version, with cells that this one does not know."""

    def GetTopology(self, request: object, context: object) -> agent_pb2.GetTopologyResponse:
        return agent_pb2.GetTopologyResponse(root=agent_pb2.Cell(name="rack-0", level="rack"))


def test_an_agent_of_another_version_is_not_misread(short_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = grpc.server(ThreadPoolExecutor(2))
    agent_pb2_grpc.add_AgentServicer_to_server(NewerAgent((), "worker-7"), server)
    server.add_insecure_port(f"unix:{short_dir}/agent.sock")
    server.start()
    try:
        assert main(["topology", "--socket", str(short_dir / "agent.sock")]) == 1
    finally:
        server.stop(None).wait()
    assert capsys.readouterr().err == (
        "ostler: the agent's topology is not understood ('rack' is not a valid CellLevel); "
        "use the command of the agent's own version, or --scan\n"
    )


def test_a_scan_can_be_asked_for_beside_a_running_agent(agent_socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["topology", "-o", "tree", "--socket", str(agent_socket), "--scan", "--recorded", str(path("l4-2"))]) == 0
    )
    assert capsys.readouterr().out.startswith("l4-2\n")
