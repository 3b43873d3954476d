"""A small check of a value against the part of JSON Schema that docs/openapi.json uses.

Beside what JSON Schema says, a field of an answer that has no description there is a fault too.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
    "null": (type(None),),
}
KNOWN_WORDS = frozenset(
    {"$ref", "anyOf", "enum", "type", "required", "properties", "items", "description", "pattern"}
    | {"minimum", "maximum", "exclusiveMinimum", "maxLength", "minItems"}
)


def faults(value: object, schema: Json, document: Json, where: str = "") -> Iterator[str]:
    """Yield each place where a value is not as the schema says."""
    unknown = schema.keys() - KNOWN_WORDS
    if unknown:
        yield f"{where}: the check knows no {sorted(unknown)}"
    if "$ref" in schema:
        yield from faults(value, resolved(schema["$ref"], document), document, where)
    elif "anyOf" in schema:
        if all(list(faults(value, one, document, where)) for one in schema["anyOf"]):
            yield f"{where}: {value!r} is none of {schema['anyOf']}"
    elif "enum" in schema:
        if value not in schema["enum"]:
            yield f"{where}: {value!r} is not among {schema['enum']}"
    elif not _is_of(value, schema["type"]):
        yield f"{where}: {value!r} is no {schema['type']}"
    else:
        yield from _inner_faults(value, schema, document, where)


def _inner_faults(value: object, schema: Json, document: Json, where: str) -> Iterator[str]:
    match value:
        case Mapping():
            yield from _object_faults(value, schema, document, where)
        case list() | tuple():
            for place, one in enumerate(value):
                yield from faults(one, schema["items"], document, f"{where}[{place}]")
        case str() if not re.search(schema.get("pattern", ""), value):
            yield f"{where}: {value!r} does not match {schema['pattern']}"
        case _:
            return


def resolved(reference: str, document: Json) -> Json:
    """Return what a reference within the document points to."""
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def _object_faults(value: Mapping[str, Any], schema: Json, document: Json, where: str) -> Iterator[str]:
    for key in schema.get("required", ()):
        if key not in value:
            yield f"{where}.{key}: missing"
    if "properties" not in schema:
        return
    for key, one in value.items():
        if key in schema["properties"]:
            yield from faults(one, schema["properties"][key], document, f"{where}.{key}")
        else:
            yield f"{where}.{key}: not described"


def _is_of(value: object, kind: str | list[str]) -> bool:
    kinds = [kind] if isinstance(kind, str) else kind
    if isinstance(value, bool):
        return "boolean" in kinds
    return any(isinstance(value, _TYPES[one]) for one in kinds)
