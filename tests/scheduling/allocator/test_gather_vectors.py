"""The gathering of pools against what Kubernetes gathered (tests/vectors/allocator-0.31, ``expect_1_36``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduling.allocator.pools import ResourcePool, gather_pools
from scheduling.allocator.reading import FatalError
from tests.making.recorded_cases import cases_in

VECTORS = Path(__file__).parents[2] / "vectors" / "allocator-0.31"


@pytest.mark.parametrize("theme", ["gatherpools-hand", "gatherpools-random"])
def test_pools_are_gathered_as_kubernetes_gathers_them(theme: str) -> None:
    cases = cases_in(VECTORS / f"{theme}.jsonl")
    assert cases
    differing = [
        f"{case['name']}: {answer}, not {case['expect_1_36']}"
        for case in cases
        if (answer := gathered(case)) != expected(case)
    ]
    assert not differing, "\n".join([f"{len(differing)} of {len(cases)} differ", *differing])


def gathered(case: dict[str, Any]) -> dict[str, Any]:
    """Our answer in the vectors' form."""
    try:
        return {"pools": [written(pool) for pool in gather_pools(case["node"], case["slices_v1"])]}
    except FatalError:
        return {"error": True}


def expected(case: dict[str, Any]) -> dict[str, Any]:
    """Kubernetes' answer, without its texts."""
    answer = case["expect_1_36"]
    if "error" in answer:
        return {"error": True}
    return {"pools": [{key: pool[key] for key in pool if key != "invalidReason"} for pool in answer["pools"]]}


def written(pool: ResourcePool) -> dict[str, Any]:
    """A pool in the vectors' form."""
    return {
        "complete": not pool.is_incomplete,
        "devices": [device.name for device in pool.devices],
        "driver": pool.id.driver,
        "generation": pool.slices[0].generation if pool.slices else None,
        "id": str(pool.id),
        "invalid": pool.is_invalid,
        "otherSlices": [each.name for each in pool.elsewhere],
        "pool": pool.id.pool,
        "slices": [each.name for each in pool.slices],
    }
