"""The plain manifests, taken by a real API server; one of them is run."""

from __future__ import annotations

import re

import pytest

from deploy.generate import MANIFESTS, NAMESPACE, VARIANTS
from tests.cluster.chart.release import Release
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.processes import wait_until
from tests.deploy.image.build import NAME

pytestmark = pytest.mark.timeout(1200)  # the first test may have to build the image


@pytest.fixture
def namespace(cluster: RigCluster) -> None:
    """The namespace of the manifests: a dry run makes none, and then refuses what would be in it."""
    cluster.kubectl("create", "namespace", NAMESPACE, check=False)


@pytest.mark.usefixtures("namespace")
def test_the_api_server_takes_every_manifest(cluster: RigCluster) -> None:
    assert sorted(path.stem for path in MANIFESTS.glob("*.yaml")) == sorted(VARIANTS)
    files = [word for name in VARIANTS for word in ("-f", str(MANIFESTS / f"{name}.yaml"))]
    # Strict: an unknown or a doubled field is refused, too.
    shown = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-o", "name", *files).split()
    assert shown.count("daemonset.apps/ostler") == len(VARIANTS)
    assert shown.count("validatingadmissionpolicy.admissionregistration.k8s.io/ostler-events") == len(VARIANTS)


def test_the_plain_manifest_is_applied_serves_and_is_deleted(
    release: Release, cluster: RigCluster, node: RigNode
) -> None:
    text = (MANIFESTS / "ostler.yaml").read_text()
    own, images = re.subn(r"image: .*", f"image: {NAME}", text)
    assert images == 1
    cluster.kubectl("apply", "-f", "-", text=own)
    try:
        cluster.kubectl("-n", NAMESPACE, "rollout", "status", "daemonset/ostler", "--timeout=240s")

        def says() -> tuple[str, bool, str]:
            status = release.ask("status")
            return status["role"], status["ready"], status["node_name"]

        wait_until("the agent is active and ready", lambda: says() == ("active", True, node.name))
    finally:
        cluster.kubectl("delete", "-f", "-", "--timeout=240s", text=own)
    wait_until("nothing is left", lambda: not release.agents())
    assert release.objects() == []
