"""The pod, over many combinations of values: what it may do, what it sees, and that all of it is documented."""

from __future__ import annotations

import itertools
import re

import pytest

from deploy.generate import CHART
from tests.deploy.chart.rendering import (
    Document,
    Values,
    container_of,
    of_kind,
    only,
    pod_of,
    render,
    run_helm,
)

pytestmark = pytest.mark.timeout(900)  # the first test may have to build Helm

COMBINATIONS: list[Values] = [
    {
        "nvidia": {"access": access, "mig": mig},
        "nics": {"enabled": nics, "udev": udev},
        "config": {"defaults": options},
        "events": {"enabled": events},
        "machineIdFile": machine_id,
    }
    for access, mig, (nics, udev), options, (events, machine_id) in itertools.product(
        ("runtime", "privileged", "none"),
        (False, True),
        ((False, True), (True, False), (True, True)),
        (
            {},
            {"deviceListStrategy": ["envvar", "cdi-cri"]},
            {"deviceListStrategy": ["cdi-cri"], "cdiMode": "full", "hook": "/usr/bin/nvidia-cdi-hook"},
            {"deviceListStrategy": ["cdi-annotations"], "cdiMode": "delegate"},
        ),
        ((True, "/etc/machine-id"), (False, "")),
    )
]
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))

# Every pair of choices is in it several times; all of them take a minute.
SAMPLE = COMBINATIONS[::5]


@pytest.mark.parametrize("values", SAMPLE, ids=str)
def test_every_combination_keeps_the_rules(values: Values) -> None:
    documents = render(values)
    _check_container(documents, privileged=values["nvidia"]["access"] == "privileged", mig=values["nvidia"]["mig"])
    _check_update(documents)
    _check_mounts(documents)
    assert pod_of(documents).get("hostNetwork", False) is values["nics"]["enabled"]
    assert pod_of(documents)["automountServiceAccountToken"] is values["events"]["enabled"]
    mounted = {volume["name"] for volume in pod_of(documents)["volumes"]}
    options = values["config"]["defaults"]
    assert ("udev" in mounted) is (values["nics"]["enabled"] and values["nics"]["udev"])
    assert ("machine-id" in mounted) is bool(values["machineIdFile"])
    assert ("cdi" in mounted) is bool(options)
    assert ("etc-cdi" in mounted) is (options.get("cdiMode") == "delegate")
    full = options.get("cdiMode") == "full"
    assert ("driver" in mounted) is (values["nvidia"]["access"] == "privileged" or full)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_every_example_renders_and_is_linted(example: object) -> None:
    documents = render(None, "--values", str(example))
    _check_mounts(documents)
    answer = run_helm("lint", "--strict", "--values", str(example), str(CHART))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_example_is_in_the_readme() -> None:
    readme = (CHART / "README.md").read_text()
    assert {f"examples/{example.name}" for example in EXAMPLES} == set(re.findall(r"\((examples/[^)]+)\)", readme))


def test_the_defaults_pass_strict_lint() -> None:
    answer = run_helm("lint", "--strict", str(CHART))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_the_defaults_have_no_privilege() -> None:
    documents = render()
    pod, container = pod_of(documents), container_of(documents)
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert pod["priorityClassName"] == "system-node-critical"


def test_the_pod_is_root_of_the_node_and_asks_for_nothing_of_the_cluster() -> None:
    """The image's own user is another one, to whom the kubelet's folders are closed."""
    pod = pod_of(render())
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (0, 0)
    assert pod["hostUsers"] is True
    assert (pod["dnsPolicy"], pod["enableServiceLinks"]) == ("Default", False)


def test_what_is_given_for_the_pods_arrives_in_them() -> None:
    documents = render(
        {
            "seLinuxOptions": {"type": "spc_t"},
            "imagePullSecrets": ["one", "two"],
            "runtimeClassName": "nvidia",
            "podLabels": {"team": "a"},
            "podAnnotations": {"note": "b"},
            "maxSurge": "10%",
        }
    )
    daemon_set, pod = only(documents, "DaemonSet"), pod_of(documents)
    assert pod["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert pod["runtimeClassName"] == "nvidia"
    template = daemon_set["spec"]["template"]["metadata"]
    assert (template["labels"]["team"], template["annotations"]) == ("a", {"note": "b"})
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == "10%"


def test_virtual_functions_need_a_part_of_sys_and_no_capability() -> None:
    values: Values = {"nics": {"enabled": True, "virtualFunctions": True}}
    documents = render(values)
    container, volumes = container_of(documents), pod_of(documents)["volumes"]
    (volume,) = (each["hostPath"] for each in volumes if each["name"] == "sys-devices")
    assert volume == {"path": "/sys/devices", "type": "Directory"}
    assert {"name": "sys-devices", "mountPath": "/sys/devices"} in container["volumeMounts"]
    assert container["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    # A privileged container may write to /sys anyway.
    privileged = render({**values, "nvidia": {"access": "privileged"}})
    assert "sys-devices" not in {each["name"] for each in pod_of(privileged)["volumes"]}
    assert "appArmorProfile" not in container_of(privileged)["securityContext"]


def test_interfaces_that_move_need_two_capabilities_the_runtime_and_the_namespaces_of_pods() -> None:
    values: Values = {"nics": {"enabled": True, "moveInterfaces": True}, "dra": {"enabled": True}}
    documents = render(values)
    container, volumes = container_of(documents), pod_of(documents)["volumes"]
    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["NET_ADMIN", "NET_BROADCAST", "SYS_ADMIN"],
    }
    assert "privileged" not in container["securityContext"]
    assert container["securityContext"]["appArmorProfile"] == {"type": "Unconfined"}
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert mounts["netns"]["mountPropagation"] == "HostToContainer"
    for name in ("nri", "netns"):
        (folder,) = (each["hostPath"] for each in volumes if each["name"] == name)
        assert folder == {"path": f"/var/run/{name}", "type": "DirectoryOrCreate"}
        assert mounts[name]["readOnly"] is True
    # Only the rights that are asked for: without the value the pod is as it was.
    without = container_of(render({**values, "nics": {"enabled": True}}))
    assert without["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not {"nri", "netns"} & {each["name"] for each in without["volumeMounts"]}


def test_interfaces_that_move_ask_the_api_server_for_nothing_more() -> None:
    values: Values = {"nics": {"enabled": True}, "dra": {"enabled": True}}
    moving: Values = {**values, "nics": {"enabled": True, "moveInterfaces": True}}
    kinds = ("ClusterRole", "Role", "ValidatingAdmissionPolicy")
    assert [of_kind(render(moving), kind) for kind in kinds] == [of_kind(render(values), kind) for kind in kinds]


def test_a_wrong_path_is_an_event_of_the_pod_and_only_our_own_folders_are_made() -> None:
    values: Values = {
        "cdiAccess": "always",
        "config": {"defaults": {"deviceListStrategy": ["cdi-cri"], "cdiMode": "delegate"}},
        "nvidia": {"access": "privileged"},
        "nics": {"enabled": True},
    }
    volumes = pod_of(render(values))["volumes"]
    types = {volume["name"]: volume["hostPath"]["type"] for volume in volumes if "hostPath" in volume}
    made = {name for name, kind in types.items() if kind == "DirectoryOrCreate"}
    assert made == {"state", "cdi", "etc-cdi"}
    assert types.pop("machine-id") == "File"
    assert {kind for name, kind in types.items() if name not in made} == {"Directory"}
    (run,) = (volume for volume in volumes if volume["name"] == "run")
    # In memory, so it counts as the container's: not more of it than a socket takes.
    assert run["emptyDir"] == {"medium": "Memory", "sizeLimit": "1Mi"}


def test_a_start_may_take_a_minute_and_the_last_words_are_kept() -> None:
    container = container_of(render())
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 30
    assert container["terminationMessagePath"] == "/run/termination-log"
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_labels_annotations_and_the_interval_arrive() -> None:
    labels = {"release": "prometheus"}
    documents = render(
        {
            "commonLabels": {"team": "a"},
            "podMonitor": {"enabled": True, "labels": labels, "interval": "1m"},
            "prometheusRule": {"enabled": True, "labels": labels},
            "serviceAccount": {"annotations": {"note": "b"}},
        }
    )
    assert all(document["metadata"]["labels"]["team"] == "a" for document in documents)
    for kind in ("PodMonitor", "PrometheusRule"):
        assert only(documents, kind)["metadata"]["labels"]["release"] == "prometheus"
    assert only(documents, "PodMonitor")["spec"]["podMetricsEndpoints"][0]["interval"] == "1m"
    assert only(documents, "ServiceAccount")["metadata"]["annotations"] == {"note": "b"}


def test_rules_that_use_cdi_mount_its_folder_for_writing() -> None:
    rule = {"name": "nvidia.com/gpu", "devices": {"kind": "gpu"}, "deviceListStrategy": ["cdi-cri"]}
    documents = render({"config": {"resources": [rule]}, "cdiRoot": "/run/other/cdi"})
    assert _host_paths(documents)["cdi"] == "/run/other/cdi"
    assert _mount(documents, "cdi") == {"name": "cdi", "mountPath": "/var/run/cdi"}


def test_cdi_folders_are_mounted_when_the_values_say_so() -> None:
    assert "cdi" in _host_paths(render({"cdiAccess": "always"}))
    assert "cdi" not in _host_paths(render())


@pytest.mark.parametrize(
    ("root", "full", "host", "inside"),
    [
        ("/", False, "/usr", "/driver-root/usr"),
        ("/", True, "/", "/driver-root"),
        ("/run/nvidia/driver", False, "/run/nvidia/driver", "/driver-root"),
        ("/run/nvidia/driver/", True, "/run/nvidia/driver", "/driver-root"),
    ],
)
def test_no_more_of_the_driver_root_is_mounted_than_is_read(root: str, full: bool, host: str, inside: str) -> None:
    options = {"deviceListStrategy": ["cdi-cri"], "cdiMode": "full", "hook": "/usr/bin/nvidia-cdi-hook"} if full else {}
    documents = render({"nvidia": {"access": "privileged"}, "driverRoot": root, "config": {"defaults": options}})
    assert _host_paths(documents)["driver"] == host
    assert _mount(documents, "driver")["mountPath"] == inside
    assert _mount(documents, "driver")["readOnly"] is True


def test_mounts_are_followed_only_into_the_root_of_a_driver_container() -> None:
    """A node whose mounts are not shared starts no container that asks for propagation."""
    privileged: Values = {"nvidia": {"access": "privileged"}}
    for mount in container_of(render(privileged))["volumeMounts"]:
        assert "mountPropagation" not in mount
    documents = render({**privileged, "driverRoot": "/run/nvidia/driver", "devRoot": "/"})
    assert _mount(documents, "driver")["mountPropagation"] == "HostToContainer"
    assert "mountPropagation" not in _mount(documents, "dev")


def test_read_only_reaches_what_is_mounted_below_where_the_cluster_knows_how() -> None:
    values: Values = {"nvidia": {"access": "privileged"}}
    for name in ("dev", "driver"):
        assert _mount(render(values, "--kube-version", "1.33.0"), name)["recursiveReadOnly"] == "IfPossible"
        assert "recursiveReadOnly" not in _mount(render(values, "--kube-version", "1.32.9"), name)
    # The API server refuses the two together.
    documents = render({**values, "driverRoot": "/run/nvidia/driver"})
    assert "recursiveReadOnly" not in _mount(documents, "driver")


@pytest.mark.parametrize(("nvidia", "root"), [({}, "/run/nvidia/mps"), ({"mpsRoot": "/run/mps/"}, "/run/mps/")])
def test_daemons_of_mps_have_their_folders_where_pods_get_them(nvidia: Values, root: str) -> None:
    rule = {"name": "nvidia.com/gpu", "sharing": {"strategy": "mps", "replicas": 4}}
    documents = render(
        {"nvidia": {"access": "privileged", "mps": True}, "config": {"nvidia": nvidia, "resources": [rule]}}
    )
    if not nvidia:  # the table has the default
        _check_mounts(documents)
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod_of(documents)["volumes"]}
    assert paths["mps"] == _mount(documents, "mps")["mountPath"] == root
    assert _mount(documents, "mps")["mountPropagation"] == "Bidirectional"
    assert container_of(documents)["securityContext"]["privileged"] is True, "only such containers may propagate mounts"
    assert "mps" not in {volume["name"] for volume in pod_of(render({}))["volumes"]}


def test_a_privileged_agent_sees_the_nodes_own_device_folder() -> None:
    assert _mount(render({"nvidia": {"access": "privileged"}}), "dev")["mountPath"] == "/dev"
    assert _mount(render(), "dev")["mountPath"] == "/host/dev"


def test_folders_of_the_kubelet_follow_their_values_and_stay_where_the_agent_expects_them() -> None:
    documents = render(None, "--values", str(CHART / "examples" / "k0s.yaml"))
    paths = _host_paths(documents)
    assert paths["plugins-registry"] == "/var/lib/k0s/kubelet/plugins_registry"
    assert paths["device-plugins"] == "/var/lib/kubelet/device-plugins"
    assert _mount(documents, "plugins-registry")["mountPath"] == "/var/lib/kubelet/plugins_registry"
    documents = render(None, "--values", str(CHART / "examples" / "microk8s.yaml"))
    paths = _host_paths(documents)
    assert paths["plugins-registry"] == "/var/snap/microk8s/common/var/lib/kubelet/plugins_registry"
    assert paths["device-plugins"] == "/var/snap/microk8s/common/var/lib/kubelet/device-plugins"


def test_the_device_folder_follows_its_own_root_and_else_the_drivers() -> None:
    assert _host_paths(render())["dev"] == "/dev"
    assert _host_paths(render({"driverRoot": "/run/nvidia/driver"}))["dev"] == "/run/nvidia/driver/dev"
    assert _host_paths(render({"driverRoot": "/run/nvidia/driver", "devRoot": "/"}))["dev"] == "/dev"


def test_node_feature_discovery_selects_nodes_of_the_vendors_named() -> None:
    documents = render({"nodeFeatureDiscovery": ["nvidia", "amd"], "affinity": {"podAffinity": {}}})
    affinity = pod_of(documents)["affinity"]
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    keys = {term["matchExpressions"][0]["key"] for term in terms}
    assert len(keys) == len(terms)
    classes = {"10de", "0300_10de", "0302_10de", "1002", "0300_1002", "0380_1002", "1200_1002"}
    assert keys == {f"feature.node.kubernetes.io/pci-{each}.present" for each in classes}
    assert "podAffinity" in affinity


def test_gpu_taints_do_not_keep_the_agent_away() -> None:
    tolerated = {toleration["key"] for toleration in pod_of(render())["tolerations"]}
    assert {"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"} <= tolerated


def test_a_node_without_gpus_can_be_chosen_for_tests() -> None:
    documents = render(
        {
            "nodeSelector": {"kubernetes.io/os": None},
            "tolerations": [],
            "priorityClassName": "",
            "image": {"repository": "localhost/ostler", "tag": "test", "pullPolicy": "Never"},
        }
    )
    pod, container = pod_of(documents), container_of(documents)
    assert not {"affinity", "tolerations", "priorityClassName"} & set(pod)
    assert pod["nodeSelector"] == {}
    assert (container["image"], container["imagePullPolicy"]) == ("localhost/ostler:test", "Never")


def test_a_digest_wins_over_the_tag() -> None:
    digest = f"sha256:{'ab' * 32}"
    documents = render({"image": {"repository": "registry.example:5000/x/ostler", "tag": "1", "digest": digest}})
    assert container_of(documents)["image"] == f"registry.example:5000/x/ostler@{digest}"


def test_words_to_nvidias_runtime_are_said_only_where_it_is_used() -> None:
    def words(access: str, mig: bool) -> set[str]:
        container = container_of(render({"nvidia": {"access": access, "mig": mig}}))
        return {each["name"] for each in container["env"] if each["name"].startswith("NVIDIA_")}

    assert words("runtime", False) == {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"}
    assert "NVIDIA_MIG_MONITOR_DEVICES" in words("runtime", True)
    assert words("privileged", True) == words("none", False) == set()


def _check_container(documents: list[Document], *, privileged: bool, mig: bool) -> None:
    security = container_of(documents)["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security.get("privileged", False) is privileged
    if privileged:
        # The API server refuses privileged without escalation.
        assert "allowPrivilegeEscalation" not in security
        return
    assert security["capabilities"]["drop"] == ["ALL"]
    takes_admin = mig and "NVIDIA_VISIBLE_DEVICES" in {each["name"] for each in container_of(documents)["env"]}
    assert security["capabilities"].get("add", []) == (["SYS_ADMIN"] if takes_admin else [])
    assert security.get("allowPrivilegeEscalation") is (None if takes_admin else False)


def _check_update(documents: list[Document]) -> None:
    strategy = only(documents, "DaemonSet")["spec"]["updateStrategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    # A declared port of a pod in the node's network would keep the second pod of an update off the node.
    assert "ports" not in container_of(documents)
    assert pod_of(documents)["terminationGracePeriodSeconds"] == 10


def _check_mounts(documents: list[Document]) -> None:
    documented = _documented_mounts()
    mounts = container_of(documents)["volumeMounts"]
    volumes = {volume["name"] for volume in pod_of(documents)["volumes"]}
    assert {mount["name"] for mount in mounts} == volumes
    for mount in mounts:
        path = mount["mountPath"].removesuffix("/usr")
        written = "read-only" if mount.get("readOnly") else "read-write"
        assert (path, written) in documented, f"{path} ({written}) is not in the table of README.md"


def _documented_mounts() -> set[tuple[str, str]]:
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \| (read-\w+) \|", (CHART / "README.md").read_text(), re.MULTILINE)
    assert rows
    return set(rows)


def _host_paths(documents: list[Document]) -> dict[str, str]:
    volumes = pod_of(documents)["volumes"]
    return {volume["name"]: volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume}


def _mount(documents: list[Document], name: str) -> Document:
    (found,) = (mount for mount in container_of(documents)["volumeMounts"] if mount["name"] == name)
    return dict(found)
