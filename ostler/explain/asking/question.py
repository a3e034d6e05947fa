"""What is asked about, as people who know kubectl type it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kube.bodies import one_line
from ostler.explain.errors import BadQuestion
from ostler.explain.kinds import Kind, name_of, namespace_of
from ostler.explain.state import State

_WORDS = {
    **dict.fromkeys(("pod", "pods", "po"), Kind.POD),
    **dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), Kind.CLAIM),
    **dict.fromkeys(("template", "templates", "resourceclaimtemplate", "resourceclaimtemplates"), Kind.TEMPLATE),
}
_FORMS = "give 'pod NAME', 'claim NAME' or 'template NAME'"


@dataclass(frozen=True, slots=True)
class Question:
    """One object by name; ``kind`` None: a pod or a claim, whichever there is."""

    kind: Kind | None
    namespace: str
    name: str

    def __str__(self) -> str:
        word = {Kind.POD: "pod ", Kind.CLAIM: "claim ", Kind.TEMPLATE: "claim template "}
        return f"{word[self.kind] if self.kind else ''}{self.namespace}/{self.name}"


def parse_question(words: Sequence[str], namespace: str = "", default: str = "default") -> Question:
    """What ``pod NAME``, ``pod/NAME``, ``claim NAMESPACE/NAME`` or ``NAME`` asks about; raises ``BadQuestion``.

    ``namespace``: the one that is asked for, "" where none is; ``default``: the one that is meant then.
    Kinds may be in the plural, in any case, and with version and group behind them.
    """
    parts = [part for word in words for part in word.split("/")]
    shown = one_line(" ".join(words), 60)
    if not parts or not all(parts) or len(parts) > 3:
        raise BadQuestion(f"'{shown}' names nothing; {_FORMS}")
    kind = _WORDS.get(parts[0].lower().partition(".")[0]) if len(parts) > 1 else None
    if len(parts) > 1 and kind is None:
        raise BadQuestion(f"'{one_line(parts[0], 60)}' is no kind that waits for devices; {_FORMS}")
    if len(parts) == 1 and parts[0].lower() in _WORDS:
        raise BadQuestion(f"'{shown}' without a name; {_FORMS}")
    if len(parts) == 3:
        if namespace not in ("", parts[1]):
            raise BadQuestion(f"'{shown}' names another namespace than {namespace}; give one of them")
        namespace = parts[1]
    return Question(kind, namespace or default, parts[-1])


def question_about(state: State) -> Question:
    """The one pod, claim or template that files hold; raises ``BadQuestion`` where it is not clear which is meant.

    Of a pod and its claims the pod is meant, of a claim and its template the claim.
    """
    for kind, word in ((Kind.POD, "pods"), (Kind.CLAIM, "claims"), (Kind.TEMPLATE, "templates")):
        found = state.of(kind)
        waiting = [one for one in found if "allocation" not in _status(one)] if kind is Kind.CLAIM else list(found)
        chosen = waiting if len(waiting) == 1 else list(found)
        if len(chosen) == 1:
            return Question(kind, namespace_of(chosen[0]), name_of(chosen[0]))
        if chosen:
            names = ", ".join(name_of(one) for one in chosen[:5]) + (" ..." if len(chosen) > 5 else "")
            raise BadQuestion(
                f"{state.origin}: {len(chosen)} {word} ({names}); say which, such as '{word[:-1]} {name_of(chosen[0])}'"
            )
    raise BadQuestion(
        f"{state.origin}: no pod, claim or claim template is in it; {_FORMS}, or give its manifest with -f"
    )


def _status(body: dict[str, object] | object) -> dict[str, object]:
    status = body.get("status") if isinstance(body, dict) else None
    return status if isinstance(status, dict) else {}
