"""The extension for strings, in its second version: no `quote` by method, no `reverse`."""

from __future__ import annotations

from scheduling.cel.declarations.overloads import Library, function, method
from scheduling.cel.types import DYN, INT, STRING, list_of

_STRINGS = list_of(STRING)

FUNCTIONS: Library = {
    "charAt": (method("string_char_at_int", STRING, INT, result=STRING),),
    "indexOf": (
        method("string_index_of_string", STRING, STRING, result=INT),
        method("string_index_of_string_int", STRING, STRING, INT, result=INT),
    ),
    "lastIndexOf": (
        method("string_last_index_of_string", STRING, STRING, result=INT),
        method("string_last_index_of_string_int", STRING, STRING, INT, result=INT),
    ),
    "lowerAscii": (method("string_lower_ascii", STRING, result=STRING),),
    "upperAscii": (method("string_upper_ascii", STRING, result=STRING),),
    "replace": (
        method("string_replace_string_string", STRING, STRING, STRING, result=STRING),
        method("string_replace_string_string_int", STRING, STRING, STRING, INT, result=STRING),
    ),
    "split": (
        method("string_split_string", STRING, STRING, result=_STRINGS),
        method("string_split_string_int", STRING, STRING, INT, result=_STRINGS),
    ),
    "substring": (
        method("string_substring_int", STRING, INT, result=STRING),
        method("string_substring_int_int", STRING, INT, INT, result=STRING),
    ),
    "trim": (method("string_trim", STRING, result=STRING),),
    "format": (method("string_format", STRING, list_of(DYN), result=STRING),),
    "strings.quote": (function("strings_quote", STRING, result=STRING),),
    "join": (
        method("list_join", _STRINGS, result=STRING),
        method("list_join_string", _STRINGS, STRING, result=STRING),
    ),
}
