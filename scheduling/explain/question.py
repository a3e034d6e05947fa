"""The question as people who know kubectl type it: the objects whose claims it explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kube.bodies import one_line
from scheduling.explain.state import BadQuestion, Kind, State, name_of, namespace_of

_WORDS = {
    **dict.fromkeys(("pod", "pods", "po"), Kind.POD),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), Kind.CLAIM),
    **dict.fromkeys(("template", "templates", "resourceclaimtemplate", "resourceclaimtemplates"), Kind.TEMPLATE),
}
_WORKLOADS = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), "Deployment"),
    **dict.fromkeys(("replicaset", "replicasets", "rs"), "ReplicaSet"),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), "StatefulSet"),
    **dict.fromkeys(("daemonset", "daemonsets", "ds"), "DaemonSet"),
    **dict.fromkeys(("job", "jobs"), "Job"),
    **dict.fromkeys(("cronjob", "cronjobs", "cj"), "CronJob"),
    **dict.fromkeys(("replicationcontroller", "replicationcontrollers", "rc"), "ReplicationController"),
}
_FORMS = "give 'pod NAME', 'claim NAME' or 'template NAME'"
MOST = 20
"""Objects that are explained in one go: each may take the time of one."""


@dataclass(frozen=True, slots=True)
class Question:
    """One object by name; ``kind`` None: a pod or a claim, whichever there is.

    ``workload``: the kind that makes the pod, where its template is asked about; the pod then has the workload's name.
    """

    kind: Kind | None
    namespace: str
    name: str
    workload: str = ""

    def __str__(self) -> str:
        word = {Kind.POD: "pod ", Kind.CLAIM: "claim ", Kind.TEMPLATE: "claim template "}
        if self.workload:
            return f"{self.workload} {self.namespace}/{self.name}"
        return f"{word[self.kind] if self.kind else ''}{self.namespace}/{self.name}"


def parse_question(words: Sequence[str], namespace: str = "", default: str = "default") -> Question:
    """What ``pod NAME``, ``pod/NAME``, ``claim NAMESPACE/NAME`` or ``NAME`` asks about; raises ``BadQuestion``.

    ``namespace``: the requested one, "" if there is none; ``default``: the one that is meant then. Kinds may be in the
    plural, in any case, and with version and group behind them.
    """
    parts = [part for word in words for part in word.split("/")]
    shown = one_line(" ".join(words), 60)
    if not parts or not all(parts) or len(parts) > 3:
        raise BadQuestion(f"'{shown}' names nothing; {_FORMS}")
    word = parts[0].lower().partition(".")[0] if len(parts) > 1 else ""
    workload = _WORKLOADS.get(word, "")
    kind = Kind.POD if workload else _WORDS.get(word)
    if len(parts) > 1 and kind is None:
        raise BadQuestion(f"'{one_line(parts[0], 60)}' is not a kind that waits for devices; {_FORMS}")
    if len(parts) == 1 and parts[0].lower() in {**_WORDS, **_WORKLOADS}:
        raise BadQuestion(f"'{shown}' without a name; {_FORMS}")
    if len(parts) == 3:
        if namespace not in ("", parts[1]):
            raise BadQuestion(f"'{shown}' names another namespace than {namespace}; give one of them")
        namespace = parts[1]
    return Question(kind, namespace or default, parts[-1], workload)


def parse_questions(words: Sequence[str], namespace: str = "", default: str = "default") -> tuple[Question, ...]:
    """Several questions of the form ``KIND/NAME``, or one in any form; raises ``BadQuestion``."""
    if len(words) > 1 and all("/" in word for word in words):
        questions = [parse_question([word], namespace, default) for word in dict.fromkeys(words)]
        if len(questions) > MOST:
            raise BadQuestion(f"{len(questions)} objects in one question; ask about at most {MOST}")
        return tuple(questions)
    return (parse_question(words, namespace, default),)


def questions_about(state: State) -> tuple[Question, ...]:
    """The pods, claims or templates that files hold; raises ``BadQuestion`` if there are none, or too many.

    Of pods and their claims the pods are meant, of claims and their templates the claims; of claims those without
    devices, if there are any.
    """
    for kind, word in ((Kind.POD, "pods"), (Kind.CLAIM, "claims"), (Kind.TEMPLATE, "templates")):
        found = list(state.of(kind))
        waiting = [one for one in found if "allocation" not in _status(one)] if kind is Kind.CLAIM else found
        chosen = waiting or found
        if 0 < len(chosen) <= MOST:
            return tuple(Question(kind, namespace_of(one), name_of(one)) for one in chosen)
        if chosen:
            names = ", ".join(name_of(one) for one in chosen[:5]) + (" ..." if len(chosen) > 5 else "")
            raise BadQuestion(
                f"{state.origin}: {len(chosen)} {word} ({names}); at most {MOST} can be explained at once; name some, "
                f"such as '{word[:-1]} {name_of(chosen[0])}'"
            )
    raise BadQuestion(f"{state.origin}: it has no pod, claim or claim template; {_FORMS}, or give its manifest with -f")


def _status(body: dict[str, object] | object) -> dict[str, object]:
    status = body.get("status") if isinstance(body, dict) else None
    return status if isinstance(status, dict) else {}
