"""Values of attributes, as a person would write them."""

from __future__ import annotations

import json

from scheduling.allocator.constraints import as_values, lookup
from scheduling.allocator.reading import Object
from scheduling.allocator.slices import Device


def written(attribute: Object) -> str | None:
    """A value as text: strings in quotes, versions bare, lists in brackets; None without a value."""
    values = as_values(attribute)
    if values is None:
        return None
    bare = values.type == "version"
    texts = sorted(str(each) if bare else json.dumps(each, ensure_ascii=False) for each in values.values)
    is_list = any(attribute.get(kind) for kind in ("ints", "bools", "strings", "versions"))
    return f"[{', '.join(texts)}]" if is_list else texts[0]


def value_of(device: Device, name: str) -> str | None:
    """The value of the attribute with that full name, None where the device has none."""
    attribute = lookup(device, name)
    return None if attribute is None else written(attribute)
