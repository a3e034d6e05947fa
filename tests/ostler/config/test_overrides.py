"""Flags over environment over file over default, and the same kind of error for each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from node.edits.options import CdiMode, ListStrategy
from ostler.config import schema
from ostler.config.errors import ConfigErrors
from ostler.config.load import Loaded, load, load_bytes
from ostler.config.overrides import OVERRIDES
from ostler.config.section import Section

FILE = b"apiVersion: ostler.dev/v1alpha1\nkind: Config\nkubelet: {pluginsRegistryDir: /file}\nlog: {level: error}\n"


def read(flags: dict[str, str], environment: dict[str, str]) -> Loaded:
    return load_bytes("config.yaml", FILE, flags, environment)


def problems(flags: dict[str, str], environment: dict[str, str]) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load(None, flags, environment)
    return str(caught.value)


def test_flag_over_environment_over_file_over_default() -> None:
    name, variable = "--kubelet-registry-dir", "OSTLER_KUBELET_REGISTRY_DIR"
    assert load(None, {}, {}).settings.kubelet.registry_dir == Path("/var/lib/kubelet/plugins_registry")
    assert read({}, {}).settings.kubelet.registry_dir == Path("/file")
    assert read({}, {variable: "/variable"}).settings.kubelet.registry_dir == Path("/variable")
    assert read({name: "/flag"}, {variable: "/variable"}).settings.kubelet.registry_dir == Path("/flag")


def test_an_override_leaves_the_other_keys_of_its_section() -> None:
    settings = read({"--log-format": "json"}, {}).settings
    assert (settings.log.level, settings.log.format) == ("error", "json")


def test_an_empty_variable_is_not_set_but_an_empty_flag_is_a_value() -> None:
    assert load(None, {}, {"OSTLER_HTTP": ""}).settings.http == "0.0.0.0:9410"
    assert load(None, {}, {"OSTLER_HTTP": "off"}).settings.http is None
    assert load(None, {"--http": ""}, {}).settings.http is None


def test_lists_are_given_with_commas() -> None:
    flags = {"--device-list-strategy": "envvar, cdi-cri", "--cdi-spec-dirs": "/a,/b/"}
    settings = load(None, flags, {}).settings
    assert settings.rules[0].edits.strategies == (ListStrategy.ENVVAR, ListStrategy.CDI_CRI)
    assert settings.cdi.directories == (Path("/a"), Path("/b"))


def test_options_of_devices_are_over_the_defaults_of_the_file() -> None:
    data = FILE + b"resources:\n  - {name: a/b, passDeviceSpecs: true}\n  - {name: a/c}\n"
    # The second rule never gets a device; what matters here are its options.
    data = data.replace(b"{name: a/b,", b"{name: a/b, devices: {product: L4},")
    rules = load_bytes("config.yaml", data, {"--pass-device-specs": "false"}, {}).settings.rules
    assert [rule.edits.device_specs for rule in rules] == [True, False]


def test_cdi_mode_and_hook_can_be_given_by_flags() -> None:
    flags = {"--device-list-strategy": "cdi-cri", "--cdi-mode": "full", "--cdi-hook": "/usr/bin/nvidia-cdi-hook"}
    edits = load(None, flags, {}).settings.rules[0].edits
    assert (edits.cdi_mode, edits.hook) == (CdiMode.FULL, "/usr/bin/nvidia-cdi-hook")


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--http", "9410", 'is "9410", without a port; write "ADDRESS:PORT", such as "0.0.0.0:9410", or "off"'),
        ("--log-level", "loud", 'is "loud"; allowed: debug, info, warning, error'),
        ("--mig-strategy", "", 'is ""; allowed: none, single, mixed'),
        ("--state-dir", "x", 'is "x", not an absolute path; write a path that begins with /, such as /var/lib/ostler'),
        ("--max-interval", "60", 'is "60", without a unit; write 60s for seconds, 60ms for milliseconds'),
        ("--pass-device-specs", "yes", 'is "yes"; allowed: true, false'),
        (
            "--device-list-strategy",
            ",",
            "is empty; write at least one of: envvar, volume-mounts, cdi-annotations, cdi-cri",
        ),
        (
            "--device-list-strategy",
            "cdi",
            'is "cdi"; allowed: envvar, volume-mounts, cdi-annotations, cdi-cri',
        ),
        (
            "--cdi-mode",
            "full",
            (
                "is full, but deviceListStrategy has no strategy for CDI; "
                "add cdi-cri or cdi-annotations there, or remove cdiMode"
            ),
        ),
        (
            "--kubelet-registry-dir",
            "/var/lib/kubelet/device-plugins",
            "is the same folder as devicePluginDir; set the two folders of the kubelet",
        ),
    ],
)
def test_a_bad_flag_or_variable_is_named(flag: str, value: str, message: str) -> None:
    assert problems({flag: value}, {}) == f"{flag}: {message}"
    variable = "OSTLER_" + flag[2:].replace("-", "_").upper()
    if value:
        assert problems({}, {variable: value}) == f"{variable}: {message}"


def test_problems_of_file_flags_and_variables_come_together() -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_bytes("a.yaml", FILE + b"bogus: 1\n", {"--http": "x"}, {"OSTLER_LOG_LEVEL": "y"})
    assert [error.origin.source for error in caught.value.errors] == ["a.yaml", "--http", "OSTLER_LOG_LEVEL"]


def test_an_override_can_save_what_the_file_says_wrongly_together() -> None:
    data = FILE + b"socket: /file/a.sock\n"
    with pytest.raises(ConfigErrors, match="inside the kubelet's folder"):
        load_bytes("a.yaml", data, {}, {})
    assert load_bytes("a.yaml", data, {"--socket": "/run/a.sock"}, {}).settings.socket == Path("/run/a.sock")


def test_a_problem_with_a_default_names_its_key() -> None:
    message = problems({"--kubelet-device-plugin-dir": "/run/ostler"}, {})
    assert message.startswith('defaults: socket: is "/run/ostler/ostler.sock", inside the kubelet\'s folder')


def test_an_unknown_flag_is_a_mistake_of_the_program() -> None:
    with pytest.raises(ValueError, match="no such flags in the table: --colour"):
        load(None, {"--colour": "blue"}, {})


def test_a_misspelt_variable_is_remarked_and_those_of_kubernetes_are_not() -> None:
    environment = {
        "OSTLER_MIG_STRATEGIE": "mixed",
        "OSTLER_SERVICE_HOST": "10.0.0.1",
        "OSTLER_PORT_9410_TCP": "tcp://10.0.0.1:9410",
        "OSTLER_SOCKET_SERVICE_HOST": "10.0.0.1",
        "HOME": "/root",
    }
    notes = load(None, {}, environment).notes
    assert [str(note) for note in notes] == [
        "OSTLER_MIG_STRATEGIE: is not a setting; did you mean OSTLER_MIG_STRATEGY?"
    ]


def test_the_table_has_every_flag_once_and_every_key_exists() -> None:
    assert len({override.flag for override in OVERRIDES}) == len({override.key for override in OVERRIDES})
    for override in OVERRIDES:
        assert re.fullmatch(r"--[a-z]+(-[a-z]+)*", override.flag)
        section = schema.ROOT
        for field in (*override.sections, override.field):
            assert field in section.fields
            if isinstance(field.type, Section):
                section = field.type
        assert override.field.help.endswith(".")
        assert override.field.type.accepts


@pytest.mark.parametrize("override", OVERRIDES, ids=lambda override: override.flag)
def test_the_default_shown_for_a_flag_gives_the_defaults(override: object) -> None:
    chosen = next(one for one in OVERRIDES if one is override)
    assert load(None, {chosen.flag: chosen.default}, {}).settings == load(None, {}, {}).settings
