"""The transport is loaded without the rest of the client library, and nobody else notices."""

from __future__ import annotations

import subprocess
import sys

import pytest

ALONE = """
import sys
from kube.library import library
loaded = library()
assert not [name for name in sys.modules if name.split(".")[0] in ("kubernetes", "pydantic", "oauthlib", "aiohttp")]
assert loaded.rest_client(loaded.configuration(host="https://a:1")).pool_manager.request
import kubernetes.client
assert kubernetes.client.CoreV1Api.__module__.startswith("kubernetes.client.api")
assert kubernetes.config.load_incluster_config
"""

BESIDE = """
import kubernetes.client
from kube.library import library
assert library().configuration is kubernetes.client.Configuration
"""

ANOTHER_VERSION = """
import sys
from kube.library import library
# As if its transport needed what cannot be had without the packages above it.
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "kubernetes.utils.retry" and not hasattr(sys.modules["kubernetes"], "__version__"):
            raise ImportError(name)
sys.meta_path.insert(0, Missing())
loaded = library()
import kubernetes.client
assert loaded.configuration is kubernetes.client.Configuration
"""

IMPORTS_MEANWHILE = """
import sys
from types import ModuleType
from kube.library import library
# Whoever compares this name with another imports something: as another thread may at any moment.
class Name(str):
    def __eq__(self, other):
        sys.modules[f"elsewhere{len(sys.modules)}"] = ModuleType("elsewhere")
        return str.__eq__(self, other)
    __hash__ = str.__hash__
sys.modules[Name("compared")] = ModuleType("compared")
assert library().configuration(host="https://a:1").host == "https://a:1"
"""

THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from kube.library import library
sys.setswitchinterval(1e-5)
together = Barrier(8)
def load(_):
    together.wait()
    return library()
with ThreadPoolExecutor(8) as pool:
    assert len({id(loaded) for loaded in pool.map(load, range(8))}) == 1
"""

AGENT = """
import sys
import ostler.cli.run, ostler.agent.agent
heavy = [name for name in sys.modules if name.split(".")[0] in ("kubernetes", "kube", "urllib3")]
assert not heavy, heavy
import ostler.agent.node_events
heavy = [name for name in sys.modules if name.split(".")[0] in ("kubernetes", "kube", "urllib3")]
assert not heavy, heavy
"""

POSTING = """
import sys
import kube.client, kube.events, kube.kubeconfig, kube.node_identity
heavy = [name for name in sys.modules if name.split(".")[0] in ("kubernetes", "urllib3", "yaml")]
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "script",
    [ALONE, BESIDE, ANOTHER_VERSION, IMPORTS_MEANWHILE, THREADS, AGENT, POSTING],
    ids=[
        "alone",
        "beside-the-whole-one",
        "another-version",
        "imports-meanwhile",
        "threads",
        "agent",
        "before-a-request",
    ],
)
def test_what_is_needed_is_loaded_and_no_more(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
