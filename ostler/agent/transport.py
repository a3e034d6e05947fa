"""Loads the client library's transport for the API server without what it imports and does not use in an agent.

urllib3 asks importlib.metadata for a version that only HTTP/2 needs, and ``kubernetes.client.configuration`` imports
multiprocessing for the number of processors, urllib.request for the variables that name proxies, and typing_extensions
for two names that Python has. subprocess is for credential plugins, some modules of ``email`` are for headers that no
API server sends, and stringprep is for names of hosts that are not ASCII. Stand-ins (``node.stand_ins``) take their
places.
"""

from __future__ import annotations

import os
import typing

from node.stand_ins import Answer, standing_in, unanswered

_DEFERRED: dict[str, dict[str, object]] = {
    "email._encoded_words": {},
    "email._parseaddr": {},
    "email.header": {},
    "hmac": {},
    "importlib.metadata": {},
    "mimetypes": {},
    "multiprocessing": {},
    "random": {},
    "stringprep": {},
    "subprocess": {"PIPE": -1, "STDOUT": -2, "DEVNULL": -3},
    "typing_extensions": {"NotRequired": typing.NotRequired, "Self": typing.Self},
    "urllib.request": {},
}


def _proxies() -> dict[str, str] | None:
    """None where the environment may name a proxy."""
    return None if any(name.lower().endswith("_proxy") for name in os.environ) else {}


_FUNCTIONS: dict[str, dict[str, Answer]] = {
    "email._encoded_words": {"decode_b": unanswered},
    "email._parseaddr": dict.fromkeys(
        ("AddressList", "_parsedate_tz", "mktime_tz", "parsedate", "parsedate_tz", "quote"), unanswered
    ),
    "importlib.metadata": {"version": unanswered},
    "multiprocessing": {"cpu_count": os.cpu_count},
    "random": {"random": unanswered},
    "urllib.request": {"getproxies": _proxies},
}


def load_transport() -> None:
    """Load it, unless it is loaded; raises ImportError if the client library is not installed."""
    from kube.library import library

    with standing_in(_DEFERRED, _FUNCTIONS):
        library()
        # Python loads the codec at the first name of a host.
        import encodings.idna  # noqa: F401
