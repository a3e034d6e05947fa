"""A node whose GPUs are at both doors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.components.versions import has_dra_gates
from tests.cluster.dra.claims import TEMPLATES
from tests.cluster.dra.classes import apply_classes
from tests.cluster.dra.conftest import DraStage, claims, classes, lists_claims, run_driver, stage
from tests.cluster.ledger.by_hand import ByHand
from tests.cluster.ledger.storm import GPU, Storm
from tests.cluster.rig.api import Object
from tests.cluster.rig.cluster import RigCluster

__all__ = ["claims", "classes", "lists_claims", "run_driver", "stage"]

BOTH: Object = {"name": GPU, "door": "both", "devices": {"kind": "gpu"}}


@pytest.fixture
def taints_kept(cluster: RigCluster) -> None:
    """Only on servers that keep device taints."""
    if not has_dra_gates(cluster.version):
        pytest.skip("this Kubernetes drops device taints, so that both acts as plugin")


@pytest.fixture
def by_hand(stage: DraStage) -> Iterator[ByHand]:
    """Jobs of this test, and the word on what their claims get."""
    made = ByHand(stage.cluster.api, stage.node, stage.pods)
    yield made
    made.remove()


@pytest.fixture
def shared_name(cluster: RigCluster, classes: None) -> Iterator[None]:
    """A class serves the plugin's resource by its name as well."""
    apply_classes(cluster, f"dra.extendedResources={{{GPU}}}")
    yield
    cluster.kubectl("delete", "deviceclass", GPU.replace("/", "-"), "--ignore-not-found")


@pytest.fixture
def storm(stage: DraStage, taints_kept: None) -> Iterator[Storm]:
    """Eight GPUs, and the templates of their claims."""
    made = Storm(stage.cluster.api, stage.node, 8)
    for template in made.templates():
        stage.cluster.api.create(TEMPLATES, template)
    yield made
    made.remove()
