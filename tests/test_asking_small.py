"""Asking a small model item by item: what is computed, what is asked, and what is never believed."""

from __future__ import annotations

import ast
import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.build.milestones import Plan, problems, waves
from nightmill.build.oracle import observe
from nightmill.build.program import uses
from nightmill.calls.fit import fit
from nightmill.calls.prompts import Section
from nightmill.calls.small import MOST_CALLS, Calls, Changes, OneFunction, Result
from nightmill.config import ModelConfig
from nightmill.errors import BadReply
from nightmill.gate.languages import pack
from nightmill.gate.limits import Limits
from nightmill.gate.quality import QualityGate
from nightmill.gate.sandbox import find
from nightmill.paths import load_dodo

load_dodo()  # registers `stages`

from stages.plan import by_imports  # noqa: E402

PYTHON = pack("python")
SHOP = {
    "shop/till.py": b'''"""A till."""
import itertools
_count = itertools.count()

def net(cents: int) -> int:
    """Without tax."""
    if cents < 0:
        raise ValueError("negative: %d" % cents)
    return cents * 100 // 119

def receipt(*prices):
    for price in prices:
        print(price)
    return len(prices)

def ticket():
    return next(_count)

def till():
    return object()

def flag(x): return bool(x)
''',
    "shop/__init__.py": b"",
}
FACTS = {"pack": PYTHON, "sources": SHOP}


@pytest.fixture(scope="module")
def gate() -> QualityGate:
    return QualityGate(PYTHON, find(python=Path(sys.executable)), Limits(wall_s=30))


# -- who is asked small -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["qwen2.5-coder-1.5b", "Qwen2.5-Coder-0.5B-Instruct-GGUF", "smollm2-135m", "gemma-3n-e2b-it", "llama-3.2-3b"]
)
def test_a_model_whose_name_says_less_than_four_billion_is_asked_item_by_item(name: str) -> None:
    assert ModelConfig(provider="p", model=name).small


@pytest.mark.parametrize(
    "name", ["scripted", "gpt-oss-20b", "qwen3-30b-a3b", "qwen2.5-7b-instruct", "mixtral-8x7b", "phi-3-mini", "v2.5-beta"]
)
def test_a_larger_model_and_one_that_does_not_tell_is_asked_for_all_at_once(name: str) -> None:
    assert not ModelConfig(provider="p", model=name).small


def test_the_configured_grain_decides_and_stands_in_the_stamp() -> None:
    asked = ModelConfig(provider="p", model="gpt-oss-20b", grain="item")
    assert asked.small and "grain=item" in asked.fact
    assert not ModelConfig(provider="p", model="q-1.5b", grain="whole").small


# -- calls and results --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "net(119)",
        "- `net(119)`",
        "1. net(119)  # gives 100",
        ">>> net(119)",
        "net(119) -> 100",
        "assert net(119) == 100",
        "net(119) | 100",
        "past the limit: net(119)",
        "**ordinary:** net(119)",
        "`net(119)`: the usual",
    ],
)
def test_a_call_is_read_from_its_line_however_it_is_decorated(line: str) -> None:
    assert Calls.parse(f"Here are the calls:\n\n```python\n{line}\n```\n", FACTS).calls == ("net(119)",)


@pytest.mark.parametrize(
    "line", ["net(x)", "open('/etc/passwd')", "print(1)", "len('a')", "net(119", "import os", "net(input())", "net(119); net(2)"]
)
def test_what_is_no_repeatable_call_of_the_program_is_passed_over(line: str) -> None:
    with pytest.raises(BadReply, match="no call that can be run"):
        Calls.parse(line, FACTS)


def test_only_calls_of_the_function_in_question_count_and_only_the_first_ones() -> None:
    reply = Calls.parse("receipt(1)\n" + "\n".join(f"net({n})" for n in range(40)), {**FACTS, "of": "net"})
    assert reply.calls == tuple(f"net({n})" for n in range(MOST_CALLS))


def test_a_result_is_taken_only_when_a_test_can_compare_with_it() -> None:
    facts = {**FACTS, "call": "net(1)", "before": "raises ValueError 'x'", "clause": "net(1) is 0"}
    assert Result.parse("The new version returns 0", facts).value == "0"
    assert Result.parse("```\nraises ValueError 'negative: -1'\n```", facts).value == "raises ValueError 'negative: -1'"
    with pytest.raises(BadReply, match="no exact result"):
        Result.parse("a small number", facts)


def test_a_change_that_speaks_of_no_error_cannot_turn_a_value_into_one() -> None:
    facts = {**FACTS, "call": "net(1)", "before": "0", "clause": "net(1) skips the tax"}
    with pytest.raises(BadReply, match="speaks of no error"):
        Result.parse("raises ValueError 'no tax'", facts)
    assert Result.parse("raises ValueError 'no tax'", {**facts, "clause": "net refuses 1"}).value == "raises ValueError 'no tax'"


def test_a_change_is_only_what_the_mission_says_word_by_word() -> None:
    facts = {"mission": "Keep all.\n\n- net(-1) gives **0**.\n"}
    assert Changes.parse("- net(-1) gives 0.", facts).sentences == ("net(-1) gives 0.",)
    assert Changes.parse("NONE", facts).sentences == ()
    with pytest.raises(BadReply, match="does not say"):
        Changes.parse("- net(-1) gives 1.", facts)


@given(st.text(max_size=300))
def test_no_text_breaks_the_readers(text: str) -> None:
    for reply, more in (
        (Calls, {}),
        (Result, {"call": "net(1)", "before": "", "clause": ""}),
        (Changes, {"mission": "a"}),
        (OneFunction, {"text": "def net(a): pass", "name": "net"}),
    ):
        with contextlib.suppress(BadReply):
            reply.parse(text, {**FACTS, **more})


# -- the old program is the oracle --------------------------------------------------------------------


def test_results_are_what_the_old_program_gives_printed_text_and_errors_included(gate: QualityGate) -> None:
    calls = ["net(119)", "net(-5)", "receipt(1, 'a')", "flag(3)"]
    seen = observe(gate, SHOP, calls)
    assert seen.results == {
        "net(119)": "100",
        "net(-5)": "raises ValueError 'negative: -5'",
        "receipt(1, 'a')": "2, prints '1\\na\\n'",
        "flag(3)": "True",
    }


def test_a_result_that_differs_or_is_no_plain_value_is_no_result(gate: QualityGate) -> None:
    seen = observe(gate, {**SHOP, "clock.py": b"import time\ndef now():\n    return time.time_ns()\n"}, ["now()", "till()", "net(0)"])
    assert seen.results == {"net(0)": "0"}


def test_a_call_that_never_reaches_the_program_shows_nothing_of_it(gate: QualityGate) -> None:
    seen = observe(gate, SHOP, ["net()", "net(1, 2, 3)", "flag(net)", "[net(n) for n in 3]", "[net(n) for n in [-1]]"])
    assert seen.results == {"flag(net)": "True", "[net(n) for n in [-1]]": "raises ValueError 'negative: -1'"}


def test_of_an_error_that_the_old_program_only_met_the_text_is_no_promise(gate: QualityGate) -> None:
    met = {"a.py": b"def pick(xs, n):\n    return int(xs[n])\n\ndef quit_(n):\n    raise SystemExit(n)\n"}
    seen = observe(gate, met, ["pick(['1'], 3)", "pick(['x'], 0)", "pick(3, 0)", "quit_(2)"])
    assert seen.results == {
        "pick(['1'], 3)": "raises IndexError",
        "pick(['x'], 0)": "raises ValueError",
        "quit_(2)": "raises SystemExit '2'",
    }


def test_a_function_named_like_its_module_is_the_one_that_is_called(gate: QualityGate) -> None:
    assert observe(gate, {"wrap.py": b"def wrap(text):\n    return [text]\n"}, ["wrap('a')"]).results == {"wrap('a')": "['a']"}


def test_an_old_program_that_cannot_be_imported_tells_why(gate: QualityGate) -> None:
    seen = observe(gate, {"a.py": b"import nowhere\ndef f():\n    return 1\n"}, ["f()"])
    assert not seen.ran and "nowhere" in seen.why and seen.results == {}


def test_the_tests_written_from_what_was_seen_pass_on_the_old_program_and_fail_on_its_skeleton(gate: QualityGate) -> None:
    calls = ["net(119)", "net(-5)", "receipt(1, 'a')", "flag(3)", "[net(n) for n in range(3)]"]
    results = observe(gate, SHOP, calls).results
    tests = [PYTHON.test_of(f"T{n}", call, results[call], SHOP) for n, call in enumerate(calls, 1)]
    acceptance = {"test_rows.py": "\n\n".join(t or "" for t in tests).encode()}
    assert gate.run(SHOP, acceptance).verdict == "green"
    stubs = {path: (PYTHON.skeleton(path, data.decode()) or "").encode() for path, data in SHOP.items()}
    outcomes = [t.outcome for t in gate.test(stubs, acceptance).tests]
    assert outcomes == ["failed"] * len(calls)


def test_a_test_from_a_row_tells_a_number_from_a_truth_value_and_a_text_from_another(gate: QualityGate) -> None:
    wrong = {"shop/till.py": b"def net(cents):\n    return True\n\ndef flag(x):\n    raise ValueError('other')\n"}
    rows = [PYTHON.test_of("T1", "net(1)", "1", SHOP), PYTHON.test_of("T2", "flag(1)", "raises ValueError 'this'", SHOP)]
    assert [t.outcome for t in gate.test(wrong, {"test_rows.py": "\n\n".join(map(str, rows)).encode()}).tests] == ["failed", "failed"]


@pytest.mark.parametrize("expected", ["about 3", "IV", "the list, sorted", "raises an error", "raises Nonsense 'x'", "", "net(3)"])
def test_a_row_whose_result_is_not_exact_is_not_written_by_program(expected: str) -> None:
    assert PYTHON.test_of("T1", "net(1)", expected, SHOP) is None


# -- one function at a time ---------------------------------------------------------------------------

OLD = '''"""Doc."""
from __future__ import annotations

LIMIT = 3


class Till:
    def total(self, prices):
        """Sum."""
        raise NotImplementedError


def net(cents: int) -> int:
    raise NotImplementedError


def one(x): return x
'''


def graft(name: str, code: str) -> str:
    return OneFunction.parse(code, {"pack": PYTHON, "text": OLD, "name": name}).text


def test_a_function_is_put_in_its_place_with_the_imports_and_private_names_it_needs() -> None:
    made = graft(
        "net",
        "```python\nimport math\n\n_RATE = 119\n\ndef net(cents: int) -> int:\n    return math.floor(cents / _RATE)\n```\nDone.",
    )
    names = [ast.unparse(node).split("\n")[0] for node in ast.parse(made).body[1:]]
    assert names == [
        "from __future__ import annotations",
        "import math",
        "LIMIT = 3",
        "class Till:",
        "_RATE = 119",
        "def net(cents: int) -> int:",
        "def one(x):",
    ]


@pytest.mark.parametrize(
    "code", ["class Till:\n    def total(self, prices):\n        return sum(prices)", "def total(self, prices):\n    return sum(prices)"]
)
def test_a_method_is_taken_bare_or_in_its_class(code: str) -> None:
    made = graft("Till.total", f"```python\n{code}\n```")
    assert "    def total(self, prices):\n        return sum(prices)\n" in made and "def net" in made


@pytest.mark.parametrize(
    ("reply", "rule"),
    [
        ("```python\ndef other():\n    pass\n```", "no function net"),
        ("```python\ndef net(cents: int) -> int:\n    raise NotImplementedError\n```", "write its body"),
        ("```python\ndef net(cents, rate):\n    return 1\n```", "keep the parameters"),
        ("```python\ndef net(cents:\n```", "does not parse"),
        ("I would return cents.", "fenced block"),
    ],
)
def test_a_reply_without_that_function_whole_is_refused_with_what_to_mend(reply: str, rule: str) -> None:
    with pytest.raises(BadReply, match=rule):
        graft("net", reply)


def test_a_skeleton_keeps_everything_but_the_bodies() -> None:
    text = PYTHON.skeleton("a.py", OLD + "\nasync def f(\n    a,\n): return (\n    a\n)\n\n\ndef g():\n    'Only words.'\n")
    assert text is not None
    assert PYTHON.stubs({"a.py": text.encode()})["a.py"] == ("Till.total", "net", "one", "f", "g")
    assert "LIMIT = 3" in text and "Only words." in text and "return" not in text


@given(st.sampled_from(["net", "one", "Till.total"]), st.text(max_size=200))
def test_grafting_never_loses_another_declaration(name: str, body: str) -> None:
    code = f"def {name.rpartition('.')[2]}({'self, prices' if '.' in name else 'cents' if name == 'net' else 'x'}):\n    return {body!r}\n"
    made = PYTHON.graft(OLD, name, code)
    assert [s.name for s in PYTHON.symbols("a.py", made)] == [s.name for s in PYTHON.symbols("a.py", OLD)]
    assert repr(body) in made


# -- plan and limits by program -----------------------------------------------------------------------


def test_without_a_model_each_file_is_a_milestone_after_the_files_it_imports() -> None:
    schema = {
        "shop/cli.py": b"from shop.till import net\nimport shop.paper\n\ndef main(argv):\n    raise NotImplementedError\n",
        "shop/paper.py": b'"""Not the till."""\ndef fold():\n    raise NotImplementedError\n',
        "shop/till.py": b"def net(cents):\n    raise NotImplementedError\n",
    }
    plan = Plan.read(by_imports(PYTHON.stubs(schema), schema))
    assert waves(plan) == (("shop-paper-py", "shop-till-py"), ("shop-cli-py",))
    assert problems(plan) == ()


def test_a_prompt_that_knows_its_answers_length_caps_it_and_does_not_say_so() -> None:
    sections = [Section("limit", "160"), Section("rules", "Be brief."), Section("task", "Count.")]
    fitted = fit(sections, 8192, 4096, lambda text: None)
    assert fitted.max_tokens == 160 and [s.name for s in fitted.sections] == ["rules", "task"]
    assert fit(sections, 8192, 100, lambda text: None).max_tokens == 100
    assert fit(sections[1:], 8192, 4096, lambda text: None).max_tokens == 4096


def test_a_change_reaches_the_functions_that_call_the_changed_one_through_others() -> None:
    source = {
        "a.py": b"def net(x):\n    return x\n\ndef line(x):\n    return str(net(x))\n",
        "cli.py": b"from a import line\n\nclass Till:\n    def show(self, x):\n        print(line(x))\n\ndef other():\n    return 1\n",
        "tests/test_a.py": b"def test_net():\n    pass\n",
    }
    reach = uses(SimpleNamespace(pack=PYTHON, source=lambda: source))  # type: ignore[arg-type]
    assert reach == {"net": {"net"}, "line": {"line", "net"}, "show": {"show", "line", "net"}, "other": {"other"}}
