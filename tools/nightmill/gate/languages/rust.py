"""Rust: one package, built by Cargo without network, its locked tests run one by one."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

from nightmill.errors import ConfigError
from nightmill.gate.authority import Census
from nightmill.gate.languages import _rust_calls as calling
from nightmill.gate.languages import _rust_cargo as cargo
from nightmill.gate.languages import _rust_items as declared
from nightmill.gate.languages import _rust_pieces as pieces
from nightmill.gate.languages import _rust_suites as suites
from nightmill.gate.languages import _rust_toolchain as toolchain
from nightmill.gate.languages._rust_gate import Judging, record, unfinished
from nightmill.gate.languages._rust_texts import EXAMPLES, PROMPT_RULES, SCHEMA_RULES, TEST_RULES, WORDS
from nightmill.gate.languages._rust_toolchain import MISSING, Rust
from nightmill.gate.languages.base import ACCEPTANCE, PRIVATE, Bench, Symbol, unlocated
from nightmill.gate.records import Diagnostic, StepRecord
from nightmill.run.trees import Tree

_DROPPED = frozenset({"target", ".cargo", PRIVATE})
"""Folders that never get into the workspace."""
_STEERING = re.compile(r"rust-toolchain(\.toml)?|\.?clippy\.toml|\.?rustfmt\.toml|build\.rs|Cargo\.lock")


@dataclass(frozen=True)
class RustPack:
    """See `base.LanguagePack`. Where `find` finds no toolchain nothing can be judged, and every step says so."""

    find: Callable[[], Rust | None] = toolchain.find
    """Asked when a toolchain is first needed: to be one of the languages that a tree may be in costs nothing."""

    name: ClassVar[str] = "rust"
    suffixes: ClassVar[tuple[str, ...]] = (".rs",)
    test_suffix: ClassVar[str] = ".rs"
    test_head: ClassVar[str] = ""
    stub: ClassVar[str] = pieces.STUB
    examples: ClassVar[Mapping[str, str]] = EXAMPLES
    words: ClassVar[Mapping[str, str]] = WORDS
    schema_rules: ClassVar[tuple[str, ...]] = SCHEMA_RULES
    test_rules: ClassVar[tuple[str, ...]] = TEST_RULES
    prompt_rules: ClassVar[tuple[str, ...]] = PROMPT_RULES

    @property
    def rust(self) -> Rust | None:
        return self.find()

    @property
    def toolchain(self) -> str:
        return str(self.rust) if self.rust else MISSING

    def require(self) -> None:
        """Raises ConfigError."""
        if self.rust is None:
            raise ConfigError(MISSING)
        self.rust.require()

    def detect(self, tree: Tree) -> bool:
        return any(path.endswith(self.suffixes) or path == cargo.MANIFEST for path in tree)

    def symbols(self, path: str, text: str) -> list[Symbol]:
        return declared.symbols(path, text)

    def stubs(self, tree: Tree) -> dict[str, tuple[str, ...]]:
        found = {path: declared.stubs(data.decode("utf-8", "replace")) for path, data in tree.items() if path.endswith(self.suffixes)}
        return {path: names for path, names in found.items() if names}

    def precheck(self, tree: Tree) -> tuple[Diagnostic, ...]:
        """What can be told without the compiler: unreadable files, crates that cannot be had."""
        sources = cargo.sources(tree)
        unread = (declared.problem(path, tree[path]) for path in sources)
        linked = (cargo.linkage(path, tree[path].decode("utf-8", "replace")) for path in sources)
        return (*filter(None, unread), *filter(None, linked), *cargo.problems(tree, self.rust.numbers if self.rust else ()))

    def forbidden(self, path: str) -> str | None:
        parts = PurePosixPath(path).parts
        name = parts[-1]
        if parts[0] == ACCEPTANCE:
            return "the acceptance tests are locked"
        if parts[0] == PRIVATE:
            return f"{PRIVATE} belongs to the test runner"
        if parts[0] == "target" or name.endswith((".rlib", ".rmeta", ".so", ".a", ".o")):
            return "only sources are delivered, no compiled files"
        if name == cargo.MANIFEST:
            return "Cargo.toml is written by program: no dependency can be had, and modules need no entry there"
        if ".cargo" in parts[:-1] or (_STEERING.fullmatch(name) and (name != "build.rs" or len(parts) == 1)):
            return f"{name} changes how the program is compiled or its packages are found"
        return None

    def is_test_file(self, path: str) -> bool:
        parts = PurePosixPath(path).parts
        name = parts[-1].removesuffix(".rs")
        ours = name.startswith("test_") or name.endswith(("_test", "_tests")) or parts[-2:-1] == ("tests",)
        return path.endswith(".rs") and ours and "src" not in parts[:-1]

    def tests_in(self, path: str, text: str) -> tuple[str, ...]:
        return suites.tests(path, text)

    def without(self, text: str, names: set[str]) -> str:
        return suites.without(text, names)

    def census(self, path: str, text: str) -> Census:
        return suites.census(path, text)

    def skeleton(self, path: str, text: str) -> str | None:
        return pieces.skeleton(text)

    def function(self, path: str, text: str, name: str) -> str:
        return pieces.function(text, name)

    def graft(self, text: str, name: str, code: str) -> str:
        return pieces.graft(text, name, code)

    def call(self, text: str, sources: Tree) -> str | None:
        return calling.call(text, calling.names(sources))

    def probe(self, calls: Mapping[str, str], sources: Tree) -> Tree:
        return {"test_probe.rs": calling.probe(calls, calling.names(sources)).encode()}

    def seen(self, message: str) -> str | None:
        return calling.seen(message)

    def test_of(self, row: str, call: str, expected: str, sources: Tree) -> str | None:
        known = calling.names(sources)
        again = calling.call(call, known)
        return calling.test(row, again, expected, known) if again else None

    def count_tests(self, tree: Tree) -> int:
        return sum(len(suites.tests(path, tree[path].decode("utf-8", "replace"))) for path in tree if self.is_test_file(path))

    def scaffold(self, source: Tree) -> Tree:
        return {cargo.MANIFEST: cargo.scaffold(source)}

    def prepare(self, tree: Tree, acceptance: Tree) -> Tree:
        """The locked tests become test targets of a manifest that is written here, and tell how they end."""
        kept = {path: data for path, data in tree.items() if not _DROPPED & set(path.split("/")[:-1]) and not _STEERING.fullmatch(path)}
        crate = cargo.crate(kept)
        tests = cargo.targets(acceptance, self.is_test_file)
        locked = {p: suites.judged(d.decode("utf-8", "replace"), crate).encode() if p in tests else d for p, d in acceptance.items()}
        return {**kept, **locked, cargo.MANIFEST: cargo.written(kept, tests), _key(): secrets.token_hex(32).encode()}

    def build(self, bench: Bench) -> StepRecord:
        if self.rust is None:
            return StepRecord(name="build", status="not_run", detail=MISSING)
        command = (self.rust.inside("cargo"), "build", "--offline", "--quiet", "--message-format=json")
        ran = bench.run(command, bind=self.rust.bind, env=self.rust.environment)
        found = tuple(d for d in cargo.diagnostics(ran.output, bench.laid) if d.severity == "error" or not _of_stub(d, bench.laid))
        errors = [d for d in found if d.severity == "error"]
        if errors:
            return record("build", "failed", command, ran, f"{len(errors)} errors" if len(errors) > 1 else "one error", found)
        finished = any(m["reason"] == "build-finished" and m.get("success") is True for m in cargo.messages(ran.output))
        if ran.exit == 0 and finished and not ran.truncated:
            return record("build", "passed", command, ran, f"{len(found)} warnings" if found else "", found)
        return record("build", "incomplete", command, ran, unlocated(unfinished(ran, bench.limits), ran.output), found)

    def lint(self, bench: Bench) -> StepRecord:
        if self.rust is None or not self.rust.clippy:
            return StepRecord(name="lint", status="not_run", advisory=True, detail="clippy is not installed")
        command = (self.rust.inside("cargo-clippy"), "clippy", "--offline", "--quiet", "--message-format=json")
        ran = bench.run(command, bind=self.rust.bind, env=self.rust.environment)
        every = cargo.diagnostics(ran.output, bench.laid, blocking=False)
        found = tuple(d.model_copy(update={"severity": "warning"}) for d in every if d.code.startswith("clippy::"))
        ended = any(m["reason"] == "build-finished" for m in cargo.messages(ran.output))
        if not found and not ended:
            return record("lint", "incomplete", command, ran, unlocated("clippy gave no readable answer", ran.output)).model_copy(
                update={"advisory": True}
            )
        made = record("lint", "failed" if found else "passed", command, ran, f"{len(found)} findings" if found else "", found)
        return made.model_copy(update={"advisory": True})

    def test(self, bench: Bench) -> StepRecord:
        if self.rust is None:
            return StepRecord(name="test", status="not_run", detail=MISSING)
        return Judging(self.rust, bench, cargo.targets(_acceptance(bench.laid), self.is_test_file)).step()


def _of_stub(found: Diagnostic, tree: Tree) -> bool:
    """Whether a complaint is about a function that is still to be written, such as its unused parameters."""
    text = tree[found.file].decode("utf-8", "replace")
    return declared.enclosing(text, found.line) in declared.stubs(text)


def _key() -> str:
    return f"{PRIVATE}/key"


def _acceptance(tree: Tree) -> Tree:
    return {path: data for path, data in tree.items() if path.startswith(f"{ACCEPTANCE}/")}
