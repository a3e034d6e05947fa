"""Generates files from others: the chart's schema, alert rules and README, and the plain manifests.

Run as ``python -m deploy.generate [--check] [--helm PATH]`` from the repository root. What is made is committed, so
that neither a user of the chart nor one of the manifests needs anything of this; a test holds them equal.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import subprocess
import sys
from pathlib import Path

from deploy.values_schema import values_schema
from deploy.values_table import with_tables

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm" / "ostler"
MANIFESTS = ROOT / "deploy" / "manifests"
ICON = ROOT / "deploy" / "helm" / "icon.svg"
RULES = ROOT / "deploy" / "alerts" / "ostler.rules.yaml"

NAMESPACE = "ostler-system"
KUBERNETES = "1.34.0"
"""Version for which manifests are rendered: the oldest that ostler is tested with."""

VARIANTS = {
    "ostler": (),
    "ostler-nvidia-runtimeclass": ("nvidia-runtimeclass",),
    "ostler-nvidia-privileged": ("nvidia-privileged",),
    "ostler-nics": ("nics",),
    "ostler-dra": ("dra",),
}
"""Manifests by name, each with the examples of the chart whose values it is rendered with."""

_HEAD = """\
# ostler for people without Helm: kubectl apply -f {name}.yaml
# Made from the chart in deploy/helm/ostler{values} by 'python -m deploy.generate'; change that, not this.
# Before use: name the image that you built and pushed, in the DaemonSet. For Kubernetes 1.33 and later.
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
  labels:
    # The agent mounts folders of the node, which the other Pod Security Standards forbid.
    pod-security.kubernetes.io/enforce: privileged
"""
_HELMS = re.compile(r"^ +(?:app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n", re.MULTILINE)


def chart_files() -> dict[Path, str]:
    """Made files of the chart with their content."""
    values = (CHART / "values.yaml").read_text()
    return {
        CHART / "values.schema.json": json.dumps(values_schema(), indent=2) + "\n",
        CHART / "README.md": with_tables((CHART / "README.md").read_text(), values),
        CHART / "rules" / RULES.name: RULES.read_text(),
        CHART / "Chart.yaml": with_icon((CHART / "Chart.yaml").read_text(), ICON.read_bytes()),
    }


def with_icon(metadata: str, icon: bytes) -> str:
    """The chart's metadata with its icon inside, so that it is shown without any site being asked."""
    url = f"data:image/svg+xml;base64,{base64.b64encode(icon).decode()}"
    return re.sub(r"(?m)^icon: .*$", lambda _: f"icon: {url}", metadata)


def manifests(helm: Path) -> dict[Path, str]:
    """Plain manifests with their content; raises ``subprocess.CalledProcessError`` when the chart is faulty."""
    return {MANIFESTS / f"{name}.yaml": manifest(helm, name) for name in VARIANTS}


def manifest(helm: Path, name: str) -> str:
    """One plain manifest, as its file has it."""
    examples = [CHART / "examples" / f"{example}.yaml" for example in VARIANTS[name]]
    options = [option for example in examples for option in ("--values", str(example))]
    command = [str(helm), "template", "ostler", str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES]
    answer = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    values = f" with {', '.join(f'examples/{example.name}' for example in examples)}" if examples else ""
    return _HEAD.format(name=name, values=values, namespace=NAMESPACE) + _HELMS.sub("", answer.stdout)


def differing(files: dict[Path, str]) -> list[Path]:
    """The files that are missing or have other content."""
    return [path for path, text in files.items() if not path.exists() or path.read_text() != text]


def settle(files: dict[Path, str], *, write: bool) -> list[str]:
    """Write what differs, or only say so; one line for each."""
    stale = differing(files)
    words = "written" if write else "is not what it is made from; run 'python -m deploy.generate'"
    if write:
        for path in stale:
            path.write_text(files[path])
    return [f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path} {words}" for path in stale]


def main(argv: list[str] | None = None) -> int:
    """Write the files in place, or with ``--check`` name those that differ and exit 1."""
    parser = argparse.ArgumentParser(prog="deploy.generate", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="name what differs instead of writing it")
    parser.add_argument("--helm", type=Path, metavar="PATH", help="the helm to render with (default: the tests' own)")
    arguments = parser.parse_args(argv)
    lines = settle(chart_files(), write=not arguments.check)
    try:
        # After the chart's own files: Helm checks the values with the schema.
        lines += settle(manifests(arguments.helm or tests_helm()), write=not arguments.check)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"the chart cannot be rendered:\n{error.stderr}")
        return 1
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if lines and arguments.check else 0


def tests_helm() -> Path:
    """The helm that the tests use."""
    # The tests build the helm they use, and keep it.
    from tests.cluster.components.build import tools

    return tools() / "helm"


if __name__ == "__main__":
    sys.exit(main())
