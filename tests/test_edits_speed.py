"""Replies and files of up to a megabyte, friendly and hostile, take linear time."""

from __future__ import annotations

import time

import pytest

from nightmill.edits import plan_edits

SECONDS = 30.0
"""Of processor time: what is quadratic or worse takes minutes on a megabyte, what is not takes one."""
"""Of processor time: far above what is measured (under one), far below what anything quadratic would take."""

BIG = "".join(f"value_{n} = {n}\n" for n in range(50_000))
SAME = "x = 1\n" * 80_000


def block(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}=======\n{replace}>>>>>>> REPLACE\n"


HOSTILE = {
    "one small block in a big file": (BIG, "a.txt\n" + block("value_777 = 777\n", "value_777 = 0\n")),
    "the whole big file in one block": (BIG, "a.txt\n" + block(BIG, "first\n" + BIG + "last\n")),
    "every line of a big file changed": (BIG, "a.txt\n" + block(BIG, BIG.replace("=", ":="))),
    "hundreds of blocks": (BIG, "a.txt\n" + "".join(block(f"value_{n} = {n}\n", f"v{n}\n") for n in range(0, 50_000, 200))),
    "hundreds of blocks not found": (BIG, "a.txt\n" + "".join(block(f"value_{n} = {n + 1}\n", f"v{n}\n") for n in range(0, 50_000, 200))),
    "periodic file and SEARCH": (SAME, "a.txt\n" + block("x = 1\n" * 40_000, "y\n")),
    "periodic file and shifted SEARCH that cannot shift back": (SAME, "a.txt\n" + block("  x = 1\n" * 40_000, "y\n")),
    "openers only": ("x\n", "a.txt\n" + "<<<<<<< SEARCH\n" * 25_000),
    "dividers only": ("x\n", "a.txt\n" + block("x\n" + "=======\n" * 50_000, "y\n")),
    "end markers only": ("x\n", ">>>>>>> REPLACE\n" * 25_000),
    "bare fences": ("x\n", "a.txt\n" + "```\n" * 80_000),
    "tagged fences": ("x\n", "a.txt\n```x\n" * 30_000),
    "whole files": ("x\n", "a.txt\n```\ny\n```\n" * 20_000),
    "many files": ("x\n", "".join(f"d/f{n}.txt\n```\ny\n```\n" for n in range(3_000))),
    "opening tags": ("x\n", "<think>\n</think>\n" * 20_000),
    "closing tags": ("x\n", "</think>" * 20_000),
    "paths": ("x\n", "src/a.py\n" * 100_000),
    "prose": ("x\n", "This sentence names `a.txt` and src/b.py, and goes on for a while.\n" * 15_000),
    "one long line": ("x\n", "a" * 500_000 + " `" * 250_000),
    "one long line of decoration": ("x\n", "**" * 500_000),
    "one long comment in new text": ("x\n", "a.py\n```\n# ... " + "rest of the " * 90_000 + "\n```\n"),
    "many comments in new text": ("x\n", "a.txt\n```\n" + "# the existing rest of other things here\n" * 25_000 + "```\n"),
    "a hostile phrase": (
        "x\n",
        "a.py\n```\n" + "# existing code continues follows continues goes follows continues here same same x!\n" * 5_000 + "```\n",
    ),
    "deletions": ("x\n", "DELETE: b.txt\n" * 25_000),
    "blank lines": ("x\n", "a.txt\n" + "\n" * 400_000 + "```\ny\n```\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_megabyte_takes_minutes(name: str) -> None:
    before, reply = HOSTILE[name]
    start = time.process_time()
    plan_edits({"a.txt": before.encode()}, reply)
    assert time.process_time() - start < SECONDS
