"""What the Python pack reads from text: names, stubs, tests, errors, forbidden paths."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightmill.errors import ConfigError
from nightmill.gate import languages
from nightmill.gate.languages.python import PythonPack

PACK = PythonPack()

MODULE = textwrap.dedent('''
    """A module."""
    import os
    from typing import Protocol, overload
    import abc

    LIMIT: int = 3
    NAMES = ("a", "b")
    _hidden = 1
    __version__ = "1"

    async def fetch(url: str, /, *, retries: int = 3, **more) -> bytes:
        """Gets it."""
        raise NotImplementedError

    if os.name == "posix":
        def here(): ...
    else:
        def here(): raise NotImplementedError("there")

    @dataclass(frozen=True)
    class Ledger(Base, metaclass=abc.ABCMeta):
        rate: float = 0.5

        def __init__(self, path: str): self.path = path

        @property
        def total(self) -> int:
            raise NotImplementedError("later")

        @abc.abstractmethod
        def must(self): ...

        class Entry:
            def amount(self): pass

    class Reader(Protocol):
        def read(self) -> bytes: ...

    @overload
    def pick(a: int) -> int: ...
    def pick(a): return a

    def outer():
        def inner(): raise NotImplementedError
        return inner

    def almost():
        """Does something first."""
        print("x")
        raise NotImplementedError
''')


def test_symbols_come_with_kind_place_signature_and_publicity() -> None:
    found = {s.name: s for s in PACK.symbols("pkg/bank.py", MODULE)}
    assert found["fetch"].signature == "async def fetch(url: str, /, *, retries: int=3, **more) -> bytes"
    assert found["Ledger"].signature == ("@dataclass(frozen=True) class Ledger(Base, metaclass=abc.ABCMeta): def __init__(self, path: str)")
    assert found["Ledger.total"].signature == "@property def total(self) -> int"
    assert found["LIMIT"].signature == "LIMIT: int = 3" and found["Ledger.rate"].kind == "constant"
    assert {name: s.kind for name, s in found.items() if s.kind in ("class", "method")} == {
        "Ledger": "class", "Ledger.__init__": "method", "Ledger.total": "method", "Ledger.must": "method",
        "Ledger.Entry": "class", "Ledger.Entry.amount": "method", "Reader": "class", "Reader.read": "method",
    }  # fmt: skip
    assert {name for name, s in found.items() if not s.public} == {"_hidden", "Ledger.__init__"}
    assert "inner" not in found and "__version__" not in found
    assert found["here"].file == "pkg/bank.py" and found["LIMIT"].line == 7


@pytest.mark.parametrize(
    ("path", "all_line", "public"),
    [
        ("bank.py", "", {"open_", "Ledger", "Ledger.add"}),
        ("bank.py", "__all__ = ['Ledger']", {"Ledger", "Ledger.add"}),
        ("bank.py", "__all__ = ['open_']\n__all__ += ('_secret',)", {"open_"}),
        ("bank.py", "__all__: list[str] = []", set()),
        ("_bank.py", "", set()),
        ("pkg/_inner/bank.py", "", set()),
        ("pkg/__init__.py", "", {"open_", "Ledger", "Ledger.add"}),
    ],
)
def test_public_is_what_has_no_underscore_and_is_exported(path: str, all_line: str, public: set[str]) -> None:
    text = f"{all_line}\ndef open_(): pass\ndef _secret(): pass\nclass Ledger:\n    def add(self): pass\n    def _add(self): pass\n"
    assert {s.name for s in PACK.symbols(path, text) if s.public} == public


def test_stubs_are_functions_that_do_nothing_yet() -> None:
    assert PACK.stubs({"bank.py": MODULE.encode(), "full.py": b"def f(): return 1", "notes.txt": b"def f(): ..."}) == {
        "bank.py": ("fetch", "here", "here", "Ledger.total")
    }


def test_tests_are_counted_as_pytest_names_them() -> None:
    text = textwrap.dedent("""
        import unittest, pytest
        @pytest.mark.parametrize("x", [1, 2])
        def test_t1_a(x): ...
        async def test_t2_b(): ...
        def helper(): ...
        class TestGroup:
            def test_t3_c(self): ...
            class TestInner:
                def test_t4_d(self): ...
        class TestMade:
            def __init__(self): ...
            def test_never(self): ...
        class Case(unittest.TestCase):
            def test_t5_e(self): ...
        class Other:
            def test_never(self): ...
    """)
    ids = PACK.tests_in("acceptance/test_x.py", text)
    names = ("test_t1_a", "test_t2_b", "TestGroup::test_t3_c", "TestGroup::TestInner::test_t4_d", "Case::test_t5_e")
    assert ids == tuple(f"acceptance/test_x.py::{name}" for name in names)
    files = {"acceptance/test_x.py": text.encode(), "acceptance/helpers.py": text.encode(), "acceptance/test_y.py": b"def ("}
    assert PACK.count_tests(files) == 5


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        (b"x = 1\ndef f(:\n", 2, "invalid syntax"),
        (b"if x:\npass\n", 2, "expected an indented block"),
        (b"x = '\n", 1, "unterminated"),
        (b"x = 1\0", 1, "null bytes"),
        (b"# coding: nowhere\n", 1, "unknown encoding"),
        (b"x = '\xff'\n", 1, "utf-8"),
        (b"(" * 5000, 1, "nested"),
        (b"-" * 100_000 + b"1", 1, "nested"),
    ],
    ids=range(8),
)
def test_what_does_not_parse_is_located(source: bytes, line: int, word: str) -> None:
    (found,) = PACK.precheck({"bad.py": source, "good.py": b"x = 1", "bad.txt": source})
    assert (found.file, found.line, found.severity) == ("bad.py", line, "error") and word in found.message


def test_python_2_is_located_in_every_file_that_has_it() -> None:
    assert [d.file for d in PACK.precheck({"a.py": b"print 'x'", "b.py": b"exec 'y'", "c.py": b"pass"})] == ["a.py", "b.py"]


@given(st.text(max_size=80) | st.text(alphabet="def class:()[]{}=\n \t'\"\\@*.,#", max_size=80))
def test_no_text_makes_the_pack_raise(text: str) -> None:
    PACK.symbols("a.py", text)
    PACK.tests_in("test_a.py", text)
    data = text.encode("utf-8", "surrogatepass")
    PACK.precheck({"a.py": data})
    PACK.stubs({"a.py": data})


@pytest.mark.parametrize(
    "path",
    ["conftest.py", "pkg/conftest.py", "sitecustomize.py", "x.pth", "pytest.ini", "tox.ini", "acceptance/test_x.py", "acceptance.py",
     "pytest.py", "_pytest/runner.py", ".nightmill/key", "json.py", "typing/__init__.py", "pkg/__pycache__/a.pyc", "lib.so"],
)  # fmt: skip
def test_paths_that_could_bend_the_gate_are_forbidden_with_a_reason(path: str) -> None:
    assert PACK.forbidden(path)


@pytest.mark.parametrize(
    "path", ["app.py", "pkg/__init__.py", "pkg/json.py", "pyproject.toml", "README.md", "tests/test_own.py", "data/x.json"]
)
def test_other_paths_are_free(path: str) -> None:
    assert PACK.forbidden(path) is None


def test_packs_are_found_by_name_and_by_tree() -> None:
    assert languages.pack("python").name == "python" and 3 <= len(PACK.prompt_rules) <= 8
    assert [p.name for p in languages.detect({"a.py": b"", "b.cob": b""})] == ["python"]
    assert languages.detect({"b.cob": b""}) == ()
    assert languages.pack("python", Path("/opt/python")) == PythonPack(interpreter=Path("/opt/python"))
    with pytest.raises(ConfigError, match=r"no language pack for 'cobol'.*python"):
        languages.pack("cobol")
