"""Tools of a language are found where people keep them, seen through shims, and usable in the sandbox."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nightmill.errors import ConfigError
from nightmill.gate import languages, toolchain
from nightmill.gate.languages.javascript import MISSING, JavaScriptPack
from nightmill.gate.quality import QualityGate
from nightmill.gate.toolchain import Tool
from sandbox_help import sandbox
from test_packs import LIMITS, judging, needed, tree


def program(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)


def test_the_search_path_goes_before_the_homes_and_a_broken_tool_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin/turtle", f"printf '{tmp_path}/real/turtle\\n3.1\\n'")
    program(tmp_path / "home/v9.2/bin/turtle", f"printf '{tmp_path}/home/v9.2/bin/turtle\\n9.2\\n'")
    program(tmp_path / "home/v10.0/bin/turtle", f"printf '{tmp_path}/home/v10.0/bin/turtle\\n10.0\\n'")
    program(tmp_path / "home/v11/bin/turtle", "exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    homes = ("~/home/*/bin",)
    found = toolchain.find("turtle", homes, ("where",))
    assert found is not None and (found.path, found.version) == (tmp_path / "real/turtle", "3.1")
    program(tmp_path / "bin/turtle", "exit 1")
    monkeypatch.setenv("PATH", f"/usr/bin:{tmp_path}/bin")
    newest = toolchain.find("turtle", homes, ("where",))
    assert newest is not None and newest.version == "10.0" and newest.bind == {"/nightmill/bin/turtle": newest.path}
    assert toolchain.find("hare", homes, ("where",)) is None


def test_node_outside_of_usr_works_in_the_sandbox(tmp_path: Path) -> None:
    pack = needed("javascript")
    assert isinstance(pack, JavaScriptPack) and pack.node is not None
    version = pack.node.version
    copy = Path(shutil.copy(pack.node.path, tmp_path / "node"))
    moved = JavaScriptPack(find=lambda: Tool("node", copy, version))
    record = QualityGate(moved, sandbox(), LIMITS).run(tree(moved, "good"), judging(moved))
    assert (record.verdict, record.toolchain) == ("green", f"node {version} ({copy})")


def test_without_node_nothing_is_green_and_every_step_says_what_to_install() -> None:
    pack = JavaScriptPack(find=lambda: None)
    record = QualityGate(pack, sandbox(), LIMITS).run(tree(pack, "good"), judging(pack))
    assert record.verdict == "not_run" and "install Node" in record.reason
    assert [s.status for s in record.steps] == ["not_run"] * 3 and record.toolchain == MISSING
    with pytest.raises(ConfigError, match="install Node"):
        pack.require()
    with pytest.raises(ConfigError, match="too old"):
        JavaScriptPack(find=lambda: Tool("node", Path("/opt/node"), "16.20.0")).require()
    assert languages.detect({"a.py": b""})[0].name == "python"
