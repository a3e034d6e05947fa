"""The topology file that a configuration names: its places arrive, and what is wrong with it stops nothing."""

from __future__ import annotations

from pathlib import Path

from node.topology.model import PlaceOverride
from ostler.config.errors import NoteKind
from ostler.config.load import Loaded, load, load_bytes
from ostler.config.topology import load_overrides

GOOD = """
apiVersion: ostler.dev/v1alpha1
kind: Topology
hostBridges:
- {numaNode: 1, devices: ["0000:00:0a.0"]}
"""


def named(path: Path) -> Loaded:
    body = f"apiVersion: ostler.dev/v1alpha1\nkind: Config\ntopology: {{file: {path}}}\n"
    return load_bytes("config.yaml", body.encode(), {}, {})


def test_without_a_file_there_are_no_overrides() -> None:
    settings = load(None, {}, {}).settings
    assert (settings.topology_file, settings.topology_overrides) == (None, ())


def test_places_of_the_file_arrive(short_dir: Path) -> None:
    path = short_dir / "topology.yaml"
    path.write_text(GOOD)
    settings = named(path).settings
    assert settings.topology_file == path
    assert settings.topology_overrides == load_overrides(path)
    assert settings.topology_overrides[0] == PlaceOverride("0000:00:0a.0", ("host-bridge-0",), 1)


def test_the_flag_names_the_file_as_well(short_dir: Path) -> None:
    path = short_dir / "topology.yaml"
    path.write_text(GOOD)
    assert load(None, {"--topology-file": str(path)}, {}).settings.topology_overrides


def test_a_broken_file_is_left_out_with_a_note_for_each_problem(short_dir: Path) -> None:
    path = short_dir / "topology.yaml"
    path.write_text(GOOD + '- {devices: ["0000:00:0a"], colour: red}\n')
    loaded = named(path)
    assert loaded.settings.topology_file == path
    assert loaded.settings.topology_overrides == ()
    assert loaded.settings.rules
    assert {note.kind for note in loaded.notes} == {NoteKind.FAULT}
    address, key = (str(note).removeprefix(f"{path}:6: hostBridges[1].") for note in loaded.notes)
    assert address == (
        'devices[0]: is "0000:00:0a", not a PCI address; '
        "write it as domain:bus:device.function, such as 0000:3b:00.0 (the whole file is ignored)"
    )
    assert key == ("colour: is not a known key; allowed here: numaNode, devices, switches (the whole file is ignored)")


def test_a_missing_file_is_left_out_with_a_note(short_dir: Path) -> None:
    loaded = named(short_dir / "none.yaml")
    assert [str(note) for note in loaded.notes] == [
        f"{short_dir}/none.yaml: does not exist; correct the path (the whole file is ignored)"
    ]
