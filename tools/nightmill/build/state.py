"""What an implement loop knows between two attempts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nightmill.build.judge import Judgement
from nightmill.calls.replies import Finding
from nightmill.errors import NoUsableReply
from nightmill.gate.records import GateRecord
from nightmill.run.trees import Tree

Asked = Literal["rewrite", "patch"]


@dataclass
class State:
    """The best so far, and what the next attempt must know of the last one."""

    tree: Tree
    record: GateRecord
    judgement: Judgement
    before: frozenset[str]
    """Tests that must not go red."""
    seeds: tuple[GateRecord, ...]
    """The gates on what it started from, for what is inherited."""
    findings: dict[str, tuple[str, tuple[Finding, ...]]] = field(default_factory=dict)
    asked: Asked | None = None
    refusal: str = ""
    refusals: int = 0
    """In a row: one refused patch is asked for again with the reason, two are answered by a rewrite."""
    rewrite: bool = False
    """The next attempt is one, because patching got nowhere."""
    failed_before: tuple[str, ...] = ()
    """Fingerprints of SEARCH texts that were not found, for the refusal of the next one."""
    silence: NoUsableReply | None = None
    """Why there was no answer, as long as none of the attempts had any."""
    built: bool = False
