"""What was last known of the node's doors, on disk: an agent that starts without the API server goes on as before.

Kept are the texts themselves, so that a later version reads them by its own rules, and the server's last answer about
taints, so that a restart does not withdraw what is at both doors until the server is asked again.
"""

from __future__ import annotations

from pathlib import Path

from node.door_policy.choice import NodeWords
from node.door_policy.taint_support import Taints, TaintSupport
from node.files import FileError, JsonValue, RecordDamaged, read_record, set_aside, write_record
from node.values import Value, value

NAME = "node-doors.json"
SCHEMA = "node-doors/v1"


@value
class KnownDoors(Value):
    """What the node says, and what the server keeps."""

    words: NodeWords = NodeWords()
    support: TaintSupport = TaintSupport()


def load(state_dir: Path) -> tuple[KnownDoors, str]:
    """What was remembered, and in words what is wrong with the file, empty for nothing. Never raises FileError.

    Without a usable file nothing is known, which is what a new node begins with.
    """
    path = state_dir / NAME
    try:
        data = read_record(path, SCHEMA)
        if data is None:
            return KnownDoors(), ""
        try:
            return _read(data), ""
        except ValueError as error:
            raise RecordDamaged(path, str(error), set_aside(path)) from error
    except FileError as error:
        return KnownDoors(), str(error)


def save(state_dir: Path, known: KnownDoors) -> None:
    """Have it on the disk; blocking, raises WriteFailed."""
    data: JsonValue = {
        "label": known.words.label,
        "annotation": known.words.annotation,
        "taints": known.support.taints.value,
        "taintsText": known.support.text,
        "server": known.support.server,
    }
    write_record(state_dir / NAME, SCHEMA, data)


def _read(data: JsonValue) -> KnownDoors:
    """Raises ValueError."""
    if not isinstance(data, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - one exception type for every kind of damage
    taints, text, server = (_text(data, key) or "" for key in ("taints", "taintsText", "server"))
    if taints not in {each.value for each in Taints}:
        raise ValueError(f"taints is {taints!r}, not one of {', '.join(Taints)}")
    support = TaintSupport(Taints(taints), text, server)
    return KnownDoors(NodeWords(_text(data, "label"), _text(data, "annotation")), support)


def _text(data: dict[str, JsonValue], key: str) -> str | None:
    found = data.get(key)
    if found is None or isinstance(found, str):
        return found
    raise ValueError(f"{key} is no text")
