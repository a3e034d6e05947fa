"""Loads the client library's transport without the rest of the client library.

Every import of anything in ``kubernetes`` runs ``kubernetes/__init__.py``, which loads all of it: dynamic client,
OAuth, pydantic. In an agent that has loaded gRPC that costs 24.6 MB and 180 ms (version 37.0.2; 34 to 36, whose models
are not lazy, about 50 MB). The modules that ostler uses, ``rest`` (TLS, proxies, connection pool), ``configuration``
and ``exec_provider``, need none of that: alone they cost 6.4 MB and 60 ms, of which urllib3 takes 5.2 MB. So ostler
imports them while bare stand-ins hold the places of the packages above them, and removes them from ``sys.modules``
afterwards, so that another import of ``kubernetes`` in this process gets the whole library. If a version cannot be
loaded like that, ostler imports it the ordinary way: that costs the memory, and everything works.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

log = logging.getLogger("ostler.kube")

_PACKAGE = "kubernetes"
_STAND_INS = ("kubernetes", "kubernetes.client", "kubernetes.config", "kubernetes.utils")
_MODULES = ("kubernetes.client.configuration", "kubernetes.client.rest", "kubernetes.config.exec_provider")
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class TransportLibrary:
    """The three names that ostler uses: constructors of the client library, whose types differ between its versions.

    ``rest_client(configuration).pool_manager`` is a ``urllib3.PoolManager``: its only attribute that is the same in
    every version. ``exec_provider(config, folder, cluster).run()`` runs a credential plugin.
    """

    configuration: Callable[..., Any]
    rest_client: Callable[..., Any]
    exec_provider: Callable[..., Any]


def library() -> TransportLibrary:
    """Load it, once per process. Raises ImportError if the client library is not installed."""
    with _LOCK:
        # Threads that come at the same moment wait for the first instead of loading a copy each.
        return _loaded()


@cache
def _loaded() -> TransportLibrary:
    configuration, rest, provider = _modules()
    return TransportLibrary(configuration.Configuration, rest.RESTClientObject, provider.ExecProvider)


def _modules() -> tuple[ModuleType, ...]:
    if _PACKAGE in sys.modules:
        # Another module has loaded all of it already.
        return tuple(importlib.import_module(name) for name in _MODULES)
    try:
        return _alone()
    except (ImportError, AttributeError) as error:
        log.info("cannot load the transport alone; loaded the whole client library", extra={"error": str(error)})
        return tuple(importlib.import_module(name) for name in _MODULES)


def _alone() -> tuple[ModuleType, ...]:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("the package kubernetes is not installed", name=_PACKAGE)
    root = spec.submodule_search_locations[0]
    try:
        for name in _STAND_INS:
            stand_in = ModuleType(name)
            stand_in.__path__ = [root + name.removeprefix(_PACKAGE).replace(".", "/")]
            sys.modules[name] = stand_in
        return tuple(importlib.import_module(name) for name in _MODULES)
    finally:
        # A copy, because other threads import meanwhile and a dictionary that changes ends the loop over it.
        for name in list(sys.modules):
            if name == _PACKAGE or name.startswith(f"{_PACKAGE}."):
                del sys.modules[name]
