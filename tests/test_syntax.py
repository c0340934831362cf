"""Python's parser under threads."""

from __future__ import annotations

import ast
import gc
import re
import threading
from pathlib import Path

from nightmill.syntax import parsed

ENGINE = Path(__file__).parent.parent / "tools" / "nightmill"


def test_two_threads_can_parse_at_once() -> None:
    source = (ENGINE / "build" / "milestones.py").read_text(encoding="utf-8")
    failures: list[BaseException] = []

    class Finalized:
        """Python code that runs inside the parser, when the collector does: where threads change places."""

        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            sum(range(50))

    def work() -> None:
        try:
            for _ in range(30):
                [Finalized() for _ in range(20)]
                assert isinstance(parsed(source), ast.Module)
        except BaseException as error:
            failures.append(error)

    before = gc.get_threshold()
    gc.set_threshold(50)
    try:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
    assert failures == []


def test_nothing_else_in_this_process_parses_python() -> None:
    ours = [p for p in ENGINE.rglob("*.py") if "example" not in p.parts]
    assert [p.name for p in ours if re.search(r"\bast\.parse\(", p.read_text(encoding="utf-8"))] == ["syntax.py"]
