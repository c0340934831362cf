"""What the person sees while a run works: a live display on a terminal, plain lines elsewhere, nothing under cron. The home of rich."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import IO, TYPE_CHECKING, cast

from nightmill.board import Board, View
from nightmill.lines import Line, StageLine, State, Tone, count, narrate, one_line, stopwatch, terminal_safe
from nightmill.run.events import Event, Note, RunEnded, StageFinished, StageStarted
from nightmill.stream import SafeStream

if TYPE_CHECKING:
    from rich.console import Console as RichConsole
    from rich.console import RenderableType

__all__ = ["Console", "StageLine", "terminal_safe"]

REFRESH_S = 0.125
_STYLES: dict[Tone, str] = {"good": "green", "bad": "bold red", "warn": "yellow", "dim": "dim", "plain": ""}
_MARKS: dict[State, tuple[str, str]] = {
    "fresh": ("✓", "dim green"),
    "kept": ("✎", "dim green"),
    "made": ("✓", "bold green"),
    "stale": ("·", "dim"),
    "running": ("▸", "bold cyan"),
    "held": ("‖", "bold yellow"),
    "waiting": ("…", "yellow"),
    "blocked": ("○", "yellow"),
    "failed": ("✗", "bold red"),
}


class Console:
    """Tells a person what a run does. All methods may be called from any thread, and none raises because of the stream.

    `tty` None asks the stream. `quiet` prints nothing unless the run ends with an exit code other than 0, then one summary.
    """

    def __init__(self, stream: IO[str], *, tty: bool | None = None, environ: Mapping[str, str] = os.environ, quiet: bool = False) -> None:
        self._stream = SafeStream(stream)
        self._environ = environ
        self._quiet = quiet
        self._live = (self._stream.isatty() if tty is None else tty) and not quiet and _can_draw(self._stream, environ)
        self._board = Board()
        self._display: _Display | None = None
        self._lock = threading.Lock()
        self._ended = False

    def plan(self, stages: Sequence[StageLine]) -> None:
        """The stages as they are now known; called again whenever the graph is generated again."""
        self._board.plan([StageLine(s.name, one_line(s.doc), s.state, one_line(s.why)) for s in stages])

    def on_event(self, event: Event) -> None:
        """Subscribe this to the EventLog."""
        self._board.apply(event)
        if isinstance(event, RunEnded):
            self._ended = True
            if not self._quiet or event.exit:
                self._write(self._board.ending(event))
            return
        if self._quiet:
            return
        if isinstance(event, StageStarted):
            self._start()
        line = narrate(event)
        if line and not (self._live and isinstance(event, StageStarted)):  # the display shows what runs
            self._write([self._with_findings(event, line)])

    def tokens(self, stage: str, label: str, text: str) -> None:
        """A piece of a reply as it streams in; only counted, never shown."""
        self._board.tokens(stage, label, text)

    def say(self, text: str) -> None:
        """One line that no event carries."""
        if not self._quiet and (line := narrate(Note(text=text))):
            self._write([line])

    def close(self) -> None:
        """Takes the live display down and leaves the cursor below what was printed. May be called twice."""
        with self._lock:
            display, self._display, self._live = self._display, None, False
        if display:
            display.stop()

    def _with_findings(self, event: Event, line: Line) -> Line:
        found = self._board.findings[line.stage] if isinstance(event, StageFinished) else 0
        return Line(line.at, line.stage, f"{line.text}, {count(found, 'finding')}", line.tone) if found else line

    def _start(self) -> None:
        with self._lock:
            if self._live and self._display is None:
                self._display = _Display(self._board, self._stream, self._environ)
                self._display.start()

    def _write(self, lines: Sequence[Line]) -> None:
        with self._lock:
            if self._display:
                self._display.show(lines)
                return
            width = self._board.name_width()
            self._stream.write("".join(line.plain(width if line.stage else 0).rstrip() + "\n" for line in lines))


def _can_draw(stream: SafeStream, environ: Mapping[str, str]) -> bool:
    utf8 = stream.encoding.lower().replace("-", "") == "utf8"
    return utf8 and environ.get("TERM", "dumb") not in ("", "dumb", "unknown")


class _Display(threading.Thread):
    """Draws from one thread of its own, so that a terminal that takes no output does not stall the work."""

    def __init__(self, board: Board, stream: SafeStream, environ: Mapping[str, str]) -> None:
        super().__init__(name="console", daemon=True)
        self._board, self._stream, self._environ = board, stream, environ
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._done = threading.Event()

    def show(self, lines: Sequence[Line]) -> None:
        for line in lines:
            self._lines.put(line)

    def stop(self) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        from rich.live import Live

        console = _rich(self._stream, self._environ)
        with Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False) as live:
            console.show_cursor(True)  # a killed run would leave the person's terminal without one
            while not self._stream.gone and not self._done.is_set():
                self._log(console)
                live.update(_board(self._board.view(max(console.height - 3, 1)), console.width), refresh=True)
                self._done.wait(REFRESH_S)
        self._log(console)

    def _log(self, console: RichConsole) -> None:
        console.size = self._stream.size()
        lines = [self._lines.get() for _ in range(self._lines.qsize())]
        if lines:
            console.print(_log(lines, min(self._board.name_width(), console.width // 3)))


def _rich(stream: SafeStream, environ: Mapping[str, str]) -> RichConsole:
    from rich.console import Console as RichConsole

    return RichConsole(
        file=cast("IO[str]", stream),  # rich only writes and flushes
        force_terminal=True,
        no_color=bool(environ.get("NO_COLOR")),
        highlight=False,
        markup=False,
        emoji=False,
        _environ=environ,
    )


def _log(lines: Sequence[Line], name_width: int) -> RenderableType:
    """Lines that stay: clock, stage, what happened; long text wraps in its own column."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = []
    for ofstage, some in groupby(lines, key=lambda line: bool(line.stage)):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=8, style="dim", no_wrap=True)
        if ofstage:
            table.add_column(width=name_width, no_wrap=True, overflow="ellipsis")
        table.add_column(overflow="fold")
        for line in some:
            table.add_row(line.clock, *([Text(line.stage)] if ofstage else []), Text(line.text, _STYLES[line.tone]))
        parts.append(table)
    return Group(*parts)


def _board(view: View, columns: int) -> RenderableType:
    """The part that is drawn again and again."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0), expand=True)
    table.add_column(width=1)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=columns // 3)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column(no_wrap=True, justify="right", min_width=5)
    for row in view.rows:
        elapsed = "" if row.elapsed is None else stopwatch(row.elapsed)
        if row.state is None:
            table.add_row("", Text(f"  {row.name}", "cyan"), Text(row.text, "cyan"), Text(elapsed, "cyan"))
            continue
        mark, style = _MARKS[row.state]
        word = "" if row.state in ("made", "fresh", "running") else f"{row.state}: " if row.text else row.state
        text = Text(word + row.text, "" if row.state == "running" else "dim" if row.state in ("made", "fresh", "stale") else "yellow")
        table.add_row(Text(mark, style), Text(row.name, "bold" if row.state == "running" else ""), text, elapsed)
    parts: list[RenderableType] = [Text("─" * (columns - 1), "dim"), table]
    if view.hidden:
        parts.append(Text(f"   and {view.hidden}", "dim"))
    parts.append(Text(f"   {view.footer}", "dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)
