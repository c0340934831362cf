"""file_blocks: replies that consist of whole files."""

from __future__ import annotations

import pytest

from nightmill.edits import file_blocks
from nightmill.errors import BadReply


def test_whole_files_come_back_by_path() -> None:
    reply = "Here:\n\n**`acceptance/test_a.py`**\n```python\ndef test_t1_x():\n    assert 1\n```\n\nschema/b.py:\n```\n\n```\n"
    assert file_blocks(reply) == {"acceptance/test_a.py": "def test_t1_x():\n    assert 1\n", "schema/b.py": "\n"}


def test_reasoning_and_remarks_are_left_out() -> None:
    assert file_blocks("<think>\nb.py\n```\nx\n```\n</think>\na.py\n```\ny\n```\nRun:\n```sh\npytest\n```\n") == {"a.py": "y\n"}


def test_an_equal_repeat_counts_once() -> None:
    assert file_blocks("a.py\n```\ny\n```\na.py\n```\ny\n```\n") == {"a.py": "y\n"}


@pytest.mark.parametrize(
    ("reply", "rule"),
    [
        ("", "no file"),
        ("```python\nx\n```", "no file"),
        ("a.py\n```python\nx", "truncated"),
        ("../a.py\n```python\nx\n```", "outside"),
        ("a.py\n```\nx\n```\na.py\n```\ny\n```", "twice"),
        ("a.py\n<<<<<<< SEARCH\n=======\nx\n>>>>>>> REPLACE", "whole"),
        ("DELETE: a.py", "whole"),
        ("a.py\n```\n# ... rest of the code ...\n```", "left out"),
        ("<think>", "truncated"),
    ],
)
def test_a_broken_rule_is_told_in_one_sentence(reply: str, rule: str) -> None:
    with pytest.raises(BadReply, match=rule) as error:
        file_blocks(reply)
    assert "\n" not in str(error.value)
