"""A node: a mount and pid namespace with its own folders, a containerd and a kubelet.

Paths inside are the default ones, which is what plugins, DaemonSets and the kubelet's fixed folders expect; the same
files are below ``folder`` from outside. Ending the namespace's first process ends everything in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.images import PAUSE, archives
from tests.cluster.rig.pki import RigAuthority
from tests.cluster.rig.place import PREFIX, RigPlace, add_address
from tests.cluster.rig.processes import (
    PATIENCE,
    VARIABLE,
    Inside,
    belonging,
    children,
    died,
    kill,
    living,
    start,
    wait_until,
)

CGROUPS = Path("/sys/fs/cgroup")
CNI_PLUGINS = "/usr/lib/cni"
NVIDIA = (
    *(f"/dev/nvidia{index}" for index in range(16)),
    *(f"/dev/nvidia{name}" for name in ("ctl", "-uvm", "-uvm-tools", "-modeset")),
)
"""Device files of recorded GPUs: a container with a device file that is not there does not start."""


class RigNode:
    """Node ``index`` (from 0) of a cluster; ``kubernetes`` and ``containerd`` are folders with binaries.

    ``traced``: kubelet and containerd log every step of a pod.
    """

    def __init__(
        self,
        place: RigPlace,
        index: int,
        authority: RigAuthority,
        kubernetes: Path,
        containerd: Path,
        *,
        traced: bool = False,
    ) -> None:
        self._traced = traced
        self._place = place
        self._index = index
        self._authority = authority
        self._kubernetes = kubernetes
        self._containerd = containerd
        self.name = f"node-{index + 1}"
        self.address = place.node_address(index)
        self.folder = place.root / self.name
        self._space: subprocess.Popen[bytes] | None = None
        self._running: dict[str, Inside] = {}
        self._restarted = 0.0
        """When the kubelet was started again (Unix seconds): what the Node says from before is another one's word."""

    # Folders of the node as they are seen from outside.

    @property
    def kubelet_folder(self) -> Path:
        """``/var/lib/kubelet``."""
        return self.folder / "kubelet"

    @property
    def static_pods(self) -> Path:
        """Manifests of pods that the kubelet runs by itself."""
        return self.folder / "static-pods"

    @property
    def cgroup(self) -> str:
        """The cgroup below which the kubelet puts pods."""
        return f"/{self._place.root.name}-{self.name}"

    def start(self) -> None:
        """Make the namespace and start containerd and kubelet; ``wait_ready`` tells when pods may come."""
        add_address(self.address)
        self._prepare()
        self._make_space()
        self.start_containerd()
        self._import_images()
        self.start_kubelet()

    def power_off(self) -> None:
        """End everything at once, as a power cut does, and lose what lies in memory: /run and /dev."""
        kill(self.init)
        wait_until(f"{self.name} ends", lambda: not living(self.init))
        for process in (*self._running.values(), self._space):
            if process is not None:
                process.wait()
        self._running.clear()
        (self.folder / "made").unlink()
        for folder in ("run-containerd", "cdi", "nri", "netns", "run-ostler"):
            shutil.rmtree(self.folder / folder)
        shutil.rmtree(self.folder / "cni-state" / "networks", ignore_errors=True)

    def power_on(self) -> None:
        """Make the namespace again and start containerd; the kubelet is started by ``start_kubelet``."""
        (self.folder / "run-containerd").mkdir()
        self._make_space()
        self.start_containerd()

    def _prepare(self) -> None:
        for name in ("layers", "kubelet", "run-containerd", "cni", self.static_pods.name):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "machine-id").write_text(uuid.uuid4().hex + "\n")
        subject = f"/O=system:nodes/CN=system:node:{self.name}"
        self._authority.kubeconfig(self.name, subject, self.folder / "kubelet.kubeconfig")
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet_configuration(), indent=1))
        (self.folder / "containerd.toml").write_text(self._containerd_configuration())
        (self.folder / "cni" / "10-ptp.conflist").write_text(json.dumps(self._network(), indent=1))
        _make_cgroup(self.cgroup)

    def _make_space(self) -> None:
        script = Path(__file__).with_name("node.sh")
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
        self._space = start(self._place.root, self.name, [*command, "bash", script, self.folder])
        space = self._space
        wait_until(
            f"namespaces of {self.name} are made",
            (self.folder / "made").exists,
            alive=lambda: died(space, self._place.root, self.name),
        )
        (self.folder / "init").write_text(str(children(space.pid)[0]))
        self.make_devices(*NVIDIA)

    @property
    def init(self) -> int:
        """Process id of the namespace's first process."""
        return int((self.folder / "init").read_text())

    def enter(self, *command: str | Path) -> list[str]:
        """A command line that runs ``command`` inside the node."""
        return ["nsenter", "-t", str(self.init), "-m", "-p", "--", *map(str, command)]

    def run(self, *command: str | Path, check: bool = True) -> str:
        """Run a command inside the node to its end; its output. Raises OSError with its words."""
        done = subprocess.run(
            self.enter(*command), check=False, capture_output=True, text=True, timeout=120,
            env={**os.environ, VARIABLE: str(self._place.root)},
        )  # fmt: skip
        if check and done.returncode:
            raise OSError(f"{self.name}: {' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def spawn(self, name: str, *command: str | Path, environment: Mapping[str, str] | None = None) -> Inside:
        """Start a process inside the node; its output goes to ``logs/NODE-NAME.log``."""
        return Inside.start(self._place.root, f"{self.name}-{name}", self.enter(*command), environment)

    def make_devices(self, *paths: str) -> None:
        """Make character devices inside the node that read as zeroes: what a container does with one can be seen."""
        folders = sorted({str(Path(path).parent) for path in paths})
        made = " && ".join(f"{{ test -e {path} || mknod -m 666 {path} c 1 5; }}" for path in paths)
        self.run("sh", "-c", f"mkdir -p {' '.join(folders)} && {made}")

    # containerd

    def start_containerd(self) -> None:
        """Start containerd and return when it listens."""
        command: list[str | Path] = [
            self._containerd / "containerd",
            "--config",
            self.folder / "containerd.toml",
            "--log-level",
            "debug" if self._traced else "info",
        ]
        path = f"{self._containerd}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        process = self._start("containerd", command, {"PATH": path})
        listening = self.folder / "run-containerd" / "containerd.sock"
        wait_until("containerd listens", lambda: _connects(listening), alive=process.died)

    def stop_containerd(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End containerd; its containers go on."""
        self._stop("containerd", number)

    def import_image(self, archive: Path) -> None:
        """Make an image known to the node's containerd."""
        self.run(self._containerd / "ctr", "-n", "k8s.io", "images", "import", archive)

    def _import_images(self) -> None:
        for archive in archives(self.folder):
            self.import_image(archive)
            archive.unlink()

    # kubelet

    def start_kubelet(self) -> None:
        """Start the kubelet and do not wait."""
        command: list[str | Path] = [
            self._kubernetes / "kubelet",
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self.folder / 'kubelet.kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            *(["--v=5"] if self._traced else []),
        ]
        if (self.folder / "kubelet.pid").exists():
            self._restarted = time.time()
        self._start("kubelet", command)

    def stop_kubelet(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the kubelet and return when it is gone; its pods go on."""
        self._stop("kubelet", number)

    def wait_ready(self, api: RigApi, timeout: float = PATIENCE) -> None:
        """Return when the API server shows the node as ready, by the word of the kubelet that was started last."""

        def ready(node: Object) -> bool:
            conditions = node.get("status", {}).get("conditions", [])
            return any(
                one["type"] == "Ready"
                and one["status"] == "True"
                and _time(one["lastHeartbeatTime"]) >= self._restarted
                for one in conditions
            )

        api.wait(f"/api/v1/nodes/{self.name}", "is ready", ready, timeout, lambda: self._died("kubelet"))

    # the rest

    def pid_of(self, component: str) -> int:
        """Process id of the node's containerd or kubelet, 0 when it is dead; also when another process started it."""
        path = self.folder / f"{component}.pid"
        pid = int(path.read_text()) if path.exists() else 0
        return pid if pid and living(pid) else 0

    def _start(self, name: str, command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> Inside:
        process = self.spawn(name, *command, environment=more)
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        self._running[name] = process
        return process

    def _stop(self, name: str, number: signal.Signals) -> None:
        pid = self.pid_of(name)
        if pid:
            kill(pid, number)
            wait_until(f"{name} ends", lambda: not living(pid))
        process = self._running.pop(name, None)
        if process is not None:
            process.wait()

    def _died(self, name: str) -> str:
        process = self._running.get(name)
        return "" if process is None else process.died()

    def _kubelet_configuration(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup,
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": ["pods"],
            # Lowering it needs a right that root does not have in many containers and test machines.
            "oomScoreAdj": 0,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "address": self.address,
            "healthzBindAddress": self.address,
            "authentication": {
                "x509": {"clientCAFile": str(self._authority.certificate)},
                "webhook": {"enabled": True},
                "anonymous": {"enabled": False},
            },
            "authorization": {"mode": "Webhook"},
            "localStorageCapacityIsolation": False,
            # A full disk must neither evict pods nor delete images that cannot be pulled again.
            "evictionHard": {},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "10s",
            "staticPodPath": str(self.static_pods),
        }

    def _containerd_configuration(self) -> str:
        return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "docker.io/{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{CNI_PLUGINS}"]
conf_dir = "{self.folder / "cni"}"
"""

    def _network(self) -> dict[str, object]:
        ranges = [[{"subnet": self._place.pods(self._index)}]]
        # Without the default route a pod does not reach the API server's ClusterIP.
        routes = [{"dst": "0.0.0.0/0"}]
        ipam = {"type": "host-local", "ranges": ranges, "routes": routes}
        return {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}],
        }


def processes_of_pod(uid: str) -> list[int]:
    """All processes of a pod, those of its sandbox too, on whatever node."""
    found: set[int] = set()
    for top in (*CGROUPS.glob(f"{PREFIX}*"), *CGROUPS.glob(f"*/{PREFIX}*")):
        # Control groups go while they are looked at, which ``walk`` takes for empty ones.
        for folder, _, _ in os.walk(top):
            if f"/pod{uid}" in folder:
                with contextlib.suppress(OSError):
                    found |= {int(line) for line in (Path(folder) / "cgroup.procs").read_text().split()}
    return sorted(found)


def _time(written: str) -> float:
    """Unix seconds of a time as the API has it."""
    return datetime.fromisoformat(written).timestamp()


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return False
        return True


def _make_cgroup(name: str) -> None:
    """The pods' cgroup in every hierarchy; in v1 a cpuset without processors takes no process."""
    if (CGROUPS / "cgroup.controllers").exists():
        (CGROUPS / name.lstrip("/")).mkdir(exist_ok=True)
        return
    for hierarchy in CGROUPS.iterdir():
        if hierarchy.name == "unified" or not (hierarchy / "cgroup.procs").exists():
            continue
        folder = hierarchy / name.lstrip("/")
        folder.mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (folder / file).exists():
                (folder / file).write_text((hierarchy / file).read_text())


def remove_cgroups(root: Path) -> None:
    """Remove the cgroups of every node of the cluster in ``root``, which are empty once nothing runs."""
    wait_until(f"nothing of {root} runs", lambda: not belonging(root))
    for hierarchy in (CGROUPS, *CGROUPS.iterdir()):
        for top in hierarchy.glob(f"{root.name}-node-*"):
            folders = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
            for folder in (*folders, top):
                wait_until(f"{folder} is empty", partial(_removed, folder))


def _removed(folder: Path) -> bool:
    """A cgroup stays busy for a moment after its last process."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
