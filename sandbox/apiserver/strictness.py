"""Fields that the server does not know: dropped without a word, or refused where the client asks for that.

kubectl asks for it (`fieldValidation=Strict`), so that a mistyped field is told. Only objects of `resource.k8s.io` have
shapes here; of the others everything is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandbox.apiserver.kinds import Object
from sandbox.apiserver.refusals import unreadable
from sandbox.apiserver.routes import Route
from scheduling.api.validation.shapes import BY_KIND, ListOf, MapOf, Shape, Type


def check_fields(route: Route, resource: Object) -> None:
    """Raise StatusError (400) for fields of a v1 object that nobody knows, if the client wants to hear of them."""
    if route.query.get("fieldValidation") != "Strict":
        return
    found = [f'unknown field "{path}"' for path in unknown_fields(resource, BY_KIND[route.kind.name])]
    if found:
        raise unreadable(route.kind, route.version, f"strict decoding error: {', '.join(found)}")


def unknown_fields(value: object, shape: Type, path: str = "") -> Iterator[str]:
    """Paths of fields that a shape lacks; values of wrong types are others' to tell."""
    if isinstance(shape, ListOf):
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            yield from unknown_fields(entry, shape.item, f"{path}[{index}]")
    elif isinstance(shape, MapOf) and isinstance(value, Mapping):
        for name, entry in value.items():
            yield from unknown_fields(entry, shape.item, f"{path}.{name}")
    elif isinstance(shape, Shape) and isinstance(value, Mapping):
        for name, entry in value.items():
            inner = f"{path}.{name}" if path else str(name)
            if name in shape.fields:
                yield from unknown_fields(entry, shape.fields[name].type, inner)
            elif path or name not in ("apiVersion", "kind"):
                yield inner
