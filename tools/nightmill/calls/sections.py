"""A stage's needs as the texts of its prompt's sections. What a stage does not declare, its model does not see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nightmill.graph.stage import SOURCE
from nightmill.run.trees import Tree

if TYPE_CHECKING:
    from nightmill.graph.context import Ctx

FILES = {"mission.md": "mission", "contract.md": "contract", "test_matrix.md": "matrix", "analysis.md": "analysis"}
TREES = {"schema/": "schema", "acceptance/": "tests", "v2/": "code"}
_TAGS = {
    "py": "python",
    "md": "markdown",
    "toml": "toml",
    "json": "json",
    "yaml": "yaml",
    "yml": "yaml",
    "sh": "sh",
    "rs": "rust",
    "js": "js",
    "mjs": "js",
    "cjs": "js",
    "ts": "ts",
}


def from_needs(ctx: Ctx) -> dict[str, str]:
    """Section name → text for every need that has one."""
    sections: dict[str, str] = {}
    for need in (*ctx.stage.needs, *ctx.stage.optional):
        if need in FILES:
            sections[FILES[need]] = _untitled(ctx.read(need))
        elif need in TREES:
            sections[TREES[need]] = show({path: data for path, data in ctx.tree(need).items() if path != "set_aside.md"})
        elif need == SOURCE:
            sections["source"] = show(ctx.source())
    return sections


def _untitled(text: str) -> str:
    """Without its first heading: the section of the prompt has one."""
    first, _, rest = text.lstrip().partition("\n")
    return rest.lstrip("\n") if first.startswith("# ") else text


def show(tree: Tree, *, numbered: bool = False) -> str:
    """Every file as its path and a fenced block, the fence longer than any in the file. Undecodable files are named only.

    `numbered` puts `12: ` before each line, for those who must cite places; whoever writes code must not see it so.
    """
    parts = []
    for rel, data in sorted(tree.items()):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            parts.append(f"{rel}\n(not text, {len(data)} bytes)")
            continue
        if numbered:
            text = "\n".join(f"{n}: {line}" for n, line in enumerate(text.rstrip("\n").split("\n"), 1))
        fence = "```"
        while fence in text:
            fence += "`"
        tag = _TAGS.get(rel.rsplit(".", 1)[-1], "")
        parts.append(f"{rel}\n{fence}{tag}\n{text.rstrip(chr(10))}\n{fence}")
    return "\n\n".join(parts)
