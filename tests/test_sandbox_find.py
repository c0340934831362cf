"""Finding a sandbox: why a machine has none, root's way down, the ordinary user's way, and interpreters of every origin."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from nightmill.errors import ConfigError, SandboxMissing
from nightmill.gate import probe
from nightmill.gate.interpreter import examine, follow
from nightmill.gate.sandbox import find
from sandbox_help import SMALL, prints, sandbox

HERE = Path(sys.executable)
BASE = Path(sys._base_executable)
REPO = Path(__file__).parent.parent
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root steps down")

PRINTED = {
    "outdated": "bwrap: Unknown option --ro-bind-fd",
    "apparmor": "bwrap: setting up uid map: Permission denied",
    "masked-proc": "bwrap: Can't mount proc on /newroot/proc: Operation not permitted",
    "netlink": "bwrap: loopback: Failed to create NETLINK_ROUTE socket: Address family not supported by protocol",
    "userns-limit": "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
    "userns-off": "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces.",
    "root": "guard: unshare: Operation not permitted",
    "other": "bwrap: something never seen before",
}


@pytest.fixture
def fake_bwrap():
    """Makes a program that behaves like a bubblewrap in trouble, where every user can start it."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)

    def make(script: str) -> Path:
        program = folder / "bwrap"
        program.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo bubblewrap 0.0; exit; fi\n{script}\n')
        program.chmod(0o755)
        return program

    yield make
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", PRINTED)
def test_a_machine_in_trouble_is_told_the_cause_and_the_fix_in_one_line(fake_bwrap, kind):
    program = fake_bwrap(f"echo {shlex.quote(PRINTED[kind])} >&2; exit 1")
    assert probe.classify(PRINTED[kind]).kind == kind
    with pytest.raises(SandboxMissing) as caught:
        find(python=HERE, bwrap=program)
    text = str(caught.value)
    assert "\n" not in text and "To fix it: " in text and caught.value.exit_code == 78
    assert probe.classify(PRINTED[kind]).what in text


def test_the_other_apparmor_and_container_texts_are_known():
    assert probe.classify("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted").kind == "apparmor"
    assert probe.classify("bwrap: Creating new namespace failed: Operation not permitted").kind == "userns-off"
    assert probe.classify("").kind == "other"


def test_a_missing_bubblewrap_names_the_package():
    with pytest.raises(SandboxMissing, match="apt install bubblewrap"):
        find(python=HERE, bwrap=Path("/nonexistent/bwrap"))


def test_a_bubblewrap_that_cannot_forbid_nesting_is_used_without_and_recorded(fake_bwrap):
    program = fake_bwrap('for a; do [ "$a" = --disable-userns ] && echo "bwrap: cannot" >&2 && exit 1; done; exec /usr/bin/bwrap "$@"')
    protections = find(python=HERE, bwrap=program).protections
    assert "no-nested-namespaces" not in protections and "seccomp" in protections
    assert "no-nested-namespaces" in sandbox().protections


def test_root_is_no_user_for_generated_code():
    with pytest.raises(SandboxMissing, match="another uid than 0"):
        find(python=HERE, uid=0)


@as_root
def test_root_steps_down_and_leaves_files_of_that_user_only():
    box = find(python=HERE, uid=54321)
    assert "uid-54321" in box.protections
    with box.workdir({"given": b"x"}) as work:
        ran = box.run(["/bin/sh", "-c", "echo y > made; echo z >> given; id -u"], work, limits=SMALL)
        assert ran.output == b"1000\n"
        assert {name.name: name.stat().st_uid for name in work.path.iterdir()} == {"given": 54321, "made": 54321}
        assert work.read("given", 10) == b"xz\n"


@as_root
def test_an_interpreter_that_the_lower_user_may_not_read_is_named(tmp_path):
    environment = venv(HERE, tmp_path / "closed")
    (tmp_path / "closed").chmod(0o700)
    with pytest.raises(SandboxMissing, match="chmod -R go"):
        find(python=environment)


def probes_as_ordinary_user(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the probe suite as a user without any privilege, in a mount namespace where that user can reach interpreter and repository."""
    needed = [*examine(HERE).trees, REPO]
    closed = {tree: [p for p in tree.parents if not p.stat().st_mode & 0o001] for tree in needed}
    steps = []
    hidden = [(str(tree), str(tmp_path / str(i))) for i, tree in enumerate(needed) if closed[tree]]
    for tree, aside in hidden:
        steps += [f"mkdir {aside}", f"mount --bind {tree} {aside}"]
    for top in {str(parents[-1]) for parents in closed.values() if parents}:
        steps.append(f"mount -t tmpfs -o mode=755 none {top}")
    for tree, aside in hidden:
        steps += [f"mkdir -p {tree}", f"mount --bind {aside} {tree}"]
    test = shlex.join([str(HERE), "-B", "-m", "pytest", "-p", "no:cacheprovider", "tests/test_sandbox_probes.py", *options])
    steps.append(f"exec setpriv --reuid 65531 --regid 65531 --clear-groups env HOME=/nonexistent TMPDIR=/tmp {test}")
    return subprocess.run(["unshare", "--mount", "sh", "-euc", "\n".join(steps)], cwd=REPO, capture_output=True, text=True, check=False)


@as_root
def test_the_way_of_an_ordinary_user_holds_too(tmp_path):
    chosen = "daemon or written or privilege or without_read_permission or fork_bomb"
    ran = probes_as_ordinary_user(tmp_path, "-k", chosen)
    assert ran.returncode == 0 and "5 passed" in ran.stdout, ran.stdout + ran.stderr


@as_root
@pytest.mark.slow
def test_every_probe_holds_for_an_ordinary_user(tmp_path):
    ran = probes_as_ordinary_user(tmp_path)
    assert ran.returncode == 0 and "skipped" not in ran.stdout, ran.stdout + ran.stderr


def venv(base: Path, folder: Path) -> Path:
    subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True)
    return folder / "bin/python"


def inside(python: Path, code: str) -> str:
    """What `code` prints when `python` runs it in the sandbox."""
    box = find(python=python)
    with box.workdir({}) as work:
        ran = box.run([box.python(python), "-c", code], work, limits=SMALL)
    assert ran.exit == 0, ran.output.decode()
    return ran.output.decode().strip()


def test_packages_of_the_interpreter_import_inside():
    assert prints("import pytest, sys; print(sys.prefix)") == [sys.prefix]


@pytest.mark.parametrize("python", [BASE, Path("/usr/bin/python3")], ids=["base", "distribution"])
def test_interpreters_without_environment_work(python):
    if python.exists():
        assert inside(python, "import json, sys; print(sys.prefix == sys.base_prefix)") == "True"


def test_an_environment_made_from_an_environment_works_with_its_own_packages(tmp_path):
    second = venv(venv(HERE, tmp_path / "one"), tmp_path / "two")
    package = next((tmp_path / "two/lib").glob("python*")) / "site-packages/own.py"
    package.write_text("word = 'mine'")
    assert inside(second, "import own, sys; print(own.word, sys.prefix)") == f"mine {tmp_path / 'two'}"


def test_an_environment_reached_through_links_works_and_nothing_beside_it_shows(tmp_path):
    (tmp_path / "real").mkdir()
    environment = venv(BASE, tmp_path / "real/env")
    (tmp_path / "real/private").write_text("secret")
    (tmp_path / "alias").symlink_to("real")
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool/python").symlink_to(tmp_path / "alias/env/bin/python")
    assert inside(tmp_path / "alias/env/bin/python", f"import os; print(os.listdir({str(tmp_path / 'real')!r}))") == "['env']"
    assert "3." in inside(tmp_path / "tool/python", "import sys; print(sys.version)")
    assert environment.exists()


def test_a_shim_that_starts_the_interpreter_works(tmp_path):
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec {HERE} "$@"\n')
    shim.chmod(0o755)
    assert inside(shim, "import pytest; print(1)") == "1"


def test_packages_in_the_users_own_site_import_inside(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = tmp_path / ".local/lib" / version / "site-packages"
    site.mkdir(parents=True)
    (site / "own.py").write_text("word = 'mine'")
    (tmp_path / ".local/private").write_text("secret")
    assert inside(BASE, f"import own, os; print(own.word, os.listdir({str(tmp_path / '.local')!r}))") == "mine ['lib']"


def test_a_project_installed_in_editable_mode_stays_outside(tmp_path):
    python = venv(BASE, tmp_path / "env")
    (tmp_path / "project").mkdir()
    (tmp_path / "project/.env").write_text("KEY=secret")
    site = next((tmp_path / "env/lib").glob("python*")) / "site-packages"
    (site / "project.pth").write_text(str(tmp_path / "project"))
    assert inside(python, f"import os; print(os.path.exists({str(tmp_path / 'project')!r}))") == "False"


def test_an_interpreter_that_does_not_start_is_named(tmp_path):
    for bad in (tmp_path / "missing", Path("/bin/false"), Path("/bin/echo")):
        with pytest.raises(ConfigError, match=f"{bad} does not work as a Python interpreter"):
            find(python=bad)


def test_an_environment_that_is_somebodys_home_is_refused(tmp_path, monkeypatch):
    python = venv(BASE, tmp_path / "home/user")
    monkeypatch.setenv("HOME", str(tmp_path / "home/user"))
    with pytest.raises(ConfigError, match="private files"):
        find(python=python)


def test_following_links_notes_each_and_ends_in_a_circle(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to("a/../c")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    (tmp_path / "x").symlink_to("y")
    (tmp_path / "y").symlink_to("x")
    links: dict[Path, str] = {}
    assert follow(tmp_path / "b/file", links) == tmp_path.resolve() / "a/file"
    assert [where.name for where in links if where.is_relative_to(tmp_path.resolve())] == ["b", "c"]
    with pytest.raises(ConfigError, match="circle"):
        follow(tmp_path / "x", {})
