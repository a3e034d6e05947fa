"""One active replica by a Lease: who gets it, who keeps it, and when it is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube.access import Access, FixedCredentials
from kube.backoff import BackoffPolicy
from kube.client import Client, RequestLimits
from node.clocks import SystemClocks
from ostler.extender.lease import LeaseHolder, LeaseName, LeaseTiming
from ostler.extender.process import default_lease
from tests.kube.authority import Authority
from tests.making.extender_cluster import ClusterApi
from tests.waiting import until

NAME = LeaseName("kube-system", "ostler-extender")
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
FAST = LeaseTiming(duration=15.0, renewal=10.0, retry=0.02)


class _Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    with ClusterApi() as made:
        yield made


def client_of(api: ClusterApi) -> Client:
    access = Access(api.url, "a test", FixedCredentials("none"))
    return Client(
        access, random=lambda: 0.5, limits=RequestLimits(whole=10.0), policy=BackoffPolicy(first=0.001, most=0.002)
    )


def holder(api: ClusterApi, identity: str, clock: _Clock) -> LeaseHolder:
    clocks = SystemClocks(monotonic=clock, clock=lambda: 1.7e9)
    made = LeaseHolder(client_of(api), NAME, identity, timing=FAST, clocks=clocks)
    made.start()
    return made


def spec(api: ClusterApi) -> dict[str, Any]:
    found = api.get("Lease", NAME.name, NAME.namespace)
    return {} if found is None else dict(found["spec"])


def test_the_first_gets_it_and_the_second_waits_until_it_is_released(api: ClusterApi) -> None:
    clock = _Clock()
    first = holder(api, "first", clock)
    until(first.may_act, "the first acts")
    second = holder(api, "second", clock)
    until(lambda: second.holder == "first", "the second knows who holds it")
    assert not second.may_act()
    first.release()
    until(second.may_act, "the second has taken over")
    assert not first.may_act()
    assert spec(api)["holderIdentity"] == "second"
    assert spec(api)["leaseTransitions"] == 1
    second.release()
    assert spec(api)["holderIdentity"] == ""


def test_a_holder_that_vanished_is_succeeded_after_the_lease_has_not_changed_for_its_duration(api: ClusterApi) -> None:
    clock = _Clock()
    first = holder(api, "first", clock)
    until(first.may_act, "the first acts")
    first._stopped.set()
    first._thread.join()
    second = holder(api, "second", clock)
    until(lambda: second.holder == "first", "the second knows who holds it")
    clock.now += 14.0
    assert not second.acquired.wait(0.1)
    clock.now += 1.5
    until(second.may_act, "the second has taken over")
    assert not first.may_act()
    second.release()


def test_a_holder_that_cannot_renew_stops_before_others_may_begin(api: ClusterApi) -> None:
    clock = _Clock()
    first = holder(api, "first", clock)
    until(first.may_act, "the first acts")
    api.refusals["leases/ostler-extender"] = (500, "etcd has no leader")
    until(lambda: first.failing, "it failed to renew")
    assert first.may_act()
    clock.now += FAST.renewal
    assert not first.may_act()
    until(first.lost.is_set, "it is lost")
    assert "etcd has no leader" in first.failing


def test_a_lease_that_somebody_else_took_is_lost_at_once(api: ClusterApi) -> None:
    first = holder(api, "first", _Clock())
    until(first.may_act, "the first acts")
    until(lambda: _taken(api), "another holder is written")
    until(first.lost.is_set, "it is lost")
    assert first.holder == "thief"


def _taken(api: ClusterApi) -> bool:
    lease = api.get("Lease", NAME.name, NAME.namespace)
    assert lease is not None
    lease["spec"]["holderIdentity"] = "thief"
    api.put(lease)
    return True


def test_a_replica_that_restarts_with_its_identity_goes_on(api: ClusterApi) -> None:
    clock = _Clock()
    first = holder(api, "same", clock)
    until(first.may_act, "it acts")
    acquired = spec(api)["acquireTime"]
    again = holder(api, "same", clock)
    until(again.may_act, "it acts again")
    assert (spec(api)["acquireTime"], spec(api)["leaseTransitions"]) == (acquired, 0)
    first.release()
    again.release()


def test_a_broken_service_account_gives_no_lease_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "namespace").write_text("kube-system")
    assert default_lease(IN_A_POD, tmp_path) is None
    (line,) = caplog.records
    assert line.message == "no lease: every replica acts, since the service account is not usable"
    assert str(tmp_path / "ca.crt") in vars(line)["error"]


@pytest.mark.parametrize("content", [None, "", " \n", b"\xff"])
def test_a_service_account_without_a_namespace_gives_no_lease_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str | bytes | None
) -> None:
    account = _account(tmp_path, content)
    assert default_lease(IN_A_POD, account) is None
    (line,) = caplog.records
    assert line.levelname == "WARNING"
    assert line.message == "no lease: every replica acts, since the service account is not usable"
    assert vars(line)["error"] == f"{account}: namespace: cannot be read or is empty; give --lease NAMESPACE/NAME"


def test_a_replica_in_a_pod_has_the_lease_of_its_namespace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert default_lease(IN_A_POD, _account(tmp_path, "kube-system\n")) == NAME
    assert not caplog.records


def _account(folder: Path, namespace: str | bytes | None) -> Path:
    """A service account's folder; ``namespace``: its file's content, None for no such file."""
    authority = Authority(folder)
    (folder / "token").write_text("secret")
    (folder / "ca.crt").write_bytes(authority.certificate.read_bytes())
    if namespace is not None:
        (folder / "namespace").write_bytes(namespace if isinstance(namespace, bytes) else namespace.encode())
    return folder
