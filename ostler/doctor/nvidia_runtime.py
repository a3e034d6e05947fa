"""Check of NVIDIA's container runtime, which alone turns variables and mounts that name devices into devices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from node.edits.options import ListStrategy
from node.inventory.model import DeviceKind
from node.rules import Door, Rule
from ostler.doctor.check import Check
from ostler.doctor.container_runtime import Runtime, find_runtime
from ostler.doctor.node import NodeView
from ostler.doctor.nvidia_driver import NO_GPU, RECORDED, VENDOR
from ostler.doctor.reading import read_toml
from ostler.doctor.verdict import Finding, failed, ok, several, skipped, warning

FILE = "etc/nvidia-container-runtime/config.toml"
_INSTALL = "install nvidia-container-toolkit and run 'nvidia-ctk runtime configure', or use the strategy cdi-cri"


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What NVIDIA's runtime lets a container ask for: ``variable`` also without privilege, ``mounts``."""

    variable: bool = True
    mounts: bool = False


def judge(
    strategies: frozenset[ListStrategy], runtime: Runtime | None, options: RuntimeOptions | None, *, specs: bool
) -> Finding:
    """Whether devices that are named reach containers, and only those of the pods that have them.

    ``specs``: device nodes are part of the answers as well, so that containers have those in any case.
    """
    if not strategies:
        return skipped("no rule names NVIDIA GPUs by variable or mount")
    if runtime is None or runtime.fault:
        return skipped("no configuration of containerd or CRI-O can be seen from here")
    named = runtime.runtimes_with("nvidia")
    if not named:
        lack = "containers get device nodes and not the driver's libraries" if specs else "containers get no devices"
        return warning(
            f"{runtime.file} has no NVIDIA runtime, which the strategy {_words(strategies)} needs: {lack}", _INSTALL
        )
    if options is not None and ListStrategy.VOLUME_MOUNTS in strategies and not options.mounts:
        return failed(
            f"/{FILE} does not accept devices as volume mounts",
            "set accept-nvidia-visible-devices-as-volume-mounts = true there",
        )
    if options is not None and options.variable:
        return warning(
            f"/{FILE} lets every image ask for all GPUs by a variable of its own",
            "set accept-nvidia-visible-devices-envvar-when-unprivileged = false there and use another strategy:"
            " volume-mounts or cdi-cri",
        )
    if runtime.default_runtime not in named:
        return ok(
            f"{several(list(named))}; pods need a runtimeClassName with it, the default is {runtime.default_runtime}"
        )
    return ok(f"{runtime.default_runtime} is the default of {runtime.name}")


def _words(strategies: frozenset[ListStrategy]) -> str:
    return " and ".join(sorted(strategies))


def strategies_of(rules: Iterable[Rule]) -> tuple[frozenset[ListStrategy], bool]:
    """Strategies of rules for GPUs which need NVIDIA's runtime; whether those rules give device nodes, too."""
    kinds = (DeviceKind.GPU, DeviceKind.MIG)
    given = [
        rule.edits
        for rule in rules
        if rule.door.has(Door.PLUGIN)
        and (not rule.selector.kinds or any(kind in rule.selector.kinds for kind in kinds))
        and (not rule.selector.vendors or "nvidia" in rule.selector.vendors)
    ]
    needing = [edits for edits in given if any(not strategy.uses_cdi for strategy in edits.strategies)]
    strategies = frozenset(each for edits in needing for each in edits.strategies if not each.uses_cdi)
    return strategies, all(edits.gives_device_specs for edits in needing)


def read_options(host: Path) -> RuntimeOptions | None:
    """The options of NVIDIA's runtime; None where its file is missing. Raises OSError, ValueError."""
    try:
        table = read_toml(host / FILE)
    except FileNotFoundError:
        return None
    return RuntimeOptions(
        table.get("accept-nvidia-visible-devices-envvar-when-unprivileged", True) is True,
        table.get("accept-nvidia-visible-devices-as-volume-mounts", False) is True,
    )


def _runtime(view: NodeView) -> Finding:
    if view.recorded:
        return skipped(RECORDED)
    if not view.gpu_functions(VENDOR):
        return skipped(NO_GPU)
    strategies, specs = strategies_of(view.settings.rules)
    return judge(strategies, find_runtime(view.host), read_options(view.host), specs=specs)


CHECK = Check(
    "nvidia-runtime",
    "The runtime has NVIDIA's runtime where rules name GPUs by variable or mount, and it gives pods only their own",
    "Run `nvidia-ctk runtime configure`, or use the strategy `cdi-cri`",
    _runtime,
)
