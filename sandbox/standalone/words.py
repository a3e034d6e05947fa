"""The words of ``ostler kubelet``: its commands, how each is used, and what can stand next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sandbox.standalone.node import StandaloneNode
from sandbox.standalone.pods import name_of

HELP: Final = """\
  admit FILE ...                    admit the pods of manifests; show what each container gets
  delete POD ...                    end pods, which frees their devices
  retry POD                         try again with a pod that is pending
  pods [POD]                        pods and their devices; of one pod all that its containers get
  resources [RESOURCE]              capacity, allocatable, and the devices with health, NUMA nodes and holders
  plugins                           what is registered, and how the plugin's process is
  checkpoint                        the kubelet's checkpoint: who has which device
  wait RESOURCE COUNT [SECONDS]     wait until a resource has so many healthy devices
  restart [kubelet | plugin]        restart the kubelet, or the plugin, and wait until all is registered again
  kill [kubelet | plugin]           end the kubelet, or kill -9 the plugin; 'restart' starts it again
  watch [SECONDS]                   show what happens, for some seconds or until Enter
  log [LINES]                       the end of the plugin's log
  explain POD                       why a pod waits for its claims (with --with-apiserver)
  claims                            claims, their devices, and who has them (with --with-apiserver)
  slices                            what DRA drivers publish (with --with-apiserver)
  expect TEXT                       fail unless the answer before has this text
  ! COMMAND                         fail unless the command fails
  help                              these commands
  quit                              end everything (as do Ctrl-C and the end of the input)
"""


class UsageError(ValueError):
    """The words of a command are wrong."""


def usage(command: str) -> str:
    """The line of help of a command, without what it does."""
    line = next(line for line in HELP.splitlines() if line.split()[0] == command)
    return line.strip().split("  ")[0]


def completions(node: StandaloneNode, before: Sequence[str], text: str) -> list[str]:
    """The words that can stand where ``text`` begins, after the words ``before``."""
    if not before:
        found = [line.split()[0] for line in HELP.splitlines()]
    elif before[0] == "admit":
        folder, _, begin = text.rpartition("/")
        place = Path(folder or ("/" if text.startswith("/") else "."))
        entries = sorted(place.iterdir()) if place.is_dir() else []
        return [
            f"{text.removesuffix(begin)}{entry.name}{'/' if entry.is_dir() else ' '}"
            for entry in entries
            if entry.name.startswith(begin) and not entry.name.startswith(".")
        ]
    elif before[0] in ("delete", "retry", "pods", "explain"):
        found = [name_of(key) for key in node.pods.outcomes]
    elif before[0] in ("resources", "wait"):
        found = node.registrations.names()
    else:
        found = ["kubelet", "plugin"] if before[0] in ("restart", "kill") else []
    return [f"{word} " for word in found if word.startswith(text)]
