"""Small clusters as files, and the command asked about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ostler.cli.main import main
from tests.making.clusters import Object, write

ANSWERS = Path(__file__).with_name("answers")
"""What is printed for a case, as people see it: one file each, the exit code in its last line."""

SLICE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-gpu}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes:
      model: {string: a100}
    capacity:
      memory: {value: 80Gi}
"""


class CaseAnswers:
    """Asks the command about objects in a file."""

    def __init__(self, folder: Path, capsys: Any) -> None:
        self._folder = folder
        self._capsys = capsys
        self.code = -1
        self.err = ""

    def check(self, case: str, *objects: Object, **more: Any) -> None:
        """What is printed is what the case's file has."""
        printed = self(*objects, **more).replace(str(self._folder), "FOLDER")
        assert f"{printed}exit code {self.code}\n" == (ANSWERS / f"{case}.txt").read_text()

    def __call__(self, *objects: Object, ask: str = "claim/train", words: Sequence[str] = ()) -> str:
        """What is printed; the exit code and standard error are kept."""
        path = write(self._folder, *objects)
        self.code = main(["explain", ask, "-n", "team", "--from", path, *words])
        printed = self._capsys.readouterr()
        self.err = str(printed.err)
        return str(printed.out)
