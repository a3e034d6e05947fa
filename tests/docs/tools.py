"""What is known of every tool that documents tell people to type: whether a command can run, as far as that shows.

Ostler's commands are parsed by its own parser, make's by make, Helm's are held against the chart, calls against the
services' descriptions, units against those we ship. Of other tools the form is known. A tool that is not known here is
a fault, so that no document can name one unseen.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from ostler.cli.commands import COMMANDS, command_line
from protos.agent.v1alpha1 import agent_pb2
from protos.deviceplugin.v1beta1 import api_pb2
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from tests.docs.chart import CHART, set_values, values_fault
from tests.docs.markdown import ROOT
from tests.docs.shell import ShellCommand
from tests.docs.vocabulary import (
    FOREIGN_UNITS,
    HELM_SWITCHES,
    HELM_VALUES,
    HELM_VERBS,
    KINDS,
    KUBECTL_SWITCHES,
    KUBECTL_VALUES,
    KUBECTL_VERBS,
    PLAIN_TOOLS,
    SYSTEMCTL_VERBS,
)

_PATHS = ("/livez", "/readyz", "/healthz", "/metrics")


def fault(command: ShellCommand) -> str:
    """Why a command cannot run, empty where nothing speaks against it."""
    if not command.words:
        return ""
    words = command.words
    while words[0] in ("sudo", "time", "exec") and len(words) > 1:
        words = words[1:]
    tool = Path(words[0]).name
    judge = _JUDGES.get(tool)
    if judge is not None:
        return judge(words[1:])
    return "" if tool in PLAIN_TOOLS or words[0].startswith("./") else f"{tool} is not known in tests/docs/tools.py"


def ostler(words: tuple[str, ...]) -> str:
    """Parsed by the command line's own parser."""
    chosen = next((word for word in words if not word.startswith("-")), None)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            command_line(chosen if chosen in COMMANDS else None).parse_args(words)
    except SystemExit as end:
        return said.getvalue().strip().splitlines()[-1] if end.code else ""
    except argparse.ArgumentError as error:
        return str(error)
    return ""


def make(words: tuple[str, ...]) -> str:
    """Make itself says what it would do; the environment counts as made. A folder's name is no target."""
    rules = re.findall(r"^([a-z][a-z -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    unknown = [word for word in words if not word.startswith("-") and "=" not in word and word not in targets]
    if unknown:
        return f"the Makefile has no target {unknown[0]}"
    run = subprocess.run(
        ["make", "--no-print-directory", "-n", "-o", ".venv/.ready", "-o", "setup", "-o", "system", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return "" if run.returncode == 0 else run.stderr.strip()


def _options(words: tuple[str, ...], values: frozenset[str], switches: frozenset[str]) -> tuple[list[str], list[str]]:
    """The words that are no options, and the options that are not known."""
    plain, unknown = [], []
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            break
        name, equals, _ = word.partition("=")
        if not word.startswith("-") or word == "-":
            plain.append(word)
        elif name in values:
            if not equals and next(waiting, None) is None:
                unknown.append(f"{name} without a value")
        elif name not in switches:
            unknown.append(name)
    return plain, unknown


def kubectl(words: tuple[str, ...]) -> str:
    """By its form: verb, kind, options."""
    plain, unknown = _options(words, KUBECTL_VALUES, KUBECTL_SWITCHES)
    if unknown:
        return f"kubectl has no option {unknown[0]}, or it is not known in tests/docs/tools.py"
    if not plain or plain[0] not in KUBECTL_VERBS:
        return f"kubectl has no verb {' '.join(plain[:1]) or 'here'}"
    if plain[0] in ("get", "describe", "delete", "label", "annotate", "patch", "wait"):
        by_file = any(word in ("-f", "--filename", "-k", "--raw") or word.startswith("--raw=") for word in words)
        kinds = plain[1].partition("/")[0].split(",") if len(plain) > 1 else []
        if not by_file and (not kinds or any(kind.partition(".")[0] not in KINDS for kind in kinds)):
            return f"kubectl {plain[0]} needs a kind that is known in tests/docs/tools.py"
    if plain[0] in ("cordon", "uncordon", "drain", "logs", "exec", "taint") and len(plain) < 2 and "-l" not in words:
        return f"kubectl {plain[0]}: the following arguments are required: NAME"
    inner = words[words.index("--") + 1 :] if plain[0] in ("exec", "debug", "run") and "--" in words else ()
    return _missing_files(words, ("-f", "--filename")) or fault(ShellCommand(inner))


def _missing_files(words: tuple[str, ...], options: tuple[str, ...]) -> str:
    """A file of the repository that an option names and that is not there; other names are the reader's own files."""
    for option, name in pairwise(words):
        if option in options and name.startswith("deploy/") and not (ROOT / name).exists():
            return f"{name} does not exist"
    return ""


def helm(words: tuple[str, ...]) -> str:
    """By its form, the chart's folder, and the values that are set."""
    plain, unknown = _options(words, HELM_VALUES, HELM_SWITCHES)
    if unknown:
        return f"helm has no option {unknown[0]}, or it is not known in tests/docs/tools.py"
    if not plain or plain[0] not in HELM_VERBS:
        return f"helm has no verb {' '.join(plain[:1]) or 'here'}"
    if plain[0] in ("install", "upgrade", "template", "lint", "show") and CHART not in plain:
        return f"helm {plain[0]} needs the chart {CHART}"
    for option, given in pairwise(words):
        if option.startswith("--set"):
            found = values_fault(set_values(given, as_text=option in ("--set-file", "--set-string")))
            if found:
                return found
    return _missing_files(words, ("-f", "--values"))


def grpcurl(words: tuple[str, ...]) -> str:
    """Options for our sockets, and services and methods that exist."""
    plain, unknown = _options(words, frozenset(["-d", "-max-time"]), frozenset(["-plaintext"]))
    if unknown:
        return f"grpcurl {unknown[0]} is not known in tests/docs/tools.py"
    # Its option -unix is without effect in 1.9.3.
    if "-plaintext" not in words or not plain or not plain[0].startswith("unix://"):
        return "our sockets need -plaintext unix://SOCKET"
    call = next((word for word in plain[1:] if word not in ("list", "describe")), "")
    if not call or call.startswith("grpc."):
        return ""
    name, _, method = call.partition("/")
    for module in (agent_pb2, api_pb2, registration_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            if service.full_name == name and (not method or method in service.methods_by_name):
                return ""
    return f"no service has {call}"


def curl(words: tuple[str, ...]) -> str:
    """Our own pages."""
    urls = [word for word in words if "/" in word and not word.startswith(("-", "/"))]
    bad = [url for url in urls if not re.fullmatch(r"(http://)?[\w.$-]+(:\d+)?(/[a-z]+)(/[\w$-]*)?", url)]
    bad += [url for url in urls if url not in bad and not any(path in url for path in _PATHS)]
    return f"{bad[0]} is no page of the agent" if bad else "" if urls else "curl needs an address"


def systemctl(words: tuple[str, ...]) -> str:
    """Verbs, and units that we ship or that are known."""
    plain, _ = _options(words, frozenset(["-n", "--lines"]), frozenset(["--now", "--no-pager", "--user"]))
    if not plain or plain[0] not in SYSTEMCTL_VERBS:
        return f"systemctl has no verb {' '.join(plain[:1]) or 'here'}"
    shipped = list((ROOT / "systemd").glob("*.*"))
    ours = {path.name for path in shipped} | {path.stem for path in shipped}
    unknown = [unit for unit in plain[1:] if unit not in ours | FOREIGN_UNITS]
    return f"there is no unit {unknown[0]}" if unknown else ""


def python(words: tuple[str, ...]) -> str:
    """A module of ours that is run has to be there."""
    if words[:1] != ("-m",) or len(words) < 2 or words[1] in ("venv", "pip", "json"):
        return ""
    module = ROOT / words[1].replace(".", "/")
    there = module.with_suffix(".py").exists() or (module / "__main__.py").exists()
    return "" if there else f"there is no module {words[1]}"


_JUDGES: dict[str, Callable[[tuple[str, ...]], str]] = {
    "ostler": ostler,
    "make": make,
    "kubectl": kubectl,
    "helm": helm,
    "grpcurl": grpcurl,
    "curl": curl,
    "systemctl": systemctl,
    "python": python,
    "python3": python,
}
