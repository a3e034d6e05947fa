"""A claim whose selector names a cell is allocated inside that cell, as docs/recorded-devices.md says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from ostler.cli.main import main
from ostler.explain.recorded import recorded_node
from tests.docs.markdown import blocks
from tests.making.cells import Body, written


@pytest.mark.parametrize(("count", "fits"), [(2, True), (4, True), (5, False)])
def test_a_claim_is_allocated_inside_the_cell_that_it_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int, fits: bool
) -> None:
    node = recorded_node("h100-sxm-8")
    cluster = written(tmp_path, *(dict(each) for each in (node.node, *node.slices, *node.classes)))
    (block,) = [each for each in blocks("docs/recorded-devices.md") if each.language == "yaml"]
    claim: Body = yaml.safe_load(block.text)
    claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = count
    (manifest := tmp_path / "claim.json").write_text(json.dumps(claim))
    assert main(["explain", "-f", str(manifest), "--from", cluster]) == (0 if fits else 1)
    printed = capsys.readouterr().out
    slices: list[Body] = json.loads(json.dumps(node.slices))
    devices = [device for body in slices for device in body["spec"].get("devices", ())]
    cells = {each["name"]: each["attributes"].get("cell4", {}).get("string") for each in devices}
    given = set(re.findall(r"gpu-0000-[0-9a-f]{2}-00-0", printed)) if fits else set()
    assert {cells[name] for name in given} == ({"socket-0"} if fits else set())
    assert len(given) == (count if fits else 0)
