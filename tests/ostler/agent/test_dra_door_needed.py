"""Whether a node needs the DRA door: by its rules, and by what was given to claims before."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.claims import sharing
from driver.publishing import shown
from node.mps.modes import RECORD
from ostler.agent.doors import claims_left, claims_to_serve, needs_mps
from ostler.config.settings import InventorySettings, KubeletSettings, Settings


def settings(folder: Path) -> Settings:
    """Of a node without a rule for claims."""
    registry = folder / "kubelet/plugins_registry"
    registry.mkdir(parents=True)
    kubelet = KubeletSettings(folder / "kubelet/device-plugins", registry)
    return Settings(kubelet=kubelet, inventory=InventorySettings(recorded=folder / "x"), state_dir=folder / "state")


@pytest.mark.parametrize(
    ("path", "content", "left"),
    [
        ("kubelet/dra_manager_state", '{"DriverState":"ostler.dev"}', True),
        ("kubelet/dra_manager_state", '{"DriverState":"other.dev"}', False),
        ("state/claims/uid-1.json", "{}", True),
    ],
)
def test_claims_that_have_devices_are_served_whatever_the_rules_say(
    tmp_path: Path, path: str, content: str, *, left: bool
) -> None:
    made = settings(tmp_path)
    assert (claims_left(made), claims_to_serve(made)) == (False, False)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(content)
    assert (claims_left(made), claims_to_serve(made)) == (left, left)


def test_what_cannot_be_read_may_tell_of_claims(tmp_path: Path) -> None:
    made = settings(tmp_path)
    (tmp_path / "kubelet/dra_manager_state").mkdir()
    assert claims_left(made)
    assert claims_to_serve(made)


@pytest.mark.parametrize("name", [shown.NAME, sharing.FILE, sharing.CLAIMS_RECORD])
def test_a_withdrawal_or_a_change_of_gpus_that_was_not_finished_is_gone_on_with(tmp_path: Path, name: str) -> None:
    made = settings(tmp_path)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).write_text("{}")
    assert (claims_left(made), claims_to_serve(made)) == (False, True)


def test_what_mps_left_is_found_whatever_the_rules_say(tmp_path: Path) -> None:
    made = settings(tmp_path)
    assert not needs_mps(made)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / RECORD).write_text("{}")
    assert (needs_mps(made), claims_to_serve(made)) == (True, False)
