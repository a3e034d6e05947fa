from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sandbox.apiserver.server import ApiServer

PAGE = Path(__file__).parents[3] / "docs" / "slices.md"


def test_the_example_of_the_page_runs(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    server.store.create("nodes", {"metadata": {"name": "node-1"}})
    server.kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(found[1], names)
    assert names["controller"].wait_idle(120.0)
    names["controller"].stop()
    slices = server.store.list("resourceslices")
    assert [len(each["spec"]["devices"]) for each in slices] == [64, 64, 64, 8]
