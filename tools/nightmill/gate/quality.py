"""The quality gate: builds a tree and runs the locked tests on it, in a sandbox, and records what the commands did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nightmill.errors import ConfigError, MachineError
from nightmill.gate.languages.base import ACCEPTANCE, Bench, LanguagePack, under_acceptance
from nightmill.gate.limits import Limits, never
from nightmill.gate.manner import PLAIN, Manner
from nightmill.gate.records import NOT_THE_CODE, Diagnostic, GateRecord, StepRecord
from nightmill.gate.twice import ended, merged
from nightmill.gate.verdict import decide
from nightmill.run.trees import Tree, tree_hash

if TYPE_CHECKING:
    from nightmill.gate.sandbox import Sandbox


class QualityGate:
    """One language, one sandbox, one set of limits (per command); gates any number of trees."""

    def __init__(self, pack: LanguagePack, sandbox: Sandbox, limits: Limits | None = None, stopping: Callable[[], bool] = never) -> None:
        self.pack, self.sandbox, self.limits, self.stopping = pack, sandbox, limits or Limits(), stopping

    def run(self, tree: Tree, acceptance: Tree | None = None, manner: Manner = PLAIN) -> GateRecord:
        """Build, lint and test. `acceptance` replaces the tree's own `acceptance/`; its paths may omit that folder.

        Never raises for what the code does. Trouble of the machine or the sandbox makes the step it hits incomplete and names itself;
        without acceptance tests the verdict is at best `not_run`, since nothing about the behaviour is proved.
        """
        steps = tuple(self._steps(tree, acceptance, manner))
        verdict, reason = decide(steps)
        return GateRecord(
            verdict=verdict,
            reason=reason,
            steps=steps,
            tree=tree_hash(tree),
            acceptance=tree_hash(acceptance) if acceptance else "",
            protections=self.sandbox.protections,
            toolchain=self.pack.toolchain,
        )

    def test(self, tree: Tree, acceptance: Tree, manner: Manner = PLAIN) -> StepRecord:
        """The test step alone, whether or not every file of the tree compiles. Raises as little as `run`."""
        step = self._on_bench(tree, acceptance, "test", lambda bench: [self.pack.test(bench)], manner)[-1]
        return self._again(step, tree, acceptance, manner)

    def _again(self, step: StepRecord, tree: Tree, acceptance: Tree, manner: Manner) -> StepRecord:
        """Where two runs are asked for and the pack made one, a second one on a workspace of its own."""
        if not manner.seed or step.again or not ended(step):
            return step
        return merged(step, self._on_bench(tree, acceptance, "test", lambda bench: [self.pack.test(bench)], PLAIN)[-1])

    def _steps(self, tree: Tree, acceptance: Tree | None, manner: Manner) -> list[StepRecord]:
        located = self.pack.precheck(_without_tests(tree))
        if located:
            failed = StepRecord(name="build", status="failed", detail=f"{len(located)} files do not parse", diagnostics=located)
            return [failed, *_not_run("the build failed")]
        steps = self._on_bench(tree, acceptance or {}, "build", lambda bench: list(self._commands(bench, bool(acceptance))), manner)
        return [self._again(s, tree, acceptance, manner) if s.name == "test" and acceptance else s for s in steps]

    def _commands(self, bench: Bench, tests: bool) -> Iterator[StepRecord]:
        build = self._guarded("build", self.pack.build, bench)
        yield build
        if build.status != "passed":
            yield from _not_run(f"the build is {build.status}")
            return
        yield self._guarded("lint", self.pack.lint, bench).model_copy(update={"advisory": True})
        if tests:
            yield self._guarded("test", self.pack.test, bench)
        else:
            yield StepRecord(name="test", status="not_run", detail="no acceptance tests were given")

    def _on_bench(
        self, tree: Tree, acceptance: Tree, first: str, body: Callable[[Bench], list[StepRecord]], manner: Manner
    ) -> list[StepRecord]:
        """`body`'s records, made on a fresh workspace; if that cannot be made, one incomplete record named `first`."""
        laid = self.pack.prepare(_without_tests(tree), under_acceptance(acceptance))
        with _trouble() as trouble:
            try:
                work = self.sandbox.workdir(laid)
            except ValueError as error:
                impossible = (Diagnostic(file="", line=0, message=f"these files cannot lie in one tree: {error}"),)
                return [StepRecord(name=first, status="failed", detail=impossible[0].message, diagnostics=impossible)]
            with work:
                return body(Bench(self.sandbox, work, laid, self.limits, self.stopping, manner))
        return [StepRecord(name=first, status="incomplete", detail=trouble[0])]

    def _guarded(self, name: str, step: Callable[[Bench], StepRecord], bench: Bench) -> StepRecord:
        with _trouble() as trouble:
            return step(bench)
        return StepRecord(name=name, status="incomplete", detail=trouble[0])


@contextmanager
def _trouble() -> Iterator[list[str]]:
    """Swallows what the machine or the sandbox may raise and keeps its text; everything else is a bug and passes through."""
    said: list[str] = []
    try:
        yield said
    except (MachineError, ConfigError, OSError) as error:
        said.append(f"{NOT_THE_CODE}: {error}")


def _not_run(why: str) -> list[StepRecord]:
    return [
        StepRecord(name="lint", status="not_run", advisory=True, detail=why),
        StepRecord(name="test", status="not_run", detail=why),
    ]


def _without_tests(tree: Tree) -> Tree:
    return {path: data for path, data in tree.items() if path.split("/")[0] != ACCEPTANCE}
