"""Every test's writer settles and tries again at once."""

from __future__ import annotations

import pytest

from driver.claims import claim_status


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_status, "SETTLING", 0.01)
    monkeypatch.setattr(claim_status, "FIRST_DELAY", 0.01)
    monkeypatch.setattr(claim_status, "LONGEST_DELAY", 0.02)
