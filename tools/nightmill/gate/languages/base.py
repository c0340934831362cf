"""What a language must be able to do for the gate. A pack is one class in a sibling file, listed in `languages/__init__.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from nightmill.gate.limits import Limits, Ran
from nightmill.gate.manner import PLAIN, Manner
from nightmill.gate.records import Diagnostic, StepRecord
from nightmill.run.trees import Tree

if TYPE_CHECKING:
    from nightmill.gate.sandbox import Sandbox, Workdir

ACCEPTANCE = "acceptance"
"""Directory of the locked tests, at the root of every gated tree."""

PRIVATE = ".nightmill"
"""Directory in the workspace for what gate and test runner tell each other; never part of a tree."""


@dataclass(frozen=True)
class Symbol:
    """One declared name."""

    name: str
    """Qualified within its file: `Ledger.total`."""
    kind: Literal["function", "class", "method", "constant"]
    file: str
    line: int
    signature: str
    """One line of the language, without the body."""
    public: bool


@dataclass(frozen=True)
class Bench:
    """Where a pack runs its commands: one workspace in one sandbox, with the limits of this gate."""

    sandbox: Sandbox
    work: Workdir
    laid: Tree
    """What lies in the workspace: `LanguagePack.prepare`'s result."""
    limits: Limits
    stopping: Callable[[], bool]
    manner: Manner = PLAIN
    """How `LanguagePack.test` is to run the tests."""

    def run(self, argv: Sequence[str], *, bind: Mapping[str, Path] | None = None, env: Mapping[str, str] | None = None) -> Ran:
        """Runs `argv` in the workspace. `bind`: path inside → host path, read-only. Raises what the sandbox raises."""
        return self.sandbox.run(argv, self.work, bind=bind or {}, env=env or {}, limits=self.limits, stopping=self.stopping)


class LanguagePack(Protocol):
    """One language. The first group reads text and never runs anything; the second runs commands on a bench."""

    @property
    def name(self) -> str: ...

    @property
    def suffixes(self) -> tuple[str, ...]: ...

    @property
    def prompt_rules(self) -> tuple[str, ...]:
        """Three to eight short rules for a model that writes this language here."""

    @property
    def schema_rules(self) -> tuple[str, ...]:
        """Rules for whoever lays out modules and signatures."""

    @property
    def test_rules(self) -> tuple[str, ...]:
        """Rules for whoever writes acceptance tests."""

    @property
    def examples(self) -> Mapping[str, str]:
        """What prompts show in place of Python: reply class → its format, persona → its example."""

    @property
    def words(self) -> Mapping[str, str]:
        """Words of Python in all other examples → what this language says."""

    @property
    def stub(self) -> str:
        """The one statement of a function that is still to be written. What it raises is `NotImplementedError` in the records."""

    @property
    def test_suffix(self) -> str:
        """Ending of the test files that are written by program."""

    @property
    def test_head(self) -> str:
        """What such a file begins with, before the functions of `test_of`."""

    @property
    def toolchain(self) -> str:
        """The tool that judges, with version and place; or the sentence that says what to install."""

    def require(self) -> None:
        """Raises ConfigError, naming what to install, when nothing of this language can be judged on this machine."""

    def detect(self, tree: Tree) -> bool:
        """Whether the tree holds files of this language."""

    def symbols(self, path: str, text: str) -> list[Symbol]:
        """The names a file declares, in the order of the file; empty when it does not parse."""

    def stubs(self, tree: Tree) -> dict[str, tuple[str, ...]]:
        """File → qualified names of its functions that have no body yet. Files without any are left out."""

    def precheck(self, tree: Tree) -> tuple[Diagnostic, ...]:
        """Located errors that are certain before any command runs."""

    def forbidden(self, path: str) -> str | None:
        """Why an implementer may not write `path`; None when it may."""

    def is_test_file(self, path: str) -> bool:
        """Whether the test runner would look for tests in `path`."""

    def tests_in(self, path: str, text: str) -> tuple[str, ...]:
        """Ids of the tests a file declares, parameters not expanded; empty when it does not parse."""

    def without(self, text: str, names: set[str]) -> str:
        """A test file without the tests in `names` (ids without their file)."""

    def skeleton(self, path: str, text: str) -> str | None:
        """A file with a stub in place of every function body; None when it does not parse."""

    def function(self, path: str, text: str, name: str) -> str:
        """The source of one function, or of one test, by its qualified name; "" when there is none."""

    def graft(self, text: str, name: str, code: str) -> str:
        """A file with one function as `code` writes it. Raises ValueError, in words for the model, when it cannot take its place."""

    def call(self, text: str, sources: Tree) -> str | None:
        """`text` as one call of the program in canonical form; None when it is none that can be repeated."""

    def probe(self, calls: Mapping[str, str], sources: Tree) -> Tree:
        """Tests that make each call (row id → call) and fail with a message for `seen`; paths are relative to the acceptance folder."""

    def seen(self, message: str) -> str | None:
        """The result that a probe's message tells, as a row's expected cell; None when it is no value that text can hold."""

    def test_of(self, row: str, call: str, expected: str, sources: Tree) -> str | None:
        """A test function for a row; None when call or result is not exact enough to be written by program."""

    def count_tests(self, tree: Tree) -> int:
        """Tests declared in the tree's test files, parameters not expanded."""

    def scaffold(self, source: Tree) -> Tree:
        """Files of the new version that a program writes: what a language needs beside its sources. `source`: these sources, and
        what is no source of the old program."""

    def prepare(self, tree: Tree, acceptance: Tree) -> Tree:
        """What to lay in the workspace: the tree without stale build products, the locked tests over it, the pack's own files."""

    def build(self, bench: Bench) -> StepRecord:
        """Builds the tree, the locked tests not included. Failed only with a located diagnostic."""

    def lint(self, bench: Bench) -> StepRecord:
        """Advisory."""

    def test(self, bench: Bench) -> StepRecord:
        """Runs the locked tests. Passed only when every collected test passed and the runner's own summary says so."""


def under_acceptance(tests: Tree) -> Tree:
    """The tests with paths from the tree's root; a tree of the folder's contents alone is accepted too."""
    prefix = f"{ACCEPTANCE}/"
    return {path if path.startswith(prefix) else prefix + path: data for path, data in tests.items()}


_COLOUR = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def plain(text: str) -> str:
    """`text` without colour codes, other control characters and lone surrogates: fit for records, JSON and a terminal."""
    text = _CONTROL.sub("", _COLOUR.sub("", text.replace("\r\n", "\n")))
    return text.encode("utf-8", "replace").decode("utf-8")


def head_tail(output: bytes, limit: int = 2000) -> str:
    """The readable beginning and end of a command's output, about `limit` characters."""
    text = plain(output.decode("utf-8", "replace")).strip()
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def unlocated(why: str, output: bytes) -> str:
    """Detail of a step that failed without saying where: the reason, then what it printed."""
    shown = head_tail(output)
    return f"{why}\n{shown}" if shown else why
