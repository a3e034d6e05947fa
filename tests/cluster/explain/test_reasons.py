"""The commonest reasons, made on a real cluster: the scheduler's words and ours are those of docs/explain.md.

The scheduler's are those of the newest version; older ones refuse the same pods in other words. ``OSTLER_RECORD=1``
writes both into the page instead, where they are allowed to have changed.
"""

from __future__ import annotations

import os

import pytest

from scheduling.explain.cluster import note_of
from tests.cluster.components.versions import newest
from tests.cluster.explain import page
from tests.cluster.explain.reasons import REASONS, ClusterReason
from tests.cluster.explain.stage import ExplainStage

RECORD = os.environ.get("OSTLER_RECORD") == "1"


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: str(reason.title))
def test_scheduler_refuses_and_we_say_why_as_the_page_shows(stage: ExplainStage, reason: ClusterReason) -> None:
    stage.lay(reason)
    newest_words = stage.cluster.version == newest()
    words = page.recorded(reason.title, page.SCHEDULER).rstrip("\n")
    said = stage.verdict(words if newest_words and not RECORD else "")
    assert said["status"] == "False"
    explained = stage.ostler("explain", "pod/train", "-n", "team")
    assert (explained.returncode, explained.stderr) == (1, ""), explained.stdout + explained.stderr
    scheduler, ours = said["message"] + "\n", page.COMMAND + explained.stdout
    if RECORD:
        page.record(reason.title, page.SCHEDULER, scheduler)
        page.record(reason.title, page.OSTLER, ours)
    assert page.recorded(reason.title, page.SCHEDULER) == scheduler or not newest_words
    assert page.recorded(reason.title, page.OSTLER) + noted(stage.cluster.version) == ours


def noted(version: str) -> str:
    """What follows our answer on a cluster whose version has other rules."""
    note = note_of(f"v{version}")
    return f"\nnote: {note}\n" if note else ""


def test_page_has_these_reasons_and_no_others() -> None:
    assert page.titles() == [reason.title for reason in REASONS]
