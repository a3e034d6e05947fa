"""Bindings find their libraries without ``ctypes.util`` being loaded for them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from node.libraries import find_library, found_by_soname

BINDINGS = """
import sys
from node.libraries import found_by_soname
with found_by_soname():
    import pynvml, pyudev
    pyudev.Context()
assert "ctypes.util" not in sys.modules, "loaded"
assert "tempfile" not in sys.modules, "loaded with it"
import ctypes.util
assert ctypes.util.find_library("c"), "the real one is there for others"
"""


def test_bindings_work_without_the_module_and_others_still_get_it() -> None:
    done = subprocess.run([sys.executable, "-c", BINDINGS], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")


def test_known_names_are_sonames_that_can_be_loaded() -> None:
    name = find_library("c")
    assert name is not None
    assert ctypes.CDLL(name).getpid() == os.getpid()


def test_unknown_names_are_left_to_the_real_search() -> None:
    assert find_library("there-is-no-such-library") is None


def test_a_name_asked_for_inside_is_searched_as_well() -> None:
    script = (
        "from node.libraries import found_by_soname\n"
        "with found_by_soname():\n"
        "    from ctypes.util import find_library\n"
        "    assert find_library('there-is-no-such-library') is None\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")


def test_where_the_real_module_is_loaded_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes.util

    with found_by_soname():
        assert sys.modules["ctypes.util"] is ctypes.util
    assert sys.modules["ctypes.util"] is ctypes.util
