"""The API server's transport comes without what it imports and no agent uses, and everything can still be had."""

from __future__ import annotations

import os
import subprocess
import sys

LOADED = """
import sys
from ostler.agent.transport import load_transport
load_transport()
load_transport()
from kube.library import library
configuration = library().configuration(host="https://a:1")
pool = library().rest_client(configuration).pool_manager
"""
ALONE = """
left = {"email.header", "importlib.metadata", "mimetypes", "multiprocessing", "subprocess", "typing_extensions"}
left |= {"email._encoded_words", "email._parseaddr", "hmac", "pickle", "stringprep", "urllib.request", "zipfile"}
"host.example".encode("idna")
assert not left & sys.modules.keys(), left & sys.modules.keys()
assert configuration.proxy is None
"""
LATER = """
import email.header, importlib, urllib3
assert urllib3.http2.version("urllib3") == importlib.import_module("importlib.metadata").version("urllib3")
headers = ("To: A <a@b>", "Date: Fri, 27 Nov 2026 02:00:00 +0000", "Subject: =?utf-8?q?=C3=A4?=")
message = email.message_from_string("\\n".join((*headers, "", "")))
assert str(email.header.make_header(email.header.decode_header(message["Subject"]))) == "\\xe4"
from email import utils
assert utils.getaddresses([message["To"]]) == [("A", "a@b")]
assert utils.mktime_tz(utils.parsedate_tz(message["Date"])) == 1795744800
surrogate = email.message_from_bytes(b"Subject: \\xff\\n\\n")["Subject"]
assert isinstance(surrogate, email.header.Header)
assert "b\xfccher.example".encode("idna") == b"xn--bcher-kva.example"
from urllib3.fields import guess_content_type
assert guess_content_type("a.txt") == "text/plain"
from urllib3.util.ssl_ import assert_fingerprint
import hashlib
assert_fingerprint(b"certificate", hashlib.sha256(b"certificate").hexdigest())
from multiprocessing import cpu_count
import os, typing
assert cpu_count() == os.cpu_count()
import typing_extensions
assert typing_extensions.Self is typing.Self and typing_extensions.NotRequired is typing.NotRequired
import subprocess
assert subprocess.run(["true"], check=True, stdout=subprocess.PIPE).stdout == b""
"""
PROXIES = """
assert configuration.proxy == "http://proxy:3128", configuration.proxy
assert configuration.no_proxy == "10.0.0.0/8", configuration.no_proxy
"""


def run(code: str, **variables: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_what_no_agent_uses_is_left_out_and_can_be_had_afterwards() -> None:
    run(LOADED + ALONE + LATER)


def test_proxies_of_the_environment_are_heeded() -> None:
    run(LOADED + PROXIES, https_proxy="http://proxy:3128", NO_PROXY="10.0.0.0/8")
