"""deviations.md."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from nightmill.clauses import Unproven
from nightmill.deviations import LIMIT, UNPROVEN_HEADING, render_deviations
from nightmill.run.events import Finding


def finding(text: str, where: str = "", source: str = "ip_counsel", verdict: str = "") -> Finding:
    return Finding(stage="s", source=source, where=where, verdict=verdict, text=text)


def test_findings_are_grouped_by_source_and_ordered_by_place() -> None:
    page = render_deviations(
        [
            finding("no place"),
            finding("late", "C12", "contract_reviewer", "REJECTED"),
            finding("early", "C3", "contract_reviewer", "REJECTED"),
            finding("copied", "ledger.py:10"),
            finding("copied", "ledger.py:9"),
        ],
        [Unproven(what="C2", why="T3 fails")],
    )
    assert page.endswith(
        """
## contract_reviewer

- **C3** (REJECTED): early
- **C12** (REJECTED): late

## ip_counsel

- **ledger.py:9**: copied
- **ledger.py:10**: copied
- no place

## Not proven

- **C2**: T3 fails
"""
    )


def test_nothing_noticed_is_said_honestly() -> None:
    page = render_deviations([])
    assert page.count("None.") == 2
    assert page.endswith(f"\nNone.\n\n{UNPROVEN_HEADING}\n\nNone.\n")


def test_the_same_remark_appears_once_but_once_per_source() -> None:
    page = render_deviations([finding("x", "C1"), finding("x \n", "C1"), finding("x", "C1", "security_reviewer")])
    assert page.count("- **C1**: x") == 2


def test_a_remark_stays_one_bullet_and_hides_nothing_that_follows() -> None:
    page = render_deviations([finding("first\n## Not proven\n\x1b[31m<!-- all of `List<int>` and <b>more</b>")])
    assert "- first ## Not proven \\<!-- all of `List<int>` and \\<b>more\\</b>\n" in page
    assert page.count("\n## ") == 2


def test_a_model_that_repeats_itself_does_not_fill_the_page() -> None:
    assert len(render_deviations([finding("again and again " * 10_000)])) < LIMIT + 500


findings = st.builds(finding, st.text(max_size=30), st.sampled_from(["", "C1", "C10", "a.py:3"]), st.sampled_from(["a", "b", ""]))


@given(st.lists(findings, max_size=12), st.randoms(use_true_random=False))
def test_the_order_in_which_findings_came_does_not_matter(items: list[Finding], rng: random.Random) -> None:
    shuffled = items[:]
    rng.shuffle(shuffled)
    page = render_deviations(items)
    assert render_deviations(shuffled + items) == page
    assert "\x1b" not in page
    assert all(line == "" or line[0] in "-#WN" for line in page.splitlines())
