"""``ostler extender`` as a process: from its files to the port that a scheduler asks, and back.

Order. The configuration and the TLS files are checked before anything is opened. A replica that holds the lease reads
all nodes and pods, and listens only once the running pods' cells are entered. A replica that must wait listens at
once and answers that it is a standby; when it takes over, it answers that it recovers until it has read everything. A
replica that loses the lease ends: what it knows may be outdated, and a restart costs a second.

A changed configuration is laid over the running pods without a restart. If it cannot be used the old one stays in
force.
"""

from __future__ import annotations

import gc
import logging
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kube.access import SERVICE_ACCOUNT, Access, FixedCredentials, in_cluster, runs_in_cluster
from kube.client import Client
from kube.errors import ConfigurationError
from kube.events import EventPoster, Subject
from kube.kubeconfig import from_kubeconfig
from node.clocks import SYSTEM
from node.named_files import read_named_file
from ostler.admin.http import AddressInvalid, HttpPage, HttpServer, Pages, listen
from ostler.extender.api import ExtenderApi
from ostler.extender.binding import Binder, PastScheduler
from ostler.extender.deciding import Decider
from ostler.extender.drift import SETTLED, CellsDrift
from ostler.extender.holds import CellHolds
from ostler.extender.lease import LeaseHolder, LeaseName, LeaseTiming
from ostler.extender.mending import RecordMender
from ostler.extender.metrics import ExtenderFigures, ExtenderMetrics, ExtenderState
from ostler.extender.published import PublishedDevices, PublishedDevicesWatch
from ostler.extender.record_writing import StatusRecordWriter
from ostler.extender.server import ExtenderServer, is_local
from ostler.extender.states import MakeCells
from ostler.extender.tls import TlsContexts, TlsFiles
from ostler.extender.tracking import CellTracker
from ostler.extender.watching import ClusterWatch
from ostler.extender.wire import PodIdentity
from scheduling.cells.configuration import CellsConfigurationError, ExtenderSettings, read_configuration
from scheduling.cells.decision import CellsUserError

if TYPE_CHECKING:
    from ostler.extender.admission import AdmissionController

log = logging.getLogger("ostler.extender")

COMPONENT = "ostler-extender"
SOON = 0.02
"""Seconds between two looks whether the slices are read."""
LOOK = 0.2
"""Seconds between two looks at signals and the lease."""
CONFIG_EVERY = 5.0
"""Seconds between two looks at the configuration file."""
MOST_CONFIG = 16 << 20
"""Bytes of a configuration; 5,000 nodes with their cells have a twentieth of that."""
MOST_PAUSE = 1.0
"""Seconds that the answer for a waiting pod is held back at most; a scheduler gives up after 5."""
_RESPONSIVE = 5.0
"""Seconds after which a lock that is not free counts as a deadlock."""


class ExtenderFailed(Exception):
    """The extender cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    """``http``: address for probes and metrics, empty for none. ``lease``: None if this is the only replica.

    ``drift_after``: seconds after which a difference between configuration and cluster is reported. ``is_for_kueue``:
    answer the AdmissionChecks of Kueue's Workloads.
    """

    config: Path
    tls: TlsFiles | None = None
    http: str = ""
    lease: LeaseName | None = None
    timing: LeaseTiming = LeaseTiming()  # noqa: RUF009 - frozen
    identity: str = ""
    drift_after: float = SETTLED
    is_for_kueue: bool = False


class ExtenderProcess:
    """Runs from ``run`` to ``stop``. ``server``: None until it listens; ``watch``: how nodes and pods are followed;
    ``devices``: what nodes publish.

    Raises ``CellsConfigurationError``, ``TlsError`` or ``ExtenderFailed`` if what it is given cannot be used.
    """

    def __init__(self, options: ExtenderOptions, environment: Mapping[str, str], make: MakeCells) -> None:
        self._options = options
        self._text = read_config(options.config)
        self._configuration = read_configuration(self._text, str(options.config))
        settings = self._configuration.extender
        self._tls = TlsContexts(options.tls) if options.tls is not None else None
        self._address = address_of(settings, has_tls=self._tls is not None)
        self._metrics = ExtenderMetrics()
        self._client = Client(
            api_access(settings, environment), random=SYSTEM.random, user_agent=COMPONENT, connections=8
        )
        self._poster = EventPoster(
            Subject("Pod", "", ""),
            self._metrics.events,
            component=COMPONENT,
            instance=options.identity,
            random=SYSTEM.random,
        )
        self._lease = (
            LeaseHolder(self._client, options.lease, options.identity, timing=options.timing) if options.lease else None
        )
        self.devices = PublishedDevices()
        self._binder = Binder(self._client, self.devices, self)
        self._past = PastScheduler(self._binder, self, self._metrics)
        self._writer = StatusRecordWriter(self._client, self, self._metrics, replica=self, clocks=SYSTEM)
        mender = RecordMender(self._writer, self, self._metrics)
        self._tracker = CellTracker(
            self._configuration, make, self.devices, mender, reporter=self, metrics=self._metrics
        )
        self._drift = CellsDrift(self._configuration, self.devices, self._metrics, options.drift_after)
        self._slices = PublishedDevicesWatch(self._client, self.devices, (self._tracker, self._drift), SYSTEM)
        self.watch = ClusterWatch(self._client, self._tracker, SYSTEM)
        decider = Decider(self._tracker, self._past, self._metrics)
        self._api = ExtenderApi(self._tracker, decider, self._binder, self, self._metrics.requests, pause=self._pause)
        self._holds = CellHolds(self._tracker)
        self._admission = self._admission_controller() if options.is_for_kueue else None
        self._stopped, self._reload = threading.Event(), threading.Event()
        self._is_recovered = False
        self.server: ExtenderServer | None = None
        self._pages: HttpServer | None = None

    def stop(self) -> None:
        """End ``run``; for signal handlers."""
        self._stopped.set()

    def reload(self) -> None:
        """Read the configuration again soon; for signal handlers."""
        self._reload.set()

    def run(self) -> None:
        """Serve until stopped; raises ``ExtenderFailed``."""
        try:
            self._begin()
            if self._is_first():
                self._recover()
                self._listen()
            self._loop()
        finally:
            self._end()

    @property
    def pages_port(self) -> int:
        """The port of the pages for probes and scrapes; 0 if they are not served."""
        return self._pages.port if self._pages is not None else 0

    def why_not(self) -> str:
        """See ``ostler.extender.lease.ActiveReplica``."""
        if self._lease is not None and not self._lease.may_act():
            holder = self._lease.holder or "nobody yet"
            return f"this replica is a standby: the lease {self._lease.name} belongs to {holder}, which answers instead"
        if not self._is_recovered:
            return "this replica is not ready: it has not read all nodes and pods yet"
        return ""

    def warn(self, pod: PodIdentity, reason: str, message: str) -> None:
        """See ``ostler.extender.states.PodReporter``."""
        subject = Subject("Pod", pod.name, pod.uid, namespace=pod.namespace, is_namespaced=True)
        self._poster.offer("Warning", reason, message, time.time(), subject)

    def report(self, workload: Subject, kind: str, reason: str, message: str) -> None:
        """See ``ostler.extender.check_writing.WorkloadReporter``."""
        self._poster.offer(kind, reason, message, time.time(), workload)

    def _admission_controller(self) -> AdmissionController:
        # Here and not above: an extender without Kueue loads none of it, which is 6 MB.
        from ostler.extender.admission import AdmissionController

        return AdmissionController(self._client, self._holds, self, self._metrics, replica=self, clocks=SYSTEM)

    def _begin(self) -> None:
        threading.Thread(target=self._poster.run, args=(self._client,), name="events", daemon=True).start()
        self._past.start()
        self._writer.start()
        if self._options.http:
            self._pages = HttpServer(_listener("--http", self._options.http), self._health())
            self._pages.start()
        if self._lease is not None:
            self._lease.start()

    def _is_first(self) -> bool:
        """Whether this replica is to act; if not it listens, and waits until it is or is stopped."""
        if self._lease is None:
            return True
        while not self._lease.acquired.wait(LOOK):
            if self._stopped.is_set():
                return False
            if self.server is None and (self._lease.holder or self._lease.failing):
                log.info("standby", extra={"lease": str(self._lease.name), "holder": self._lease.holder})
                self._listen()
        return True

    def _recover(self) -> None:
        began = time.monotonic()
        self._slices.start()
        if not self.watch.start(self._stopped):
            return
        while not self._slices.is_settled and not self._stopped.wait(SOON):
            """Wait: no pod may be placed on a bad device."""
        if self._admission is not None:
            self._admission.start(self._stopped)
        # The cells live as long as the process: a full collection would walk them all while the scheduler waits.
        gc.collect()
        gc.freeze()
        self._is_recovered = True
        seconds = round(time.monotonic() - began, 3)
        log.info("recovered", extra={"seconds": seconds, "pods": dict(self._tracker.counts())})

    def _listen(self) -> None:
        if self.server is None and not self._stopped.is_set():
            self.server = ExtenderServer(_listener("webServerAddress", self._address), self._api.answer, self._tls)
            self.server.start()
            extra = {"address": self._address, "port": self.server.port, "tls": self._tls is not None}
            log.info("answering schedulers", extra=extra)

    def _loop(self) -> None:
        looked = time.monotonic()
        while not self._stopped.wait(LOOK):
            if self._lease is not None and self._lease.lost.is_set():
                raise ExtenderFailed(
                    f"the lease {self._lease.name} is lost to {self._lease.holder or 'nobody'} "
                    f"({self._lease.failing or 'another replica took it'}); start again as a standby"
                )
            if self._reload.is_set() or time.monotonic() - looked > CONFIG_EVERY:
                self._reload.clear()
                self._read_again()
                looked = time.monotonic()
                self._drift.look(looked)
                self._tracker.try_again()

    def _read_again(self) -> None:
        try:
            text = read_config(self._options.config)
            if text == self._text:
                return
            self._text = text
            new = read_configuration(text, str(self._options.config))
            if new == self._configuration:
                return
            self._tracker.reconfigure(new)
        except (CellsConfigurationError, CellsUserError, ExtenderFailed) as error:
            self._metrics.reloads.add("refused")
            log.warning("the new configuration is not usable, the old one stays in force", extra={"error": str(error)})
            return
        for key in restart_keys(self._configuration.extender, new.extender):
            log.warning("a changed key takes effect with a restart only", extra={"key": key})
        self._drift.configure(new)
        self._configuration = new
        self._metrics.reloads.add("applied")
        log.info("configuration applied to the running pods", extra={"pods": dict(self._tracker.counts())})

    def _pause(self) -> None:
        time.sleep(min(self._configuration.extender.waiting_pod_scheduling_block_ms / 1000, MOST_PAUSE))

    def may_act(self) -> bool:
        """See ``ActiveReplica``."""
        return self._lease is None or self._lease.may_act()

    def _health(self) -> Pages:
        def livez() -> HttpPage:
            is_alive = self._tracker.is_responsive(_RESPONSIVE)
            return HttpPage.lines(is_alive, "ok" if is_alive else "the lock of the cells is not free")

        def readyz() -> HttpPage:
            reason = self.why_not()
            return HttpPage.lines(not reason, *((reason,) if reason else ("ready", *self._problems())))

        def metrics() -> HttpPage:
            # Here and not above: the first scrape loads Prometheus' library.
            from ostler.metrics.exposition import CONTENT_TYPE, exposed

            tracker = self._tracker
            holds = len(self._holds.holders())
            state = ExtenderState(tracker.counts(), tracker.bad_counts(), holds, is_active=not self.why_not())
            return HttpPage(200, CONTENT_TYPE, exposed(ExtenderFigures(self._metrics, state).collect))

        return {"/livez": livez, "/healthz": livez, "/readyz": readyz, "/metrics": metrics}

    def _problems(self) -> tuple[str, ...]:
        """Why what is known may be outdated, and what differs, one line each."""
        admission = self._admission.problems if self._admission is not None else ()
        return (*self.watch.problems, *admission, *self._drift.lines)

    def _end(self) -> None:
        for server in (self.server, self._pages):
            if server is not None:
                server.close()
        if self._admission is not None:
            self._admission.stop()
        self.watch.stop()
        self._slices.stop()
        self._past.close()
        self._writer.close()
        if self._lease is not None:
            self._lease.release()
        self._poster.close()
        self._client.close()


def read_config(path: Path) -> str:
    """The configuration's text; raises ``ExtenderFailed``."""
    try:
        data = read_named_file(path, MOST_CONFIG)
    except OSError as error:
        why = error.strerror or error
        raise ExtenderFailed(f"--config: {path} cannot be read ({why}); give the cells' configuration") from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ExtenderFailed(f"--config: {path} is not UTF-8 (byte {error.start}); write it as UTF-8") from error


def address_of(settings: ExtenderSettings, *, has_tls: bool) -> str:
    """Where to listen; raises ``ExtenderFailed`` for an address that may not be served without TLS."""
    address = settings.web_server_address or (":9096" if has_tls else "127.0.0.1:9096")
    try:
        if has_tls or is_local(address):
            return address
    except AddressInvalid as error:
        raise ExtenderFailed(f"webServerAddress: {error}") from error
    raise ExtenderFailed(
        f"webServerAddress: {address} can be reached from other machines, where anybody could place and evict pods; "
        "write 127.0.0.1:9096, or give --tls-cert, --tls-key and --tls-client-ca"
    )


def api_access(settings: ExtenderSettings, environment: Mapping[str, str]) -> Access:
    """How to reach the API server; raises ``kube.errors.ConfigurationError``."""
    server = settings.kube_api_server_address or environment.get("KUBE_APISERVER_ADDRESS", "")
    named = settings.kube_config_file_path or environment.get("KUBECONFIG", "").partition(":")[0]
    home = Path(environment.get("HOME", "/nonexistent")) / ".kube/config"
    if named or home.exists():
        access = from_kubeconfig(Path(named) if named else home)
    elif runs_in_cluster(environment) or not server:
        access = in_cluster(environment)
    else:
        access = Access(server, "kubeApiServerAddress", FixedCredentials("no credential (no kubeconfig is given)"))
    return replace(access, server=server.rstrip("/")) if server else access


def restart_keys(old: ExtenderSettings, new: ExtenderSettings) -> tuple[str, ...]:
    """Changed keys that a running process does not take over."""
    keys = {
        "kubeApiServerAddress": old.kube_api_server_address != new.kube_api_server_address,
        "kubeConfigFilePath": old.kube_config_file_path != new.kube_config_file_path,
        "webServerAddress": old.web_server_address != new.web_server_address,
    }
    return tuple(key for key, is_changed in keys.items() if is_changed)


def default_lease(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> LeaseName | None:
    """The lease of a replica in a pod; None outside, where nobody else runs."""
    if not runs_in_cluster(environment, folder):
        return None
    error = f"{folder}: namespace: cannot be read or is empty; give --lease NAMESPACE/NAME"
    try:
        namespace = in_cluster(environment, folder).namespace
    except ConfigurationError as unusable:
        namespace, error = "", str(unusable)
    if namespace:
        return LeaseName(namespace, COMPONENT)
    log.warning("no lease: every replica acts, since the service account is not usable", extra={"error": error})
    return None


def _listener(key: str, address: str) -> socket.socket:
    try:
        return listen(address)
    except (OSError, AddressInvalid) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise ExtenderFailed(
            f"{key}: cannot listen at {address} ({reason}); give a free address of this machine"
        ) from error
