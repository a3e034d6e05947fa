"""Builds the judge of slices, once per content of its sources."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.components.build import build_module
from tests.making.cache import cached, digest

SOURCES = Path(__file__).parent


def judge() -> Path:
    """The binary; two minutes on 2 cores when it must be built."""
    files = {
        file.name: file.read_bytes() for file in sorted(SOURCES.iterdir()) if file.suffix in {".go", ".mod", ".sum"}
    }

    def make(folder: Path) -> None:
        build_module(
            "the judge of slices", files, folder, ["build", "-ldflags", "-s -w", "-o", "bin/judge-slices", "."]
        )

    return cached(f"components/judge-slices-{digest(*files.values())}", make) / "bin" / "judge-slices"


if __name__ == "__main__":
    print(judge())
