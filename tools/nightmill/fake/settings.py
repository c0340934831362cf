"""How the fake server is when nothing goes wrong."""

from __future__ import annotations

from dataclasses import dataclass, field

from nightmill.fake.strict import Count, Flag, Folder, Rate, Seconds, SlotCount, Text


@dataclass(frozen=True)
class Settings:
    """Fields with a reader in their type can be written in a scenario file. Windows and counts are tokens of CHARS_PER_TOKEN."""

    model: Text = "fake-model"
    window: Count | None = 8192
    """Per slot. None: the server does not tell, /props and /slots do not exist."""
    max_model_len: Count | None = None
    """The window as vLLM tells it, in /v1/models."""
    slots: SlotCount = 1
    """Chat requests that are answered at once; others wait."""
    load_s: Seconds = 0.0
    """From the start on, every route says for so long that the model loads."""
    truncate: Count | None = None
    """As Ollama: a longer prompt loses its beginning in silence, and is counted as what was left. Makes /api/ps exist."""
    tokenize: Flag = True
    api_key_env: Text | None = None
    prefill_tps: Rate | None = None
    """Tokens per second; None: at once."""
    decode_tps: Rate | None = None
    batch: Count = 2048
    """Tokens evaluated at once in a prefill, as llama-server's --batch-size: how often progress is told, and what an abort keeps."""
    replies: Folder | None = None
    """Replies from files, as the scripted provider finds them, by the label in the header `X-Nightmill-Call`."""
    reply: Text = "ok"
    """For requests that no file and no list answers."""
    continues: Flag = True
    """Whether a last message of the assistant is gone on with; else it is a finished turn, and the answer starts anew."""
    echo: Flag = True
    """Whether the continued message is repeated before its continuation, as llama-server does."""
    counts: Flag = False
    """Whether tokens are counted: usage, timings and the simulated prompt cache are told, the window and `max_tokens` are kept to."""
    loading: int = 0
    """So many requests of any route but /health are told first that the model loads."""
    api_key: str | None = field(default=None, repr=False)
