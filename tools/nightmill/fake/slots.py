"""The slots of a llama-server: who waits, and which part of a prompt is still in a slot's cache."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CHARS_PER_TOKEN = 4
"""The fake tokenizer: every four characters are a token."""
SIMILARITY = 0.1
"""A free slot is chosen for what it remembers when that is this share of the prompt: llama-server's --slot-prompt-similarity."""


def tokens(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)


def render(messages: Sequence[Mapping[str, Any]], *, continues: bool) -> str:
    """ChatML. `continues`: a last message of the assistant is left open, so that the model goes on with it."""
    text = "".join(f"<|im_start|>{m.get('role')}\n{m.get('content')}<|im_end|>\n" for m in messages)
    if continues and messages and messages[-1].get("role") == "assistant":
        return text.removesuffix("<|im_end|>\n")
    return f"{text}<|im_start|>assistant\n"


@dataclass
class Slot:
    number: int
    held: str = ""
    """What it evaluated last: the prompt, and what was written behind it."""
    busy: bool = False
    used: int = 0
    """The task that had it last; tasks are counted from 1."""

    def shared(self, prompt: str) -> int:
        """Tokens at the start of `prompt` that need no evaluation."""
        ends = (n for n, (a, b) in enumerate(zip(self.held, prompt, strict=False)) if a != b)
        return next(ends, min(len(self.held), len(prompt))) // CHARS_PER_TOKEN


class Slots:
    """Safe for threads."""

    def __init__(self, number: int) -> None:
        self.all = tuple(Slot(n) for n in range(number))
        self._tasks = 0
        self._lock = threading.Lock()

    def take(self, prompt: str) -> Slot | None:
        """The free slot that remembers most of this prompt, or the one that has rested longest; None when all are busy."""
        with self._lock:
            free = [slot for slot in self.all if not slot.busy]
            if not free:
                return None
            best = max(free, key=lambda slot: slot.shared(prompt))
            if best.shared(prompt) < SIMILARITY * tokens(prompt):
                best = min(free, key=lambda slot: slot.used)
            self._tasks += 1
            best.busy, best.used = True, self._tasks
            return best

    def release(self, slot: Slot) -> None:
        with self._lock:
            slot.busy = False
