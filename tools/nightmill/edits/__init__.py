"""A model's reply becomes bytes on disk: a wide parser, a narrow matcher, all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from nightmill.edits import disk, refuse
from nightmill.edits.elision import elided_line
from nightmill.edits.files import DiskFiles, MemoryFiles
from nightmill.edits.items import Outcome, WholeFile
from nightmill.edits.parse import parse
from nightmill.edits.plan import Plan, plan
from nightmill.edits.target import Rules
from nightmill.errors import BadReply, machine_trouble

__all__ = ["Outcome", "apply_reply", "file_blocks", "plan_edits"]

_TIMES_TO_HAND_BACK = 3


def apply_reply(
    root: Path,
    reply: str,
    *,
    finish: str = "stop",
    guard: Callable[[str], str | None] | None = None,
    prompt_examples: Collection[str] = (),
    may_shrink: Collection[str] = (),
    failed_before: Sequence[str] = (),
) -> Outcome:
    """Carries out `reply` on the files below `root`, or refuses it and changes no byte.

    finish: the provider's stop reason; anything but "stop" is refused as truncated.
    guard(path): why this path must not be written (`collision`, `locked test`), or None.
    prompt_examples: paths and bodies of the prompt's own examples, never to be taken for an edit.
    may_shrink: paths that were asked to become much smaller.
    failed_before: the `failed` fingerprints of all earlier outcomes, so that a repeated SEARCH is told to change its way.
    Raises MachineError when the disk fails; everything is rolled back then.
    """
    with machine_trouble():
        made = plan(DiskFiles(root), reply, finish, Rules(guard, prompt_examples, may_shrink))
        if made.failures:
            return _refused(made, failed_before)
        disk.commit(root, made.changes)
    return Outcome(changed=tuple(sorted(made.changes)))


def plan_edits(
    tree: Mapping[str, bytes],
    reply: str,
    *,
    finish: str = "stop",
    guard: Callable[[str], str | None] | None = None,
    prompt_examples: Collection[str] = (),
    may_shrink: Collection[str] = (),
    failed_before: Sequence[str] = (),
) -> Outcome:
    """Like `apply_reply`, on a tree in memory: the outcome's `tree` is the new one, or the old one when refused."""
    made = plan(MemoryFiles(tree), reply, finish, Rules(guard, prompt_examples, may_shrink))
    if made.failures:
        return _refused(made, failed_before, tree)
    new = {path: data for path, data in {**tree, **made.changes}.items() if data is not None}
    return Outcome(changed=tuple(sorted(made.changes)), tree=new)


def _refused(made: Plan, failed_before: Sequence[str], tree: Mapping[str, bytes] | None = None) -> Outcome:
    failed = tuple(failure.fingerprint for failure in made.failures if failure.fingerprint)
    return Outcome(
        refused=refuse.text(made.failures, failed_before),
        reasons=tuple(failure.reason for failure in made.failures),
        guards=tuple(failure.guard for failure in made.failures if failure.guard),
        failed=failed,
        hand_back=any([*failed_before, *failed].count(mark) >= _TIMES_TO_HAND_BACK for mark in set(failed)),
        tree=dict(tree or {}),
    )


def file_blocks(reply: str) -> dict[str, str]:
    """The whole files of a reply that consists of whole files: normalised path → text ending in a newline (or empty).

    Raises BadReply with the broken rule: an incomplete file, a forbidden path, two contents for one path, blocks, deletions, none at all.
    """
    parsed = parse(reply, lambda _: False)
    for failure in parsed.failures:
        raise BadReply(" ".join(filter(None, (failure.path and f"{failure.path}:", failure.reason + ":", *failure.details))))
    files: dict[str, str] = {}
    for item in parsed.items:
        if not isinstance(item, WholeFile):
            raise BadReply(f"{item.path}: give each file whole: its path alone on a line, then its content in a fence.")
        text = "".join(line + "\n" for line in item.lines)
        if files.setdefault(item.path, text) != text:
            raise BadReply(f"{item.path}: the file is given twice with different contents; give it once.")
        if placeholder := elided_line(item.lines, item.path):
            raise BadReply(f"{item.path}: `{placeholder}` stands for code that was left out; write every line.")
    if not files:
        raise BadReply("The reply holds no file: write each file's path alone on a line, and directly below it its content in a fence.")
    return files
