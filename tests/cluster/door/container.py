"""What a container sees of its devices, told by the container itself in its log."""

from __future__ import annotations

from dataclasses import dataclass

from tests.cluster.rig.pods import FOREVER, RigPods
from tests.cluster.rig.processes import wait_until

_LAST = "that is all"
LOOK = f"""
env | sed 's/^/env /'
find /dev -type c -exec stat -c 'device %n %t:%T' {{}} +
sed 's/^[^ ]* \\([^ ]*\\) .*/mount \\1/' /proc/self/mounts
echo {_LAST}
"""
"""A shell script that tells; what a script in front of it says is heard as well."""
STAY = f"{LOOK}\n{FOREVER}"


@dataclass(frozen=True, slots=True)
class Seen:
    """``env`` by name, ``devices`` (hexadecimal major:minor) by path, paths of ``mounts``; ``said`` is all else."""

    env: dict[str, str]
    devices: dict[str, str]
    mounts: frozenset[str]
    said: tuple[str, ...]

    def below(self, start: str) -> set[str]:
        """The paths of the devices that begin so."""
        return {path for path in self.devices if path.startswith(start)}


def seen(pods: RigPods, pod: str, of: str = "") -> Seen:
    """What a container of a running or finished pod has told, as soon as it has told all."""
    wait_until(f"{pod} {of} has told all", lambda: _LAST in pods.output(pod, of).splitlines())
    return _read(pods.output(pod, of))


def _read(output: str) -> Seen:
    env: dict[str, str] = {}
    devices: dict[str, str] = {}
    mounts, said = set(), []
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "env":
            name, _, value = rest.partition("=")
            env[name] = value
        elif kind == "device":
            path, _, number = rest.rpartition(" ")
            devices[path] = number
        elif kind == "mount":
            mounts.add(rest)
        elif line != _LAST:
            said.append(line)
    return Seen(env, devices, frozenset(mounts), tuple(said))
