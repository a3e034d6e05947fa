"""An agent without TLS is an agent without OpenSSL, and who needs it has it all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.node import SandboxNode
from sandbox.nodes import path

PLAIN = """
import sys
from ostler.cli.imports import left_out
with left_out():
    import asyncio, hashlib
assert not {"ssl", "_ssl", "_hashlib"} & sys.modules.keys(), "loaded all the same"
asyncio.run(asyncio.sleep(0))
print(hashlib.sha256(b"ostler").hexdigest())
import hmac, ssl
assert ssl.create_default_context().verify_mode is ssl.CERT_REQUIRED
print(hmac.digest(b"key", b"ostler", "sha256").hex())
"""
LOADED = """
import ssl
from ostler.cli.imports import left_out
with left_out():
    import asyncio
import asyncio.sslproto
assert asyncio.sslproto.ssl is ssl
try:
    with left_out():
        raise ValueError
except ValueError:
    import _hashlib
"""


def ran(code: str) -> str:
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_what_is_loaded_without_openssl_works_and_openssl_can_be_had_afterwards() -> None:
    assert ran(PLAIN).split() == [
        "71f831ffbb562ac6aa06da4e2c1b53fee3eeb39e728f386ec592cad22921e8fa",
        "4bb4cc9dec744544bbea5abdd01ea65bd56aad570f6e194237ec4f5b434dddd8",
    ]


def test_what_is_loaded_already_stays_and_an_error_changes_nothing() -> None:
    ran(LOADED)


@pytest.mark.usefixtures("executed_ostler")
async def test_an_agent_with_one_door_has_no_openssl() -> None:
    async with SandboxNode(path("h100-sxm-8"), flags={"--http": "off"}) as box:
        await box.registered()
        text = Path(f"/proc/{box.agent.pid}/maps").read_text()
    assert "libcrypto" not in text
    assert "libssl" not in text
