"""The test step of Rust: the locked tests compiled, as many of them as compile, then run in a workspace that no compiler wrote to."""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nightmill.gate.languages import _rust_cargo as cargo
from nightmill.gate.languages import _rust_suites as suites
from nightmill.gate.languages._python_report import read_report, step_of_tests
from nightmill.gate.languages._rust_outcomes import translated, unbuilt
from nightmill.gate.languages._rust_tokens import code
from nightmill.gate.languages._rust_toolchain import TARGET, Rust
from nightmill.gate.languages.base import ACCEPTANCE, PRIVATE, Bench, head_tail, unlocated
from nightmill.gate.limits import Limits, Ran
from nightmill.gate.manner import SURROUNDINGS
from nightmill.gate.records import Diagnostic, StepRecord, StepStatus, TestOutcome
from nightmill.gate.twice import ended, merged

_KEY, _REPORT = f"{PRIVATE}/key", f"{PRIVATE}/report.jsonl"
_REPORT_LIMIT = 64 * 2**20
_NO_MEMORY = re.compile(rb"memory allocation of|out of memory|Cannot allocate memory|bad_alloc|failed to allocate|ENOMEM|os error 12")
_ROUNDS = 4
"""rustc tells of unknown names before it looks at types, so that tests have to be taken out more than once."""


@dataclass
class _Built:
    programs: dict[str, str] = field(default_factory=dict)
    """Test file → name of its program below the target directory."""
    broken: list[TestOutcome] = field(default_factory=list)
    """Files and tests that do not compile."""
    halted: StepRecord | None = None
    """The whole step, where the compiler kept it from going on."""
    seconds: float = 0.0


@dataclass
class Judging:
    """One test step. `targets`: test file → its target's name."""

    rust: Rust
    bench: Bench
    targets: Mapping[str, str]

    def step(self) -> StepRecord:
        only = self.bench.manner.only
        chosen = [path for path in self.targets if not only or any(id.startswith(f"{path}::") for id in only)]
        texts = {path: self.bench.laid[path].decode("utf-8", "replace") for path in chosen}
        built = self._built(texts)
        if built.halted:
            return built.halted
        first = self._run(built, texts, {})
        first = first.model_copy(update={"seconds": first.seconds + built.seconds})
        if not self.bench.manner.seed or not ended(first):
            return first
        second = self._run(built, texts, SURROUNDINGS)
        surroundings = tuple(f"{name}={value}" for name, value in SURROUNDINGS.items())
        return merged(first, second.model_copy(update={"surroundings": surroundings}))

    def _cargo(self, targets: Sequence[str]) -> tuple[tuple[str, ...], Ran]:
        chosen = tuple(word for name in targets for word in ("--test", name))
        command = (self.rust.inside("cargo"), "test", "--no-run", "--offline", "--quiet", "--message-format=json", *chosen)
        return command, self.bench.run(command, bind=self.rust.bind, env=self.rust.environment)

    def _built(self, texts: dict[str, str]) -> _Built:
        """All at once; where one does not compile, each by itself, so that none takes another along."""
        built = _Built()
        if not texts:
            return built
        command, ran = self._cargo([self.targets[path] for path in texts])
        built.seconds += ran.seconds
        if self._halts(built, command, ran):
            return built
        found = cargo.executables(ran.output)
        built.programs = {path: found[name] for path in texts if (name := self.targets[path]) in found}
        for path in texts:
            if path not in built.programs and not built.halted:
                self._one(built, texts, path)
        return built

    def _one(self, built: _Built, texts: dict[str, str], path: str) -> None:
        """Compiles one file, without the tests that do not compile. What no test holds breaks the file."""
        for _ in range(_ROUNDS):
            command, ran = self._cargo([self.targets[path]])
            built.seconds += ran.seconds
            if self._halts(built, command, ran):
                return
            if program := cargo.executables(ran.output).get(self.targets[path]):
                built.programs[path] = program
                return
            errors = [d for d in cargo.diagnostics(ran.output, self.bench.laid, blocking=False) if d.severity == "error"]
            parts = _by_test(path, texts[path], errors)
            if not parts:
                built.broken.append(unbuilt(path, errors, head_tail(ran.output)))
                return
            built.broken += [unbuilt(f"{path}::{name}", found, "") for name, found in parts.items()]
            texts[path] = _blanked(texts[path], set(parts))
            self.bench.work.overwrite(path, texts[path].encode())
        built.broken.append(unbuilt(path, errors, ""))

    def _halts(self, built: _Built, command: tuple[str, ...], ran: Ran) -> bool:
        """Whether the program itself does not compile, or Cargo came to no end."""
        errors = [d for d in cargo.diagnostics(ran.output, self.bench.laid, blocking=False) if d.severity == "error"]
        own = [d for d in errors if not d.file.startswith(f"{ACCEPTANCE}/")]
        if own:
            tests = tuple(unbuilt(path, own, "") for path in self.targets)
            why = f"the program does not compile: {own[0].file}:{own[0].line}: {own[0].message}"
            built.halted = record("test", "failed", command, ran, why, tuple(own)).model_copy(update={"tests": tests})
        elif ran.killed or ran.signal or (ran.exit != 0 and not errors):
            built.halted = record("test", "incomplete", command, ran, unlocated(unfinished(ran, self.bench.limits), ran.output))
        return built.halted is not None

    def _run(self, built: _Built, texts: Mapping[str, str], environment: Mapping[str, str]) -> StepRecord:
        """In a fresh workspace; programs and locked tests are mounted read-only, so that no test can replace what comes after it."""
        bench, key = self.bench, secrets.token_hex(32).encode()
        programs = [f"{path}={TARGET}/debug/deps/{name}" for path, name in built.programs.items()]
        runner, only = "/nightmill/run.py", json.dumps(bench.manner.only)
        seconds = f"{max(1.0, bench.limits.wall_s / 4):g}"  # one hanging test leaves time for the others
        interpreter = bench.sandbox.python(Path(sys.executable))
        stop = "first" if bench.manner.first else "all"
        command = (interpreter, "-I", "-S", runner, _KEY, _REPORT, seconds, only, stop, *programs)
        locked = {path.removeprefix(f"{ACCEPTANCE}/"): data for path, data in bench.laid.items() if path.startswith(f"{ACCEPTANCE}/")}
        with bench.sandbox.workdir(locked) as shield, bench.sandbox.workdir({**bench.laid, _KEY: key}) as work:
            bind = {runner: Path(__file__).with_name("_rust_run.py"), f"{work.inside}/{ACCEPTANCE}": shield.path}
            bind |= {TARGET: bench.work.path / PRIVATE / "target"} if programs else {}
            env = {**self.rust.environment, "CARGO_MANIFEST_DIR": "/build", "CARGO_PKG_NAME": cargo.crate(bench.laid), **environment}
            ran = bench.sandbox.run(command, work, bind=bind, env=env, limits=bench.limits, stopping=bench.stopping)
            data = work.read(_REPORT, _REPORT_LIMIT)
        declared = [id for path in built.programs for id in suites.tests(path, texts[path]) if not bench.manner.only]
        report = read_report(data, key, declared, first=bench.manner.first)
        report.results = [translated(t, bench.laid) for t in report.results]
        report.broken += [t for t in built.broken if "::" not in t.id]
        wanted = bench.manner.only
        report.results += [t for t in built.broken if "::" in t.id and (not wanted or t.id in wanted)]
        return step_of_tests(ran, report, command)


def unfinished(ran: Ran, limits: Limits) -> str:
    """Why Cargo came to no end, in one line."""
    if ran.killed:
        return f"the compiler ran into the {ran.killed} limit after {ran.seconds:.0f} s"
    if _NO_MEMORY.search(ran.output):
        return f"the compiler needs more memory than {limits.memory_mb} MB"
    return "the compiler crashed" if ran.signal else "Cargo did not finish"


def _by_test(path: str, text: str, errors: Sequence[Diagnostic]) -> dict[str, list[Diagnostic]]:
    """Test → its errors; empty when there are none, or some lie outside of all tests."""
    found = code(text)
    if found is None:
        return {}
    spans = []
    for item in suites.declared(found):
        first, last = found.tokens[item.first].start, found.tokens[item.after - 1].end
        at, to = (found.line(first), found.column(first)), (found.line(last), found.column(last))
        spans.append((at, to, item.name.replace(".", "::")))
    made: dict[str, list[Diagnostic]] = {}
    for error in errors:
        name = next((name for first, last, name in spans if error.file == path and first <= (error.line, error.column) <= last), "")
        if not name:
            return {}
        made.setdefault(name, []).append(error)
    return made


def _blanked(text: str, names: set[str]) -> str:
    """The file without these tests; no other line moves."""
    found = code(text)
    assert found is not None
    for item in reversed(list(suites.declared(found))):
        if item.name.replace(".", "::") in names:
            start, end = found.tokens[item.first].start, found.tokens[item.after - 1].end
            text = text[:start] + "\n" * text.count("\n", start, end) + text[end:]
    return text


def record(
    name: str, status: StepStatus, command: tuple[str, ...], ran: Ran, detail: str, diagnostics: tuple[Diagnostic, ...] = ()
) -> StepRecord:
    how = {"exit": ran.exit, "signal": ran.signal, "killed": ran.killed, "seconds": ran.seconds}
    return StepRecord.model_validate(
        {"name": name, "status": status, "command": command, "detail": detail, "diagnostics": diagnostics, **how}
    )
