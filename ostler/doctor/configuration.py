"""Check of the configuration: usable, and all of it in effect."""

from __future__ import annotations

from ostler.config.load import Loaded
from ostler.config.notes import NoteKind
from ostler.doctor.check import Check, Subject
from ostler.doctor.node import NodeView
from ostler.doctor.verdict import Finding, failed, ok, several, warning


def judge(loaded: Loaded, problems: tuple[str, ...]) -> Finding:
    """What the configuration is like."""
    if problems:
        found = f"the configuration is not usable: {several(problems, 3)}"
        return failed(found, "correct it and try 'ostler config check FILE'; the other checks use the defaults")
    faults = [str(note) for note in loaded.notes if note.kind is NoteKind.FAULT]
    if faults:
        return warning(several(faults, 3), "correct the file named there, then run 'ostler reload'")
    if not loaded.settings.rules:
        return warning("no rule: nothing is offered", "add an entry to 'resources', or leave 'resources' out")
    names = list(dict.fromkeys(rule.resource for rule in loaded.settings.rules))
    ignored = sum(note.kind is NoteKind.IGNORED for note in loaded.notes)
    more = f"; {ignored} values without effect, see 'ostler config check'" if ignored else ""
    return ok(f"usable ({loaded.source_format}), offers {several(names)}{more}")


def _configuration(view: NodeView) -> Finding:
    return judge(view.loaded, view.problems)


SUBJECT = Subject(
    "configuration",
    (
        Check(
            "configuration",
            "The configuration file, flags and variables are usable, and all of them have effect",
            "Correct what `ostler config check FILE` names, then run `ostler reload`",
            _configuration,
        ),
    ),
)
