from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings

from node.cdi.spec import CdiError, Spec, encode, minimum_version, validate
from node.edits.model import ContainerEdits, HookEdit, MountEdit, NodeEdit
from tests.making.cdi_specs import KIND, any_specs, device, good_specs, node, spec
from tests.node.cdi.judging import faults, judged

UUID = f"CDI {KIND}=GPU-0"


def hook(**changes: object) -> ContainerEdits:
    return ContainerEdits(hooks=(replace(HookEdit("createContainer", "/bin/true"), **changes),))  # type: ignore[arg-type]


def one(edits: ContainerEdits) -> Spec:
    return spec(device(edits=edits))


LETTERS = "start both with a letter, end with a letter or digit"
NAMES = "use letters, digits and inside also _ - . :"
UNSPEAKABLE = "contains a NUL or bytes that are not UTF-8; rename the file or variable"

REFUSED: dict[str, tuple[Spec, str]] = {
    "kind without class": (spec(kind="gpu"), f"CDI kind 'gpu': is not vendor/class; {LETTERS}"),
    "kind with two slashes": (spec(kind="a/b/c"), f"CDI kind 'a/b/c': is not vendor/class; {LETTERS}"),
    "vendor starts with a digit": (spec(kind="1a/b"), f"CDI kind '1a/b': is not vendor/class; {LETTERS}"),
    "class ends with a dash": (spec(kind="a/b-"), f"CDI kind 'a/b-': is not vendor/class; {LETTERS}"),
    "kind ends with a line": (spec(kind="a/b\n"), f"CDI kind 'a/b\\n': is not vendor/class; {LETTERS}"),
    "vendor in capitals": (
        spec(kind="NVIDIA.com/gpu"),
        "CDI kind 'NVIDIA.com/gpu': the vendor is not a DNS subdomain; use lower-case letters, digits, - and .",
    ),
    "vendor with an empty label": (
        spec(kind="a..b/c"),
        "CDI kind 'a..b/c': the vendor is not a DNS subdomain; use lower-case letters, digits, - and .",
    ),
    "vendor too long": (
        spec(kind=f"{'a' * 254}/c"),
        f"CDI kind '{'a' * 254}/c': the vendor is not a DNS subdomain; use lower-case letters, digits, - and .",
    ),
    "class too long": (
        spec(kind=f"a/{'b' * 64}"),
        f"CDI kind 'a/{'b' * 64}': the class has more than 63 characters; shorten it",
    ),
    "no devices": (Spec(KIND, ()), f"CDI {KIND}: a spec has no devices; write no file for it"),
    "empty device name": (spec(device("")), f"CDI {KIND}=: '' is not a device name; {NAMES}"),
    "device name with a slash": (spec(device("a/b")), f"CDI {KIND}=a/b: 'a/b' is not a device name; {NAMES}"),
    "device name ends with a colon": (spec(device("0:")), f"CDI {KIND}=0:: '0:' is not a device name; {NAMES}"),
    "device named twice": (spec(device(), device()), f"{UUID}: the device is there twice; name it once"),
    "device without edits": (
        one(ContainerEdits()),
        f"{UUID}: a device without edits; give it at least a device node",
    ),
    "variable without a name": (
        one(ContainerEdits(env=(("", "1"),))),
        f"{UUID}: '' is not a variable name; use a name without =",
    ),
    "variable with = in its name": (
        one(ContainerEdits(env=(("A=B", "1"),))),
        f"{UUID}: 'A=B' is not a variable name; use a name without =",
    ),
    "variable with NUL": (one(ContainerEdits(env=(("A", "x\0"),))), f"{UUID}: 'x\\x00' {UNSPEAKABLE}"),
    "relative node": (
        one(ContainerEdits(nodes=(NodeEdit("dev/a", "/dev/a"),))),
        f"{UUID}: the path 'dev/a' of a device node is not absolute; start it with /",
    ),
    "relative host node": (
        one(ContainerEdits(nodes=(NodeEdit("/dev/a", ""),))),
        f"{UUID}: the path '' of a device node is not absolute; start it with /",
    ),
    "permissions": (
        one(ContainerEdits(nodes=(node(permissions="rx"),))),
        f"{UUID}: permissions 'rx' of /dev/nvidia0; use letters out of rwm",
    ),
    "relative mount on the host": (
        one(ContainerEdits(mounts=(MountEdit("lib", "/lib"),))),
        f"{UUID}: the path 'lib' of a mount is not absolute; start it with /",
    ),
    "relative mount in the container": (
        one(ContainerEdits(mounts=(MountEdit("/lib", "lib"),))),
        f"{UUID}: the path 'lib' of a mount is not absolute; start it with /",
    ),
    "relative hook": (one(hook(path="true")), f"{UUID}: the path 'true' of a hook is not absolute; start it with /"),
    "unknown stage": (
        one(hook(stage="create")),
        (
            f"{UUID}: hook stage 'create' is unknown; use one of prestart, createRuntime, createContainer, "
            "startContainer, poststart, poststop"
        ),
    ),
    "file name that is no UTF-8": (
        one(ContainerEdits(mounts=(MountEdit("/lib/\udcff.so", "/lib/a.so"),))),
        f"{UUID}: '/lib/\\udcff.so' {UNSPEAKABLE}",
    ),
    "hook argument with NUL": (one(hook(arguments=("a\0",))), f"{UUID}: 'a\\x00' {UNSPEAKABLE}"),
    "annotations": (
        one(ContainerEdits(env=(("A", "1"),), annotations=(("a", "b"),))),
        f"{UUID}: container annotations and CDI names are not CDI edits; keep them in the answer",
    ),
    "CDI names": (
        spec(edits=ContainerEdits(cdi_devices=("a/b=c",))),
        f"CDI {KIND}: container annotations and CDI names are not CDI edits; keep them in the answer",
    ),
    "shared edits": (
        spec(edits=ContainerEdits(env=(("", "1"),))),
        f"CDI {KIND}: '' is not a variable name; use a name without =",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_runtime_would_refuse_is_refused_first_with_place_value_and_fix(name: str) -> None:
    wrong, text = REFUSED[name]
    with pytest.raises(CdiError) as caught:
        validate(wrong)
    assert str(caught.value) == text
    assert text == f"CDI {caught.value.where}: {caught.value.problem}; {caught.value.fix}"
    with pytest.raises(CdiError):
        encode(wrong)


@pytest.mark.parametrize("name", ["GPU-0", "0", "0:1", "0000:3b:00.0", "a_b.c-d", "x"])
def test_names_that_devices_have_are_taken(name: str) -> None:
    assert judged(spec(device(name)))["devices"] == [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "permissions": "rw"}]}}
    ]


@pytest.mark.parametrize(
    ("made", "version"),
    [
        (spec(device("GPU-0")), "0.3.0"),
        (spec(device("GPU-0"), kind="k8s.device-plugin.nvidia.com/imex-channel"), "0.3.0"),
        (spec(device("GPU-0"), device("0")), "0.5.0"),
        (spec(device("0:1")), "0.5.0"),
        (one(ContainerEdits(nodes=(node("/dev/a", "/host/dev/a"),))), "0.5.0"),
        (spec(edits=ContainerEdits(nodes=(node("/dev/a", "/host/dev/a"),))), "0.5.0"),
        (spec(kind="nvidia.com/gpu.mig"), "0.6.0"),
        (spec(device("0"), kind="nvidia.com/gpu.mig"), "0.6.0"),
        (one(ContainerEdits(mounts=(MountEdit("/a", "/b", ("ro",)),), hooks=hook().hooks)), "0.3.0"),
    ],
)
def test_the_lowest_version_that_has_everything_is_stated(made: Spec, version: str) -> None:
    assert minimum_version(made) == version
    assert judged(made)["cdiVersion"] == version


@pytest.mark.parametrize(
    "made", [spec(device("0")), spec(kind="a/b.c"), one(ContainerEdits(nodes=(node("/a", "/b"),)))]
)
def test_the_judge_refuses_a_version_that_is_too_low(made: Spec) -> None:
    document = judged(made)
    older = {"0.5.0": "0.4.0", "0.6.0": "0.5.0"}[str(document["cdiVersion"])]
    assert faults({**document, "cdiVersion": older})


def test_full_spec_word_for_word() -> None:
    edits = ContainerEdits(
        env=(("NVIDIA_VISIBLE_DEVICES", "void"),),
        nodes=(node("/dev/nvidiactl", "/host/dev/nvidiactl"), node("/dev/nvidia-uvm", permissions="")),
        mounts=(MountEdit("/a", "/b"), MountEdit("/c", "/d", ("ro", "rbind"))),
        hooks=(
            HookEdit("createContainer", "/usr/bin/nvidia-cdi-hook", ("nvidia-cdi-hook", "update-ldcache")),
            HookEdit("poststop", "/bin/true"),
        ),
    )
    assert judged(spec(device("0", ContainerEdits(nodes=(node(),))), edits=edits)) == {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "permissions": "rw"}]}}],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [
                {"path": "/dev/nvidiactl", "hostPath": "/host/dev/nvidiactl", "permissions": "rw"},
                {"path": "/dev/nvidia-uvm"},
            ],
            "mounts": [
                {"hostPath": "/a", "containerPath": "/b"},
                {"hostPath": "/c", "containerPath": "/d", "options": ["ro", "rbind"]},
            ],
            "hooks": [
                {
                    "hookName": "createContainer",
                    "path": "/usr/bin/nvidia-cdi-hook",
                    "args": ["nvidia-cdi-hook", "update-ldcache"],
                },
                {"hookName": "poststop", "path": "/bin/true"},
            ],
        },
    }


def test_edits_that_are_not_there_are_not_written() -> None:
    assert "containerEdits" not in judged(spec())


def test_file_is_readable_and_ends_with_a_line() -> None:
    raw = encode(spec(device(), edits=ContainerEdits(env=(("A", "ä"),))))
    assert raw.startswith(b'{\n  "cdiVersion": "0.3.0",\n  "kind": ')
    assert raw.endswith(b"}\n")
    assert '"A=ä"'.encode() in raw


@given(good_specs)
def test_specs_of_good_parts_are_taken_and_the_schema_agrees(made: Spec) -> None:
    document = judged(made)
    devices = document["devices"]
    assert isinstance(devices, list)
    assert (document["kind"], [each["name"] for each in devices]) == (made.kind, [each.name for each in made.devices])


@settings(max_examples=250)
@given(any_specs)
def test_whatever_is_accepted_the_schema_accepts_and_everything_else_is_a_cdi_error(made: Spec) -> None:
    try:
        validate(made)
    except CdiError:
        return
    judged(made)


@given(good_specs)
def test_the_same_spec_gives_the_same_bytes(made: Spec) -> None:
    again = Spec(made.kind, tuple(replace(each) for each in made.devices), replace(made.edits))
    assert encode(made) == encode(again)
    assert json.loads(encode(made)) == json.loads(encode(again))
