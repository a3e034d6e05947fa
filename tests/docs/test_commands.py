"""What documents tell people to type can be typed: every command of every block is held against its tool."""

from __future__ import annotations

import re

import pytest

from tests.docs.markdown import PAGES, CodeBlock, blocks, spans
from tests.docs.shell import ShellCommand, commands
from tests.docs.tools import fault

SHELLS = ("", "sh", "bash", "shell", "console")
OTHERS = ("yaml", "json", "text", "ini", "toml", "python", "promql", "xml", "dockerfile", "diff")


def shell_blocks(document: str) -> list[CodeBlock]:
    return [block for block in blocks(document) if block.language in SHELLS]


@pytest.mark.parametrize("document", PAGES)
def test_every_block_says_what_it_is(document: str) -> None:
    assert [str(block) for block in blocks(document) if block.language not in SHELLS + OTHERS] == []


@pytest.mark.parametrize("document", PAGES)
def test_every_command_can_run(document: str) -> None:
    faults = [
        f"{block}: {command}: {found}"
        for block in shell_blocks(document)
        for command in commands(block.text)
        if (found := fault(command))
    ]
    assert faults == []


@pytest.mark.parametrize("document", PAGES)
def test_every_command_in_the_text_can_run(document: str) -> None:
    faults = []
    for span in (re.sub(r"<[^<>]+>", "NAME", span) for span in spans(document)):
        if re.match(r"(ostler|make|kubectl|helm|systemctl) [a-z]", span) and "…" not in span and "..." not in span:
            found = [said for command in commands(span) if (said := fault(command))]
            faults += [f"{span}: {said}" for said in found if "arguments are required" not in said]
    assert faults == []


def faults(text: str) -> list[str]:
    return [found for command in commands(text) if (found := fault(command))]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ostler stauts", "invalid choice"),
        ("ostler status --no-such-option", "unrecognized arguments: --no-such-option"),
        ("ostler config check", "the following arguments are required: FILE"),
        ("ostler topology -o png", "invalid choice: 'png'"),
        ("make no-such-target", "the Makefile has no target no-such-target"),
        ("make tests", "the Makefile has no target tests"),
        ("kubectl gte pods", "kubectl has no verb gte"),
        ("kubectl get pdos", "kubectl get needs a kind"),
        ("kubectl get pods --no-such-option", "kubectl has no option --no-such-option"),
        ("kubectl get pods | ostlr", "ostlr is not known"),
        ("kubectl apply -f deploy/no-such-file.yaml", "deploy/no-such-file.yaml does not exist"),
        ("kubectl exec daemonset/ostler -- ostler stauts", "invalid choice"),
        ("helm install ostler deploy/helm/other", "helm install needs the chart"),
        ("helm install ostler deploy/helm/ostler --set noSuchValue=1", "values.yaml has no noSuchValue"),
        ("systemctl restart no-such.service", "there is no unit no-such.service"),
        ("grpcurl -plaintext unix:///run/ostler/ostler.sock ostler.v1.None/Get", "no service has ostler.v1.None/Get"),
        ("curl localhost:9410/nothing", "is no page of the agent"),
        ("python3 -m no.such.module", "there is no module no.such.module"),
        ("rocket --launch", "rocket is not known"),
    ],
)
def test_a_command_that_cannot_run_is_seen(text: str, said: str) -> None:
    (found,) = faults(text)
    assert said in found


@pytest.mark.parametrize(
    "text",
    [
        "ostler devices -o json | head -3",
        "sudo ostler run --config /etc/ostler/config.yaml --http off",
        "OSTLER_HTTP=off /opt/ostler/bin/ostler run   # a comment",
        "make test TESTS=tests/plugin ARGS='-k name'",
        "kubectl get node NODE -o jsonpath='{.status.allocatable}' 2>/dev/null > out.json",
        "cat <<'EOF' | kubectl apply -f -\nkind: nonsense here; rocket --launch\nEOF\n",
        "$ ostler status\nrocket is output\n$ ostler devices \\\n    --scan\n",
        "systemctl restart kubelet && journalctl -u kubelet",
        "curl -s localhost:9410/readyz",
    ],
)
def test_a_command_that_can_run_passes(text: str) -> None:
    assert faults(text) == []


def test_words_are_those_of_the_shell() -> None:
    text = "A=1 B='2 3' one \"two three\" | four > file 2>&1; five # six\nseven#eight\n"
    assert list(commands(text)) == [
        ShellCommand(("one", "two three"), ("A=1", "B=2 3")),
        ShellCommand(("four",)),
        ShellCommand(("five",)),
        ShellCommand(("seven#eight",)),
    ]
