"""Rules for an object's metadata, on creation and update (apimachinery's ObjectMeta).

What the API server sets itself (uid, creationTimestamp, resourceVersion, generation, managedFields) is not judged:
it overwrites what a client sends, or answers with a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduling.api.excerpts import shown
from scheduling.api.labels import beginning, label_faults, label_key_faults, size, subdomain_faults
from scheduling.api.validation.cause import StatusCause, each_invalid, forbidden, invalid, required, too_long
from scheduling.api.validation.parts import label_key, label_value

Metadata = Mapping[str, Any]

_ANNOTATIONS_BYTES: Final = 256 * 1024
_GENERATED_FROM_BYTES: Final = 58
"""Bytes of generateName that go into a name; five random characters follow."""
_ORPHAN: Final = "orphan"
_FOREGROUND: Final = "foregroundDeletion"
_FINALIZERS: Final = frozenset({_ORPHAN, _FOREGROUND, "kubernetes"})
_TEMPLATE_FIELDS: Final = ("labels", "annotations")


def created(metadata: Metadata, *, namespaced: bool, judge_prefix: bool = True) -> Iterator[StatusCause]:
    """Metadata of a new object. `judge_prefix`: generateName must by itself be the start of a name."""
    causes = [*_names(metadata, judge_prefix=judge_prefix), *_namespace(metadata, namespaced=namespaced)]
    causes += _common(metadata)
    if namespaced and metadata.get("generation", 0) < 0:
        causes.append(invalid("metadata.generation", metadata["generation"], "must not be negative"))
    yield from causes
    if not causes:
        yield from _path_segments(metadata)


def updated(
    metadata: Metadata, old: Metadata, *, namespaced: bool, judge_name: bool, judge_prefix: bool = True
) -> Iterator[StatusCause]:
    """Metadata of an object that replaces `old`. `judge_name`: ask the rules for names again, as some kinds do."""
    if judge_name:
        yield from _names(metadata, judge_prefix=judge_prefix)
    elif not metadata.get("name"):
        yield required("metadata.name")
    yield from _namespace(metadata, namespaced=namespaced)
    yield from _common(metadata)
    yield from _path_segments(metadata)
    yield from unchanged(metadata, old, namespaced=namespaced)
    added = sorted(set(metadata.get("finalizers", [])) - set(old.get("finalizers", [])))
    if added and "deletionTimestamp" in old:
        yield forbidden("metadata.finalizers", f"{shown(added)} cannot be added while the object is being deleted")


def unchanged(metadata: Metadata, old: Metadata, *, namespaced: bool) -> Iterator[StatusCause]:
    """Fields of metadata that no update may change; the server fills in those that are missing."""
    for field in ("name", "uid", *(("namespace",) if namespaced else ())):
        if metadata.get(field) and field in old and metadata[field] != old[field]:
            yield invalid(f"metadata.{field}", metadata[field], f"must stay {shown(old[field])}")
    if "deletionTimestamp" in metadata and "deletionTimestamp" not in old:
        yield invalid("metadata.deletionTimestamp", metadata["deletionTimestamp"], "is set by a deletion alone")
    period = metadata.get("deletionGracePeriodSeconds")
    if period is not None and period != old.get("deletionGracePeriodSeconds"):
        yield invalid("metadata.deletionGracePeriodSeconds", period, "is set by a deletion alone")


def template(metadata: Metadata, path: str) -> Iterator[StatusCause]:
    """Metadata in a template: nothing but labels and annotations."""
    yield from _annotations(metadata, f"{path}.annotations")
    yield from _labels(metadata, f"{path}.labels")
    for field, value in metadata.items():
        if field not in _TEMPLATE_FIELDS and (value or field.startswith("deletion")):
            yield forbidden(f"{path}.{field}", "cannot be set in a template; remove it")


def _names(metadata: Metadata, *, judge_prefix: bool) -> Iterator[StatusCause]:
    prefix, name = metadata.get("generateName", ""), metadata.get("name", "")
    if prefix and judge_prefix:
        yield from each_invalid("metadata.generateName", prefix, subdomain_faults(beginning(prefix)))
    if prefix and not name:
        name = prefix.encode()[:_GENERATED_FROM_BYTES].decode(errors="replace") + "xxxxx"
    if not name:
        yield required("metadata.name", "needs a name, or a generateName to make one from")
    else:
        yield from each_invalid("metadata.name", name, subdomain_faults(name))


def _namespace(metadata: Metadata, *, namespaced: bool) -> Iterator[StatusCause]:
    """A namespace of an object that has none is dropped by the server; a missing one is the request's."""
    namespace = metadata.get("namespace", "")
    if namespaced and namespace:
        yield from each_invalid("metadata.namespace", namespace, label_faults(namespace))


def _path_segments(metadata: Metadata) -> Iterator[StatusCause]:
    for field in ("name", "generateName"):
        text = metadata.get(field, "")
        if "/" in text or "%" in text or (field == "name" and text in (".", "..")):
            yield invalid(f"metadata.{field}", text, "must not contain '/' or '%', nor be '.' or '..'")


def _common(metadata: Metadata) -> Iterator[StatusCause]:
    yield from _labels(metadata, "metadata.labels")
    yield from _annotations(metadata, "metadata.annotations")
    yield from _owners(metadata.get("ownerReferences", []))
    yield from _finalizers(metadata.get("finalizers", []))


def _labels(metadata: Metadata, path: str) -> Iterator[StatusCause]:
    for key, value in metadata.get("labels", {}).items():
        yield from label_key(key, path)
        yield from label_value(value, path)


def _annotations(metadata: Metadata, path: str) -> Iterator[StatusCause]:
    annotations = metadata.get("annotations", {})
    for key in annotations:
        yield from each_invalid(path, key, label_key_faults(key.lower()))
    total = sum(size(key) + size(value) for key, value in annotations.items())
    if total > _ANNOTATIONS_BYTES:
        yield too_long(path, total, _ANNOTATIONS_BYTES)


def _owners(owners: list[Metadata]) -> Iterator[StatusCause]:
    path = "metadata.ownerReferences"
    for owner in owners:
        version, kind = owner.get("apiVersion", ""), owner.get("kind", "")
        if not _version_of(version):
            yield invalid(f"{path}.apiVersion", version, "must be '<group>/<version>' or '<version>'")
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                yield invalid(f"{path}.{field}", "", "must be set")
        if (version, kind) == ("v1", "Event"):
            yield invalid(path, kind, "cannot own anything")
    controllers = [owner.get("name", "") for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        yield invalid(path, controllers, "must have at most one with controller: true")


def _version_of(api_version: str) -> str:
    """Return the version in an apiVersion, "" if it cannot be read."""
    group, _, version = api_version.rpartition("/")
    return "" if "/" in group else version


def _finalizers(finalizers: list[str]) -> Iterator[StatusCause]:
    path = "metadata.finalizers"
    for index, finalizer in enumerate(finalizers):
        yield from each_invalid(path, finalizer, label_key_faults(finalizer))
        if "/" not in finalizer and finalizer not in _FINALIZERS:
            yield invalid(f"{path}[{index}]", finalizer, "must have a domain: write '<domain>/<name>'")
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        yield invalid(path, finalizers, f"must not have both {_ORPHAN} and {_FOREGROUND}")
