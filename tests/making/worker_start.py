"""Starts one worker of pytest-xdist: a fork of the process that has collected, or else an interpreter.

``python -I -S worker_start.py SOCKET WORDS``: the words are those that the interpreter would get. It is a file of its
own, because what ``forked_workers`` imports takes half a second.
"""

from __future__ import annotations

import array
import os
import sys

FORKED = b"f"
"""The collecting process sends it once it has forked; the connection ends with the fork."""


def main(path: str, words: list[str]) -> None:
    """Hand input, output and errors to a fork, and end when it ends."""
    import _socket

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.connect(path)
        connection.sendmsg([b"-"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
        is_forked = connection.recv(1) == FORKED
    except OSError:
        is_forked = False
    if not is_forked:
        os.execv(sys.executable, [sys.executable, *words])
    # Its output ends when the worker's does, and not when this process does.
    for descriptor in (0, 1):
        os.close(descriptor)
    while connection.recv(1):
        pass


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
