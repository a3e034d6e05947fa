"""Rules for the spec of a class (KEP-4381, extended resources KEP-5004)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.labels import label_key_faults
from scheduling.api.validation.bounds import listed
from scheduling.api.validation.cause import Cause, invalid
from scheduling.api.validation.configs import configuration
from scheduling.api.validation.decoding import same
from scheduling.api.validation.gates import Gates
from scheduling.api.validation.selectors import selectors
from scheduling.api.validation.shapes import CLASS_CONFIG, SELECTORS

_CONFIGS: Final = 32
_QUOTA_PREFIX: Final = "requests."
"""Before the name of an extended resource in a ResourceQuota; the whole must be a label key, too."""

Spec = Mapping[str, Any]


def class_spec(spec: Spec, old: Spec | None, gates: Gates) -> Iterator[Cause]:
    """The spec of a class. Selectors and configuration that stay as in `old` are judged as stored ones."""
    chosen, configs = spec.get("selectors", []), spec.get("config", [])
    stored = old is not None and same(chosen, old.get("selectors", []), SELECTORS)
    yield from selectors(chosen, "spec.selectors", gates, stored=stored)
    kept = old is not None and same(configs, old.get("config", []), CLASS_CONFIG)

    def config(entry: Mapping[str, Any], path: str) -> Iterator[Cause]:
        yield from configuration(entry, path, stored=kept)

    yield from listed(configs, _CONFIGS, "spec.config", config)
    if "extendedResourceName" in spec:
        yield from _extended_resource(spec["extendedResourceName"], "spec.extendedResourceName")


def _extended_resource(name: str, path: str) -> Iterator[Cause]:
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        yield invalid(path, name, "must be '<domain>/<name>' outside kubernetes.io")
    elif faults := label_key_faults(_QUOTA_PREFIX + name):
        yield invalid(path, name, faults[0])
