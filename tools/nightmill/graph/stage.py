"""What a stage is: a function whose header is its contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nightmill.calls.replies import ReplyFormat
    from nightmill.graph.context import Ctx

Body = Callable[["Ctx"], None]

SOURCE = "source/"
"""This need means the snapshot of the person's tree (`source.lock` and the objects it names)."""


GATES = ("gates.python", "gates.sandbox", "gates.wall_s", "gates.memory_mb", "gates.disk_mb")
"""The options under which commands judge: `config` of a stage whose product is what they said."""


@dataclass(frozen=True)
class Stage:
    """One node of the graph.

    `needs` and `makes` are paths relative to the run directory; a directory ends in a slash. `optional` needs may be missing.
    `config` names the options of run.yaml that the body reads. `slice` is the part of the plan it answers to.
    A stage that `plans` shapes the graph: it is brought up to date before the rest is known. A `closing` stage runs last
    whatever happened.
    """

    name: str
    body: Body
    file: Path
    needs: tuple[str, ...]
    makes: tuple[str, ...]
    skill: str = ""
    template: str = ""
    role: str = ""
    reply: type[ReplyFormat] | None = None
    config: tuple[str, ...] = ()
    stub: str = ""
    reviewers: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    slice: str = ""
    subject: str = ""
    plans: bool = False
    closing: bool = False
    evidence: bool = False
    """Made from the run's events: their findings, gates and attempts count as an input."""
    outside: bool = False
    """Made from the source tree itself."""
    persons: bool = False
    """Takes in the person's own tests (`tests:` in run.yaml): their content counts as an input."""
    measured: bool = False
    """Made of what commands said: a person's text never stands for it."""

    @property
    def doc(self) -> str:
        return (self.body.__doc__ or "").strip().splitlines()[0]

    @property
    def skills(self) -> tuple[str, ...]:
        return tuple(s for s in (self.skill, *self.reviewers) if s)

    @property
    def all_templates(self) -> tuple[str, ...]:
        return tuple(t for t in (self.template, *self.templates) if t)

    @property
    def roles(self) -> tuple[str, ...]:
        roles = [self.role] if self.role else []
        return tuple(dict.fromkeys(roles + (["reviewer"] if self.reviewers else [])))

    def bind(self, **changes: Any) -> Stage:
        """The same stage under another name, with other files, for one round, milestone or wave."""
        return replace(self, **changes)


def stage(*, needs: Sequence[str] = (), makes: str | Sequence[str], name: str = "", **header: Any) -> Callable[[Body], Stage]:
    """Turns a function into a Stage named after it; `header` are the other fields of Stage.

    The function's docstring is the help text of `doit list`; its file counts as an input of the stage.
    """

    def declare(body: Body) -> Stage:
        many = (makes,) if isinstance(makes, str) else tuple(makes)
        file = Path(body.__code__.co_filename)
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header.items()}
        return Stage(name or body.__name__, body, file, tuple(needs), many, **fields)

    return declare
