"""schema: the new version's modules, types and signatures, with every body still to be written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from nightmill.build.program import program
from nightmill.calls.replies import WholeFiles
from nightmill.calls.small import asks_small
from nightmill.errors import BadReply
from nightmill.gate.languages.base import LanguagePack
from nightmill.graph.context import Ctx
from nightmill.graph.stage import stage

_COMPLETE = re.compile(r"@(?:\w+\.)*(?:abstractmethod|overload)\b")


@dataclass(frozen=True)
class Schema(WholeFiles):
    """facts["pack"]: the language pack; facts["source"]: the old program's paths."""

    FORMAT: ClassVar[str] = """\
Write each file completely: its path alone on a line, then its whole content in a fenced block. Types and constants are complete.
Every function and method has its signature, a docstring, and as its only statement `raise NotImplementedError`.

parking/tariff.py
```python
def fee(minutes: int) -> int:
    \"\"\"Cents for a stay. Raises ValueError when minutes is negative.\"\"\"
    raise NotImplementedError
```
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        schema = super().parse(text, facts)
        pack: LanguagePack = facts["pack"]
        rules = [f"{path}: {reason}" for path in schema.files if (reason := pack.forbidden(path))]
        if foreign := [
            path for path in schema.files if path.startswith("schema/") and not any(old.startswith("schema/") for old in facts["source"])
        ]:
            rules.append(f"paths start at the project's root, so write {foreign[0].removeprefix('schema/')} instead of {foreign[0]}")
        whole = {**pack.scaffold(schema.tree), **schema.tree}
        rules += [f"{d.file}:{d.line}: {d.message}" for d in pack.precheck(whole) if d.severity == "error"]
        if bodies := _bodies(pack, schema.files):
            rules.append(f"replace the body by `{pack.stub}` in {', '.join(bodies[:12])}")
        if not rules and not pack.stubs(schema.tree):
            rules.append("there is no function to implement: give the public functions with their signatures")
        if rules:
            raise BadReply("Write the schema again and mend this: " + "; ".join(rules) + ".")
        return schema


def _bodies(pack: LanguagePack, files: Mapping[str, str]) -> list[str]:
    """`file: function` of what is no stub although it should be; abstract methods, overloads and protocols are complete as they are."""
    stubs = pack.stubs({path: text.encode() for path, text in files.items()})
    found = []
    for path, text in files.items():
        symbols = pack.symbols(path, text)
        protocols = {s.name for s in symbols if s.kind == "class" and "Protocol" in s.signature}
        functions = [s for s in symbols if s.kind in ("function", "method") and not _COMPLETE.search(s.signature)]
        found += [
            f"{path}: {s.name}" for s in functions if s.name not in stubs.get(path, ()) and s.name.rpartition(".")[0] not in protocols
        ]
    return found


STUB = '''\
main.py
```python
def main(argv: list[str]) -> int:
    """The program's entry: arguments to exit code."""
    raise NotImplementedError
```
'''


@stage(
    needs=["mission.md", "source/", "contract.md", "test_matrix.md", "analysis.md"],
    makes="schema/",
    skill="schema_architect",
    template="schema.md.j2",
    role="architect",
    reply=Schema,
    stub=STUB,
)
def schema(ctx: Ctx) -> None:
    """Lay out modules, types and signatures with stub bodies."""
    if asks_small(ctx) and (made := _as_before(ctx)):
        ctx.write_tree(made)
        ctx.finding("schema_architect", "the schema is the old program's own, by program: no new name or parameter was designed")
        return
    source = ctx.source()
    reply = ctx.ask(facts={"pack": ctx.pack, "source": tuple(source)}, rules=ctx.pack.schema_rules)
    ctx.write_tree({**ctx.pack.scaffold({**_data(ctx), **reply.tree}), **reply.tree})
    for path, data in source.items():
        if path in reply.files:
            new = {symbol.name for symbol in ctx.pack.symbols(path, reply.files[path])}
            lost = [s.name for s in ctx.pack.symbols(path, data.decode("utf-8", "replace")) if s.public and s.name not in new]
            if lost:
                more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
                ctx.note(f"public in the old {path}, no more in the schema's: {', '.join(lost[:5])}{more}")


def _as_before(ctx: Ctx) -> dict[str, bytes]:
    """The old program's files with a stub in place of every body, and its data; empty when there is nothing to implement in them."""
    texts = {path: ctx.pack.skeleton(path, data.decode("utf-8", "replace")) for path, data in program(ctx).items()}
    tree = {path: text.encode() for path, text in texts.items() if text is not None and not ctx.pack.forbidden(path)}
    data = {path: text for path, text in _data(ctx).items() if not ctx.pack.forbidden(path)}
    return {**data, **ctx.pack.scaffold({**_data(ctx), **tree}), **tree} if ctx.pack.stubs(tree) else {}


def _data(ctx: Ctx) -> dict[str, bytes]:
    """The files of the old program that are no source of its language."""
    return {path: data for path, data in ctx.source().items() if not path.endswith(tuple(ctx.pack.suffixes))}
