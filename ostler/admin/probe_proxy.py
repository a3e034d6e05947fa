"""Probes of another instance on the same address, handed on to that instance's own Unix socket.

During an update two agents run side by side in the host's network, and only one of them has the port. The kubelet
probes both there: ``/livez/<instance>`` and ``/readyz/<instance>``. Whoever has the port answers for itself and asks
the other one for the rest, so that a standby becomes Ready before its predecessor ends, and a standby that hangs is
told as dead although the port answers.

What an instance serves on its socket never relays, so two instances cannot send a probe to and fro. A holder of the
port that is stopped as a whole (not only its loop) leaves both without answers until it is killed: the price of having
no third process.
"""

from __future__ import annotations

import http.client
import re
import socket
from pathlib import Path

from ostler.admin.http import Page
from ostler.config.settings import INSTANCE, instance_socket

TIMEOUT = 0.9
"""Seconds that the other instance has for each step: below the second that a kubelet gives a probe by default."""
LONGEST = 65536
"""Bytes of an answer that are handed on."""

_PATH = re.compile(rf"/(livez|readyz)/({INSTANCE})")


class ProbeProxy:
    """Asks the instances that share the state folder ``state_dir``."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir

    def answer(self, path: str) -> Page | None:
        """What the instance that ``path`` names says, or in one line why it says nothing; None for other paths.

        Blocks for a few times ``TIMEOUT`` at most.
        """
        match = _PATH.fullmatch(path)
        if match is None:
            return None
        instance = match[2]
        at = instance_socket(self._state_dir, instance)
        try:
            return _ask(at, path)
        except FileNotFoundError:
            return Page.text(404, f"there is no instance {instance} on this node")
        except ConnectionRefusedError:
            return Page.text(503, f"the instance {instance} is gone: nobody listens at {at}")
        except (TimeoutError, BlockingIOError):
            # The second: so many wait to be accepted that the kernel refuses more.
            return Page.text(503, f"the instance {instance} hangs: no answer within {TIMEOUT:g} s")
        except (OSError, http.client.HTTPException) as error:
            return Page.text(503, f"the instance {instance} cannot be asked: {str(error) or type(error).__name__}")


def _ask(at: Path, path: str) -> Page:
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.sock.settimeout(TIMEOUT)
        connection.sock.connect(str(at))
        connection.request("GET", path)
        answer = connection.getresponse()
        return Page(answer.status, answer.getheader("Content-Type", "text/plain"), answer.read(LONGEST))
    finally:
        connection.close()
