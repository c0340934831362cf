"""Every guard on content, once where it fires and once where it must not, and that each firing is counted."""

from __future__ import annotations

import pytest

from nightmill.edits import plan_edits
from nightmill.edits.elision import elided_line
from nightmill.edits.guards import breaks_syntax, shrinks

ELIDED = [
    ("a.py", "# ... rest of code"),
    ("a.py", "    # ... existing code ..."),
    ("a.py", "# ... (rest of the methods remain unchanged)"),
    ("a.py", "# ...rest of the file..."),
    ("a.py", "# Rest of the class remains the same..."),
    ("a.py", "# remaining methods unchanged"),
    ("a.py", "# [rest of the implementation unchanged]"),
    ("a.py", "# ... previous imports ..."),
    ("a.py", "# ... other functions stay the same ..."),
    ("a.py", "# ... keep the existing code here ..."),
    ("a.py", "# ... unchanged ..."),
    ("a.py", "# unchanged"),
    ("a.py", "# … rest of file …"),
    ("a.py", "# (existing code)"),
    ("a.py", "# existing code goes here"),
    ("a.py", "# Existing imports remain unchanged"),
    ("a.py", "# The rest of the code stays the same"),
    ("a.py", "# rest of the file is unchanged"),
    ("a.py", "# ... same as before"),
    ("a.py", "# same as before"),
    ("a.py", "# ... code omitted for brevity"),
    ("a.py", "    pass  # ... existing implementation"),
    ("a.py", "    ...  # rest of the method unchanged"),
    ("a.py", "... existing code ..."),
    ("a.py", "...existing code..."),
    ("a.py", "rest of the code..."),
    ("a.py", "..., rest unchanged"),
    ("a.js", "// ... existing code ..."),
    ("a.js", "// ...existing code..."),
    ("a.js", "// rest of the component"),
    ("a.js", "/* ... rest of file ... */"),
    ("a.js", " * ... other methods"),
    ("a.js", "{ /* ... existing fields ... */ }"),
    ("a.jsx", "{/* ... rest of the components ... */}"),
    ("a.html", "<!-- ... existing markup ... -->"),
    ("a.md", "<!-- rest of the document unchanged -->"),
    ("a.md", "... (rest of the document unchanged)"),
    ("a.sql", "-- ... remaining columns"),
    ("a.lua", "--[[ ... existing code ... ]]"),
    ("a.lisp", ";; ... rest of definitions"),
    ("a.tex", "% ... remaining sections unchanged"),
    ("a.j2", "{# ... existing blocks ... #}"),
    ("a.rs", "/// ... other fields ..."),
    ("a.ml", "(* ... rest of the module ... *)"),
]  # fmt: skip
KEPT = [
    ("a.py", "..."),
    ("a.py", "    ...,"),
    ("a.py", "# ..."),
    ("a.py", "x[..., 0]"),
    ("a.py", "def f(self) -> int: ..."),
    ("a.py", '"... rest of the code ..."'),
    ("a.py", "'# ... existing code ...',"),
    ("a.py", 'raise ValueError("rest of the file is missing...")'),
    ("a.py", "# the rest of the pipeline expects bytes"),
    ("a.py", "# Wait for the remaining workers..."),
    ("a.py", "# Load existing settings..."),
    ("a.py", "# existing rows are updated, other rows are inserted"),
    ("a.py", "# Other threads may hold the lock."),
    ("a.py", "# Previous value wins"),
    ("a.py", "# everything else is refused"),
    ("a.py", "# Remaining budget in tokens"),
    ("a.py", "rest = items[1:]"),
    ("a.py", "previous_code = current"),
    ("a.py", "print(existing)  # other"),
    ("a.py", "# Helpers"),
    ("a.py", "# TODO: remove the other branch"),
    ("a.py", "# 1, 2, 3, ..."),
    ("a.py", "# and so on ..."),
    ("a.js", "...rest"),
    ("a.js", "  ...existing,"),
    ("a.js", "...previous.code,"),
    ("a.js", "...other(),"),
    ("a.js", "const { a, ...rest } = props;"),
    ("a.js", "function f(...rest) {"),
    ("a.rs", "    ..other"),
    ("a.md", "# Existing code"),
    ("a.md", "* Other functions"),
    ("a.md", "The rest of the file is unchanged."),
    ("a.md", "Wait, there is more ..."),
    ("a.c", "#include <rest.h>"),
    ("a.c", "*other = rest;"),
    ("a.c", "--remaining;"),
    ("a.sh", "echo ... other"),
]


@pytest.mark.parametrize(("path", "line"), ELIDED)
def test_a_line_that_stands_for_code_is_elision(path: str, line: str) -> None:
    assert elided_line(["x", line], path) == line.strip()


@pytest.mark.parametrize(("path", "line"), KEPT)
def test_an_ordinary_line_is_no_elision(path: str, line: str) -> None:
    assert elided_line([line], path) is None


def test_a_known_line_is_no_elision_at_any_indentation() -> None:
    assert elided_line(["    # ... rest of code ..."], "a.py", {"# ... rest of code ..."}) is None


OLD = [line for n in range(12) for line in (f"def f{n}(x):", f"    y = x + {n}", f"    return y * {n}", "")]


@pytest.mark.parametrize(
    ("old", "new", "fires"),
    [
        pytest.param(OLD, OLD[:12], True, id="most lines and declarations gone"),
        pytest.param(OLD, OLD[:28], False, id="more than half left"),
        pytest.param(OLD, [f"def f{n}(x): return {n}" for n in range(12)], False, id="shorter, every declaration kept"),
        pytest.param(OLD[:36], OLD[:4], False, id="a short file"),
        pytest.param(OLD, [], True, id="emptied"),
        pytest.param([f"word {n}" for n in range(50)], ["word 1"], True, id="a text without declarations"),
        pytest.param([f"word {n}" for n in range(50)], [f"other {n}" for n in range(50)], False, id="a text written anew"),
        pytest.param([""] * 60 + ["x = 1"], ["x = 1"], False, id="only blank lines gone"),
    ],
)
def test_the_shrink_guard(old: list[str], new: list[str], fires: bool) -> None:
    assert bool(shrinks(old, new)) == fires


def test_a_shrunk_whole_file_is_refused_unless_it_was_asked_for() -> None:
    tree = {"a.py": "\n".join([*OLD, ""]).encode()}
    reply = "a.py\n```python\n" + "\n".join(OLD[:8]) + "\n```\n"
    outcome = plan_edits(tree, reply)
    assert (outcome.reasons, outcome.guards) == (("shrink",), ("shrink",))
    assert plan_edits(tree, reply, may_shrink=["a.py"]).changed == ("a.py",)


def test_blocks_may_remove_as_much_as_they_show() -> None:
    tree = {"a.py": "\n".join([*OLD, ""]).encode()}
    reply = "a.py\n<<<<<<< SEARCH\n" + "\n".join(OLD[4:]) + "\n=======\n>>>>>>> REPLACE\n"
    assert plan_edits(tree, reply).changed == ("a.py",)


@pytest.mark.parametrize(
    ("path", "old", "new", "fires"),
    [
        ("a.py", "x = 1\n", "x = (\n", True),
        ("a.py", "x = 1\n", "x = 2\n", False),
        ("a.py", "x = (\n", "y = (\n", False),
        ("a.py", "x = 1\n", "if x:\n\ty\n        z\n", True),
        ("a.py", "x = 1\n", "x = '\\d'\n", False),
        ("a.py", "x = 1\n", "(" * 5000, True),
        ("a.pyi", "x: int\n", "x: int =\n", True),
        ("a.json", "[1]", "[1", True),
        ("a.json", "// c\n[1]", "// c\n[1", False),
        ("a.toml", "a = 1", "a = ", True),
        ("a.js", "f()", "f(", False),
    ],
)
def test_the_syntax_guard(path: str, old: str, new: str, fires: bool) -> None:
    assert bool(breaks_syntax(path, old, new)) == fires


def test_the_syntax_guard_ignores_a_byte_order_mark_and_crlf() -> None:
    reply = "a.py\n<<<<<<< SEARCH\nx = 1\n=======\nx = 2\n>>>>>>> REPLACE\n"
    assert plan_edits({"a.py": b"\xef\xbb\xbfx = 1\r\nif x:\r\n    y\r\n"}, reply).changed == ("a.py",)


@pytest.mark.parametrize(
    ("example", "fires"),
    [("src/money.py", True), ("def add(a, b):\n    return a + b", True), ("src/other.py", False), ("def add(a, b):", False)],
)
def test_the_prompts_own_example_is_refused(example: str, fires: bool) -> None:
    reply = "src/money.py\n```python\n\ndef add(a, b):\n    return a + b\n```\n"
    outcome = plan_edits({}, reply, prompt_examples=[example])
    assert (outcome.guards == ("placeholder",)) == fires


def test_the_example_path_of_a_prompt_may_be_a_real_file() -> None:
    reply = "src/money.py\n```python\nx = 2\n```\n"
    assert plan_edits({"src/money.py": b"x = 1\n"}, reply, prompt_examples=["src/money.py"]).changed == ("src/money.py",)


def test_each_firing_is_counted() -> None:
    reply = "a.py\n```python\n# ... rest of code ...\n```\nb.py\n```python\n# ... rest of code ...\n```\nc.py\n```\nx = (\n```\n"
    outcome = plan_edits({"c.py": b"x = 1\n"}, reply, guard=lambda path: None)
    assert outcome.guards == ("elided", "elided", "parse")


def test_a_guard_is_asked_once_for_each_path_and_for_deletions() -> None:
    asked: list[str] = []
    reply = "a.py\n```\nx\n```\na.py\n```\nx\n```\nDELETE: b.py\n"
    plan_edits({"b.py": b""}, reply, guard=lambda path: asked.append(path))
    assert asked == ["a.py", "b.py"]
