"""Reading the events of a run while another process writes them: no lock, nothing written."""

from __future__ import annotations

import os
from pathlib import Path

from nightmill.run.events import Event, parse_event


class Follower:
    """Reads `path` from where it stopped last time. The file may not exist yet, end in a torn line, or be replaced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._inode = 0

    def read(self) -> tuple[list[Event], bool]:
        """New events, oldest first; and whether they are all there is, because the file is another one now. Raises OSError."""
        try:
            with self._path.open("rb") as file:
                inode, anew = os.fstat(file.fileno()).st_ino, False
                size = file.seek(0, 2)
                if inode != self._inode or size < self._offset:
                    anew, self._offset, self._inode = self._inode != 0, 0, inode
                file.seek(self._offset)
                data = file.read(size - self._offset)
        except FileNotFoundError:
            anew, self._offset, self._inode = self._inode != 0, 0, 0
            return [], anew
        whole = data[: data.rfind(b"\n") + 1]  # the rest is still being written
        self._offset += len(whole)
        return [event for line in whole.split(b"\n") if (event := parse_event(line))], anew
