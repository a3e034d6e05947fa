"""Settings that flags and environment variables can give, in the table from which the command line makes its options.

A flag overrides a variable, a variable overrides the file. A variable that is set but empty counts as not set, because
manifests cannot leave one out; a flag's empty value is a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from node.values import Value, value
from ostler.config import option_fields, schema
from ostler.config.errors import ConfigError, Origin
from ostler.config.scalars import BadValue
from ostler.config.section import AnyField, ConfigField, Values

_PREFIX = "OSTLER_"


@value
class SettingOverride(Value):
    """A setting that can be given by ``flag`` and ``variable``; ``key`` is its path in a file."""

    flag: str
    sections: tuple[ConfigField[Values], ...]
    field: AnyField

    @property
    def variable(self) -> str:
        """``OSTLER_KUBELET_REGISTRY_DIR`` for ``--kubelet-registry-dir``."""
        return _PREFIX + self.flag.removeprefix("--").replace("-", "_").upper()

    @property
    def key(self) -> str:
        """``kubelet.pluginsRegistryDir``."""
        return ".".join(field.key for field in (*self.sections, self.field))

    @property
    def default(self) -> str:
        """The default as a flag would have it: lists with commas, a duration in seconds."""
        default = self.field.default
        if isinstance(default, tuple):
            return ",".join(str(item) for item in default)
        if isinstance(default, float):
            return f"{default:g}s"
        return "" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


OVERRIDES = (
    SettingOverride("--node-name", (), schema.NODE_NAME),
    SettingOverride("--kubelet-device-plugin-dir", (schema.KUBELET,), schema.DEVICE_PLUGIN_DIR),
    SettingOverride("--kubelet-registry-dir", (schema.KUBELET,), schema.REGISTRY_DIR),
    SettingOverride("--kubelet-registration", (schema.KUBELET,), schema.REGISTRATION),
    SettingOverride("--sys-root", (schema.ROOTS,), schema.SYS_ROOT),
    SettingOverride("--proc-root", (schema.ROOTS,), schema.PROC_ROOT),
    SettingOverride("--state-dir", (schema.STATE,), schema.STATE_DIRECTORY),
    SettingOverride("--socket", (), schema.SOCKET),
    SettingOverride("--http", (schema.HTTP,), schema.ADDRESS),
    SettingOverride("--instance", (), schema.INSTANCE_NAME),
    SettingOverride("--log-level", (schema.LOG,), schema.LOG_LEVEL),
    SettingOverride("--log-format", (schema.LOG,), schema.LOG_FORMAT),
    SettingOverride("--max-interval", (schema.INVENTORY,), schema.MAX_INTERVAL),
    SettingOverride("--recorded", (schema.INVENTORY,), schema.RECORDED),
    SettingOverride("--cdi-dir", (schema.CDI,), schema.CDI_DIRECTORY),
    SettingOverride("--cdi-spec-dirs", (schema.CDI,), schema.CDI_SPEC_DIRECTORIES),
    SettingOverride("--kubernetes-events", (schema.KUBERNETES,), schema.EVENTS),
    SettingOverride("--kubeconfig", (schema.KUBERNETES,), schema.KUBECONFIG),
    SettingOverride("--kubernetes-door-by-node", (schema.KUBERNETES,), schema.DOOR_BY_NODE),
    SettingOverride("--kubernetes-patch-allocatable", (schema.KUBERNETES,), schema.PATCH_ALLOCATABLE),
    SettingOverride("--kubernetes-recorded-devices", (schema.KUBERNETES,), schema.RECORDED_DEVICES),
    SettingOverride("--dra-driver-name", (schema.DRA,), schema.DRIVER_NAME),
    SettingOverride("--dra-plugins-dir", (schema.DRA,), schema.PLUGINS_DIR),
    SettingOverride("--dra-also-publish-as", (schema.DRA,), schema.ALSO_PUBLISH_AS),
    SettingOverride("--dra-taint-effect", (schema.DRA,), schema.TAINT_EFFECT),
    SettingOverride("--dra-device-metadata", (schema.DRA,), schema.DEVICE_METADATA),
    SettingOverride("--dra-require-device-metadata", (schema.DRA,), schema.REQUIRE_DEVICE_METADATA),
    SettingOverride("--topology-file", (schema.TOPOLOGY,), schema.TOPOLOGY_FILE),
    SettingOverride("--nvidia-driver-root", (schema.NVIDIA,), schema.DRIVER_ROOT),
    SettingOverride("--nvidia-driver-root-mount", (schema.NVIDIA,), schema.DRIVER_ROOT_MOUNT),
    SettingOverride("--nvidia-dev-root", (schema.NVIDIA,), schema.DEV_ROOT),
    SettingOverride("--nvidia-dev-root-mount", (schema.NVIDIA,), schema.DEV_ROOT_MOUNT),
    SettingOverride("--nvidia-library", (schema.NVIDIA,), schema.LIBRARY),
    SettingOverride("--mig-strategy", (schema.NVIDIA,), schema.MIG_STRATEGY),
    SettingOverride("--device-list-strategy", (option_fields.DEFAULTS,), option_fields.STRATEGIES),
    SettingOverride("--device-id-strategy", (option_fields.DEFAULTS,), option_fields.ID_STRATEGY),
    SettingOverride("--pass-device-specs", (option_fields.DEFAULTS,), option_fields.DEVICE_SPECS),
    SettingOverride("--cdi-mode", (option_fields.DEFAULTS,), option_fields.CDI_MODE),
    SettingOverride("--cdi-hook", (option_fields.DEFAULTS,), option_fields.HOOK),
)


def apply_overrides(
    values: Values, flags: Mapping[str, str], environment: Mapping[str, str], problems: list[ConfigError]
) -> None:
    """Set the values of flags (by their names, ``--http``) and variables in ``values``.

    Raises ``ValueError`` for a flag that is not in the table: that is a mistake of the program, not of its user.
    """
    unknown = flags.keys() - {override.flag for override in OVERRIDES}
    if unknown:
        raise ValueError(f"no such flags in the table: {', '.join(sorted(unknown))}")
    for override in OVERRIDES:
        variable = environment.get(override.variable, "")
        if override.flag in flags:
            _apply(override, flags[override.flag], Origin(override.flag), values, problems)
        elif variable:
            _apply(override, variable, Origin(override.variable), values, problems)


def _apply(override: SettingOverride, text: str, origin: Origin, values: Values, problems: list[ConfigError]) -> None:
    for section in override.sections:
        values = values.section(section)
    try:
        value = override.field.type.from_text(text)
    except BadValue as error:
        problems.append(origin.error(error.problem, error.fix))
        values.broken = True
    else:
        values.put(cast("ConfigField[object]", override.field), value, origin)


_SERVICE = r"_(SERVICE_(HOST|PORT)|PORT)(_|$)"


def near_misses(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Variables that look like a misspelt setting, each with the one that is probably meant.

    Kubernetes itself sets ``OSTLER_...`` variables if a Service has the agent's name, so other variables are ignored.
    """
    known = [override.variable for override in OVERRIDES]
    found: list[tuple[str, str]] = []
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in known and not re.search(_SERVICE, name):
            import difflib  # only for those who misspell

            near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            found.extend((name, match) for match in near)
    return found
