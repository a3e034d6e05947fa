"""``ostler checkpoint``: what the kubelet's state files say, whether they are intact, and how two differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from ostler.checkpoint.state_file import (
    FILE_NAMES,
    StateFile,
    StateFileError,
    StateKind,
    examine,
    files_of,
    start_words,
)
from ostler.checkpoint.tables import Change, changes, field, tables, text
from ostler.cli.exits import CommandFailed, Exit, complain
from ostler.cli.output import add_format, emit, print_document, print_table
from ostler.drawing.text import plain

_FILES = ", ".join(FILE_NAMES.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description = (
        "Read state files of a kubelet, from a node or from copies of them: which pods have which devices, claims,\n"
        "CPUs and memory, whether a file is damaged and how, and what the kubelet's next start makes of it. Needs\n"
        f"neither an agent nor a kubelet, and changes nothing.\n\nThe files: {_FILES}."
    )
    actions = parser.add_subparsers(metavar="ACTION", dest="action", required=True)
    for name, summary in (
        ("show", "show what files say, and whether they are intact"),
        ("verify", "say whether files are intact, and what the next start makes of them"),
        ("diff", "show what changed between two files of one kind"),
    ):
        action = actions.add_parser(name, help=summary, formatter_class=parser.formatter_class)
        action.description = f"{summary[0].upper()}{summary[1:]}. Exits 1 if a file is damaged or cannot be read."
        if name == "diff":
            action.add_argument("files", nargs=2, type=Path, metavar="FILE", help="the earlier and the later file")
        else:
            action.add_argument(
                "files", nargs="+", type=Path, metavar="FILE", help="a state file, or the kubelet's root folder"
            )
        action.add_argument("--kind", type=StateKind, choices=list(StateKind), help="the manager that wrote the files")
        add_format(action)


def run(arguments: argparse.Namespace) -> int:
    """Print files, verdicts or differences."""
    if arguments.action == "diff":
        return _diff(arguments)
    files, failed = _examined(arguments.files, arguments.kind)
    show = arguments.action == "show"
    if arguments.output == "table":
        for number, file in enumerate(files):
            emit("\n" if show and number else "")
            _print(file, content=show)
    else:
        print_document({"files": [_document(file, content=show) for file in files]}, arguments.output)
    return Exit.FAILED if failed or _damaged(files) else Exit.OK


def _examined(named: Iterable[Path], kind: StateKind | None) -> tuple[list[StateFile], bool]:
    """The files that can be read, and whether one could not be; the others are examined anyway."""
    files, failed = [], False
    for name in named:
        try:
            paths = files_of(name)
        except StateFileError as error:
            complain(str(error))
            failed = True
            continue
        for path in paths:
            try:
                files.append(examine(path, kind))
            except StateFileError as error:
                complain(str(error))
                failed = True
    return files, failed


def _damaged(files: Iterable[StateFile]) -> bool:
    return any(file.damage is not None for file in files)


def _print(file: StateFile, *, content: bool) -> None:
    emit(f"{plain(file.summary)}\n")
    for start in file.starts:
        emit(f"  {plain(start_words(start))}\n")
    if file.fix:
        emit(f"  what to do: {plain(file.fix)}\n")
    if not content or file.content is None:
        return
    for table in tables(file.content):
        emit(f"\n{table.name.replace('_', ' ')}:" + ("\n" if table.rows else " none\n"))
        if table.rows:
            print_table(table.header, [tuple(map(text, row)) for row in table.rows])


def _document(file: StateFile, *, content: bool) -> dict[str, object]:
    document: dict[str, object] = {"path": str(file.path), "kind": str(file.kind), "damaged": file.damage is not None}
    if file.damage is not None:
        sums = {"expected": file.damage.expected, "found": file.damage.found} if file.damage.form == "checksum" else {}
        document["damage"] = {"form": file.damage.form, "text": file.damage.text, **sums}
        document["fix"] = file.fix
    document["next_start"] = [
        {"kubelets": list(each.kubelets), "start": str(each.start), "text": each.text, "error": each.error}
        for each in file.starts
    ]
    if content and file.content is not None:
        document["content"] = {table.name: table.documents() for table in tables(file.content)}
    return document


def _diff(arguments: argparse.Namespace) -> int:
    try:
        before, after = (examine(path, arguments.kind) for path in arguments.files)
    except StateFileError as error:
        raise CommandFailed(str(error)) from error
    if before.kind is not after.kind:
        raise CommandFailed(
            f"{before.path} is {before.kind} state and {after.path} is {after.kind} state: only files of one kind can "
            "be compared"
        )
    files = [before, after]
    for file in files:
        if file.content is None:
            assert file.damage is not None, "an intact file has content"
            raise CommandFailed(f"{file.path} says nothing that can be compared: {file.damage.text}")
        if file.damage is not None:
            complain(file.summary)
    assert before.content is not None
    assert after.content is not None
    found = changes(before.content, after.content)
    if arguments.output == "table":
        _print_changes(found)
    else:
        document = {
            "files": [_document(file, content=False) for file in files],
            "changes": [change.document() for change in found],
        }
        print_document(document, arguments.output)
    return Exit.FAILED if _damaged(files) else Exit.OK


def _print_changes(found: list[Change]) -> None:
    if not found:
        emit("nothing changed\n")
        return
    rows = [
        (
            change.change,
            change.table.name.replace("_", " "),
            " ".join(map(text, change.key)),
            field(change.column).replace("_", " "),
            text(change.before),
            text(change.after),
        )
        for change in found
    ]
    print_table(("CHANGE", "TABLE", "OF", "WHAT", "BEFORE", "AFTER"), rows)
