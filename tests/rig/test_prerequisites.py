"""A machine that cannot run a cluster is told all that is missing, at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cluster.rig import prerequisites
from tests.cluster.rig.prerequisites import Missing, check


def test_everything_that_is_missing_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prerequisites, "SYSTEM_FOLDERS", "")
    monkeypatch.setattr(prerequisites, "FILES", {str(tmp_path / "ptp"): "containernetworking-plugins"})
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Missing) as refused:
        check()
    assert str(refused.value).splitlines() == [
        "a cluster cannot be started here; missing are",
        "  root: namespaces, addresses and mounts are made; run it as root",
        "  Debian packages: apt-get install containernetworking-plugins iproute2 openssl runc util-linux",
    ]
