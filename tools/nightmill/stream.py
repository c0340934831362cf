"""An output stream that may vanish while the work goes on."""

from __future__ import annotations

import contextlib
import os
from typing import IO


class SafeStream:
    """A text stream that may vanish. After the first failure everything written to it is dropped."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        self.gone = False

    def write(self, text: str) -> int:
        if not self.gone:
            try:
                self._stream.write(text.encode(self.encoding, "replace").decode(self.encoding))
                self._stream.flush()
            except (OSError, ValueError):  # reader gone, terminal hung up, disk full, stream closed
                self._lose()
        return len(text)

    def _lose(self) -> None:
        """Points the descriptor at /dev/null, or the interpreter would fail on its own last flush."""
        self.gone = True
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(null, self._stream.fileno())
            os.close(null)

    def flush(self) -> None:
        """Nothing to do: every write is flushed."""

    def isatty(self) -> bool:
        try:
            return self._stream.isatty()
        except ValueError:
            return False

    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 × 24 where the terminal does not say."""
        try:
            columns, lines = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            columns = lines = 0
        return columns or 80, lines or 24
