"""Rules for the spec of a DeviceTaintRule (KEP-5055)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scheduling.api.validation.cause import Cause
from scheduling.api.validation.names import driver, label, pool
from scheduling.api.validation.taints import taint, taint_label

Spec = Mapping[str, Any]


def taint_rule_spec(spec: Spec, old: Spec | None) -> Iterator[Cause]:
    """Which devices, and the taint. An effect that stays as in `old` is not judged again."""
    chosen = spec.get("deviceSelector", {})
    for field, rule in (("driver", driver), ("pool", pool), ("device", label)):
        if field in chosen:
            yield from rule(chosen[field], f"spec.deviceSelector.{field}")
    entry = spec.get("taint", {})
    same_effect = old is not None and old.get("taint", {}).get("effect", "") == entry.get("effect", "")
    yield from (taint_label if same_effect else taint)(entry, "spec.taint")
