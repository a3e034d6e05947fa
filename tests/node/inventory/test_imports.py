"""Every module of node can be imported by itself: whoever needs one part must not depend on what was loaded before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NODE = Path(__file__).parents[3] / "node"

# What others made is there for all of them: it imports nothing of ours.
IMPORT_EACH = """
import asyncio, grpc.aio, gc, importlib, logging, os, sys, yaml
from google.protobuf import descriptor_pool, json_format
# A collection in a child would copy all pages.
gc.disable()
gc.freeze()
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"{name}: {error}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_no_module_needs_another_one_to_be_imported_first() -> None:
    names = [
        ".".join(path.relative_to(NODE.parent).with_suffix("").parts)
        for path in sorted(NODE.rglob("*.py"))
        if path.name != "__init__.py"
    ]
    assert len(names) > 50
    done = subprocess.run([sys.executable, "-c", IMPORT_EACH, *names], capture_output=True, text=True, check=True)
    assert done.stdout == ""
