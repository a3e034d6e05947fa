"""Changes that name only what is different: JSON merge patches and JSON patches.

A strategic merge patch is carried out as a merge patch, except that lists of conditions are merged by type: nobody here
sends the rest of it. Server-side apply is refused rather than guessed at.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

from sandbox.apiserver.kinds import Object
from sandbox.apiserver.refusals import StatusError, bad_request

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
KNOWN: Final = (JSON_PATCH, MERGE, STRATEGIC)


def patched(resource: Object, patch: object, content_type: str = MERGE) -> Object:
    """Return the object with the patch applied; the input stays. Raises StatusError (400, 415, 422)."""
    if content_type == JSON_PATCH:
        return _operated(resource, patch)
    if content_type not in (MERGE, STRATEGIC):
        raise StatusError(415, f"415: Unsupported Media Type: use one of {', '.join(KNOWN)}", details={})
    if not isinstance(patch, dict):
        raise bad_request("a patch must be a JSON object")
    merged = _merged(resource, patch, by_type=content_type == STRATEGIC)
    return merged if isinstance(merged, dict) else {}


def _merged(value: Any, patch: Any, *, by_type: bool, field: str = "") -> Any:
    """RFC 7386: null removes."""
    if by_type and field == "conditions" and isinstance(patch, list) and isinstance(value, list):
        conditions = {str(each.get("type")): each for each in value}
        for each in patch:
            if not isinstance(each, dict):
                raise bad_request(f"a condition must be a mapping, is {each!r}")
            conditions[str(each.get("type"))] = {**conditions.get(str(each.get("type")), {}), **each}
        return list(conditions.values())
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, change in patch.items():
        if change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), change, by_type=by_type, field=key)
    return merged


def _operated(resource: Object, patch: object) -> Object:
    """RFC 6902, without move and copy."""
    if not isinstance(patch, list):
        raise bad_request("a JSON patch must be a list of operations")
    changed = deepcopy(dict(resource))
    for operation in patch:
        try:
            _operate(changed, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            text = f"the server rejected our request due to an error in our request: {operation!r} does not apply"
            raise StatusError(422, text, details={}) from error
    return changed


def _operate(root: Any, operation: Any) -> None:
    *path, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    holder = root
    for part in path:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    name = operation["op"]
    is_list = isinstance(holder, list)
    key = len(holder) if is_list and last == "-" else int(last) if is_list else last
    if name == "test":
        if holder[key] != operation["value"]:
            raise ValueError(f"{operation['path']} is {holder[key]!r}")
    elif name == "add" and is_list:
        if not isinstance(key, int) or key > len(holder):
            raise IndexError(operation["path"])
        holder.insert(key, operation.get("value"))
    elif name == "add":
        holder[key] = operation.get("value")
    elif name == "replace":
        _ = holder[key]
        holder[key] = operation.get("value")
    elif name == "remove":
        del holder[key]
    else:
        raise ValueError(f"operation {name!r} is none of add, replace, remove, test")
