"""The sample files beside these tests, and their content as plain values for a judge that knows JSON Schema only."""

from __future__ import annotations

from pathlib import Path

from ostler.config.document import Mapping, Meaning, Node, RefusedNode, ScalarNode, Sequence, parse_document
from ostler.config.scalars import Json

FOLDER = Path(__file__).parent
BAD = sorted((FOLDER / "bad").iterdir())
GOOD = sorted((FOLDER / "good").iterdir())
GOOD_NVIDIA = sorted((FOLDER / "good-nvidia").iterdir())
GOOD_SRIOV = sorted((FOLDER / "good-sriov").iterdir())


def remarks(path: Path, word: str) -> list[str]:
    """What the leading comment lines ``# word: ...`` of a sample say."""
    lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    return [line.removeprefix(f"# {word}: ") for line in lines if line.startswith(f"# {word}: ")]


def instance(path: Path) -> Json:
    """The file's content as JSON values."""
    tree, errors = parse_document(path.name, path.read_bytes())
    assert tree is not None, errors
    return plain(tree)


def plain(node: Node) -> Json:
    match node:
        case Mapping():
            return {entry.key: plain(entry.value) for entry in node.entries}
        case Sequence():
            return [plain(item) for item in node.items]
        case ScalarNode():
            return _value(node)
        case RefusedNode():
            raise AssertionError(node)


def _value(scalar: ScalarNode) -> Json:
    match scalar.meaning:
        case Meaning.NULL:
            return None
        case Meaning.BOOLEAN:
            return scalar.text.lower() == "true"
        case Meaning.NUMBER:
            return float(scalar.text) if "." in scalar.text else int(scalar.text, 0)
        case Meaning.TEXT:
            return scalar.text
