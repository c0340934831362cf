"""The reply of an implementer: edits to files, applied in one transaction or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from nightmill.calls.replies import ReplyFormat
from nightmill.errors import BadReply


@dataclass(frozen=True)
class Edits(ReplyFormat):
    """The raw text: where its parts land is decided against the files (nightmill.edits), not by its shape alone."""

    text: str

    FORMAT: ClassVar[str] = """\
To write a whole file: its path alone on a line, then the complete content in a fenced block.

shop/price.py
```python
def net(cents: int) -> int:
    return cents
```

To change a part of an existing file: its path, then a block whose upper half repeats whole lines of the file exactly as they are.

shop/price.py
```
<<<<<<< SEARCH
    return cents
=======
    return cents - discount
>>>>>>> REPLACE
```

Several files and blocks may follow each other. Leave nothing out inside a block: no "..." and no "rest unchanged".
"""

    @classmethod
    def parse(cls, text: str, facts: Mapping[str, Any]) -> Self:
        if not text.strip():
            raise BadReply("Your reply is empty. Write the files.")
        return cls(text)


def guard(files: tuple[str, ...], owners: Mapping[str, str], forbidden: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Says why a path may not be written: locked tests, files that steer the test run, another milestone's file. None when it may."""

    def why_not(path: str) -> str | None:
        if path.split("/", 1)[0] == "acceptance":
            return "the acceptance tests are locked"
        if reason := forbidden(path):
            return reason
        if path not in files and path in owners:
            return f"it belongs to milestone {owners[path]}"
        return None

    return why_not
