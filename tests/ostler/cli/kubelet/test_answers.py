"""``ostler kubelet``: answers that are seldom asked for."""

from __future__ import annotations

from tests.making.kubelet_scripts import PLAIN, THING, KubeletScript
from tests.making.namespaces import needs_namespaces


def test_help_and_a_checkpoint_that_is_not_there_yet(script: KubeletScript) -> None:
    out = script.run("help", "checkpoint", "claims", command=(), options=("--with-apiserver",))
    assert "  admit FILE ...                    admit the pods of manifests; show what each container gets\n" in out
    assert "/kubelet_internal_checkpoint: no checkpoint yet; the kubelet writes it at the first list\n" in out
    assert out.endswith("kubelet> claims\nno claim\n")


@needs_namespaces
def test_table_of_all_resources_has_the_first_devices_of_each(script: KubeletScript) -> None:
    command = (*PLAIN, "--devices", "70")
    out = script.run("resources", f"resources {THING}", "resources", command=command)
    some, all_, _ = out.split("kubelet> resources")[1:]
    assert some.endswith(f"  dev-63  Healthy  1     -\n  ... and 6 more; 'resources {THING}' lists all\n")
    assert all_.endswith("  dev-69  Healthy  1     -\n")
    none = script.run("resources", command=(*PLAIN, "--devices", "0"))
    assert none == (
        f"kubelet> resources\nRESOURCE             CAPACITY  ALLOCATABLE  IN USE\n{THING}  0         0            0\n"
    )


@needs_namespaces
def test_plugin_is_restarted_without_a_kubelet_and_registers_later(script: KubeletScript) -> None:
    out = script.run("kill", "restart plugin", "restart", "resources", command=(*PLAIN, "--door", "watcher"))
    assert (
        "kubelet> restart plugin\nthe plugin is restarted; before, it ended with exit code 0\n"
        "the kubelet is not running\nkubelet> restart\nthe kubelet is restarted\nregistered: plain.example/thing\n"
    ) in out
