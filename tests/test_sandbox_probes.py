"""Hostile programs in the real sandbox. Each tries one way out or one way to harm the host, and reports what the kernel answered."""

from __future__ import annotations

import platform
import socket
import sys
import time
import uuid
from pathlib import Path

from nightmill.gate.sandbox import Limits
from sandbox_help import SMALL, gone_within, prints, program, sandbox

TRY = """
import errno, os, sys
def attempt(name, call):
    try:
        result = call()
    except OSError as error:
        result = errno.errorcode.get(error.errno, error)
    print(name, result)
"""

CALL = (
    TRY
    + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(name, number, *args):
    result = libc.syscall(number, *args)
    print(name, errno.errorcode[ctypes.get_errno()] if result < 0 else result)
"""
)

NUMBERS = {
    "x86_64": {"keyctl": 250, "io_uring_setup": 425, "userfaultfd": 323, "ptrace": 101, "unshare": 272, "clone": 56},
    "aarch64": {"keyctl": 219, "io_uring_setup": 425, "userfaultfd": 282, "ptrace": 117, "unshare": 97, "clone": 220},
}[platform.machine()]


def test_secrets_of_the_host_are_absent(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    lines = prints(
        TRY
        + f"""
for path in ("/etc/shadow", "/etc/hostname", "/var", "/run", "/sys", {str(Path.home() / ".ssh")!r}, {str(Path.home() / ".bashrc")!r}):
    attempt("open", lambda: os.open(path, os.O_RDONLY))
print(*sorted(os.environ))
"""
    )
    assert lines[:-1] == ["open ENOENT"] * 7
    assert set(lines[-1].split()) == {"PATH", "HOME", "USER", "TMPDIR", "LANG", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL", "PWD"}


def test_no_socket_reaches_the_host():
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as path:
        name = f"nightmill-{uuid.uuid4()}"
        tcp.bind(("127.0.0.1", 0))
        abstract.bind(f"\0{name}")
        path.bind(f"/tmp/{name}")
        for one in (tcp, abstract, path):
            one.listen()
        try:
            lines = prints(
                TRY
                + f"""
import socket
unix = socket.socket(socket.AF_UNIX)
attempt("tcp", lambda: socket.create_connection(("127.0.0.1", {tcp.getsockname()[1]}), 2))
attempt("abstract", lambda: unix.connect("\\0{name}"))
attempt("path", lambda: unix.connect("/tmp/{name}"))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("route", lambda: socket.create_connection(("192.0.2.1", 80), 2))
try:
    socket.getaddrinfo("host.invalid", 80)
except socket.gaierror:
    print("dns refused")
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 2):
    print("own loopback works")
"""
            )
        finally:
            Path(f"/tmp/{name}").unlink()
    assert lines == [
        "tcp ECONNREFUSED", "abstract ECONNREFUSED", "path ENOENT", "vsock EAFNOSUPPORT", "packet EAFNOSUPPORT", "raw EPERM",
        "route ENETUNREACH", "dns refused", "own loopback works",
    ]  # fmt: skip


def test_a_fork_bomb_meets_the_process_limit():
    lines = prints(
        """
        import os, time
        made = 0
        try:
            for _ in range(200):
                if os.fork() == 0:
                    time.sleep(9)
                    os._exit(0)
                made += 1
        except BlockingIOError:
            print("EAGAIN", made)
        """
    )
    word, made = lines[0].split()
    assert word == "EAGAIN" and 50 <= int(made) < SMALL.processes


def test_memory_file_systems_end_at_their_size():
    lines = prints(
        TRY
        + """
def fill(folder):
    for i in range(12):
        with open(f"{folder}/{i}", "wb") as file:
            file.write(b"x" * (8 << 20))
for folder in ("/tmp", "/dev/shm", os.environ["HOME"]):
    attempt(folder, lambda: fill(folder))
"""
    )
    assert lines == ["/tmp ENOSPC", "/dev/shm ENOSPC", "/home/sandbox ENOSPC"]


FILL = """
import os, time
os.chdir({folder!r}); os.chmod(".", {mode})
{more}
for i in range(40):
    with open(f"{{i}}", "wb") as file:
        file.write(os.urandom(8 << 20))
    time.sleep(0.05)
time.sleep(9)
"""


def test_a_full_work_directory_ends_the_run():
    ran = program(FILL.format(folder="/build", mode=0o700, more=""))
    assert ran.killed == "disk" and ran.seconds < 6


def test_a_directory_without_read_permission_hides_nothing_from_the_disk_watchdog():
    more = "os.makedirs('a/b'); os.chdir('a/b'); os.chmod('..', 0o300); os.chmod('../..', 0o300)"
    ran = program(FILL.format(folder="/build", mode=0o300, more=more))
    assert ran.killed == "disk" and ran.seconds < 6


def test_a_tree_too_deep_to_measure_counts_as_full():
    ran = program(
        """
        import os, time
        for _ in range(3000):
            os.mkdir("d"); os.chdir("d")
        time.sleep(9)
        """
    )
    assert ran.killed == "disk"


def test_ten_gigabytes_of_output_end_at_once_and_keep_both_ends():
    ran = program("import sys\nprint('begin')\nline = 'x' * 1023 + '\\n'\nfor _ in range(10 << 20): sys.stdout.write(line)")
    assert ran.killed == "output" and ran.truncated and ran.seconds < 3
    assert ran.output.startswith(b"begin\n") and b"bytes left out" in ran.output and ran.output.rstrip().endswith(b"xxx")
    assert len(ran.output) < SMALL.output_kb * 1024 + 100


def test_output_beyond_the_limit_of_a_program_that_ends_is_cut_not_punished():
    ran = program("import sys\nsys.stdout.write('a' * 300_000 + 'z' * 300_000)")
    assert (ran.exit, ran.killed, ran.truncated) == (0, None, True)
    head, _, tail = ran.output.partition(b"\n[... ")
    assert set(head) == {ord("a")} and set(tail.partition(b"...]\n")[2]) == {ord("z")}


def test_ignoring_sigterm_does_not_help_against_the_wall_limit():
    ran = program(
        """
        import signal, time
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        time.sleep(30)
        """,
        Limits(wall_s=1),
    )
    assert (ran.exit, ran.signal, ran.killed) == (None, 9, "wall") and 1 <= ran.seconds < 1.6


def test_a_daemon_does_not_outlive_the_command():
    token = f"nightmill-{uuid.uuid4()}"
    ran = program(f"import subprocess\nsubprocess.Popen(['setsid', 'nohup', 'sh', '-c', 'sleep 60; : {token}'])\nprint('left')")
    assert ran.exit == 0 and b"left" in ran.output and ran.seconds < 3
    assert gone_within(1, token) == []


def test_nothing_but_the_work_directory_and_memory_can_be_written():
    lines = prints(
        TRY
        + f"""
for path in ("/usr/bin/x", "/etc/x", "/x", "/build/../x", {str(Path(sys.executable).parent / "x")!r}, "/proc/sys/kernel/core_pattern"):
    attempt("open", lambda: os.open(path, os.O_WRONLY | os.O_CREAT))
attempt("build", lambda: os.close(os.open("/build/x", os.O_WRONLY | os.O_CREAT)))
"""
    )
    assert lines[:5] == ["open EROFS"] * 5
    assert lines[5] in {"open EROFS", "open EACCES"}  # EACCES: root stepped down to a user who may not even ask
    assert lines[6] == "build None"


def test_only_its_own_processes_are_visible_and_none_can_be_traced():
    lines = prints(
        CALL
        + f"""
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()) == [1, os.getpid()])
leaked = [link for pid in (1, os.getpid()) for fd in os.listdir(f"/proc/{{pid}}/fd") if os.path.isdir(link := f"/proc/{{pid}}/fd/{{fd}}")]
print(leaked)
call("attach", {NUMBERS["ptrace"]}, 16, 1, 0, 0)
attempt("mem", lambda: os.write(os.open("/proc/1/mem", os.O_WRONLY), b"x"))
"""
    )
    assert lines[:3] == ["True", "[]", "attach EPERM"]
    assert lines[3].split()[1] in {"EROFS", "EACCES", "EPERM"}


def test_other_work_directories_are_out_of_reach():
    with sandbox().workdir({"secret": b"x"}) as other:
        lines = prints(TRY + f"attempt('other', lambda: os.listdir({str(other.path)!r}))\nprint(sorted(os.listdir('..')))")
    assert lines[0] == "other ENOENT"
    assert {"build", "usr", "tmp"} <= set(eval(lines[1])) and "boot" not in lines[1]


def test_standard_input_is_empty_and_there_is_no_terminal():
    lines = prints(TRY + "print(repr(sys.stdin.read()))\nattempt('tty', lambda: os.open('/dev/tty', os.O_RDWR))")
    assert lines[0] == "''" and lines[1] in {"tty ENXIO", "tty EIO"}


def test_a_single_file_ends_at_its_limit():
    lines = prints(
        TRY
        + """
file = os.open("big", os.O_RDWR | os.O_CREAT)
attempt("sparse", lambda: os.ftruncate(file, 1 << 40))
attempt("fallocate", lambda: os.posix_fallocate(file, 0, 2 << 30))
print(os.fstat(file).st_size)
"""
    )
    assert lines == ["sparse EFBIG", "fallocate EFBIG", "0"]


def test_a_program_that_does_not_care_about_the_file_limit_gets_the_signal():
    box = sandbox()
    with box.workdir({}) as work:
        ran = box.run(["/usr/bin/dd", "if=/dev/zero", "of=big", "bs=1M", "count=64"], work, limits=SMALL)
    assert ran.signal == 25 and ran.exit is None  # SIGXFSZ


def test_no_privilege_can_be_gained_or_left_behind():
    lines = prints(
        TRY
        + """
open("tool", "w").close()
attempt("chmod", lambda: os.chmod("tool", 0o4755))
attempt("fchmod", lambda: os.fchmod(os.open("tool", os.O_RDONLY), 0o2755))
attempt("create", lambda: os.open("born", os.O_WRONLY | os.O_CREAT, 0o4755))
attempt("plain chmod", lambda: os.chmod("tool", 0o755))
attempt("setuid", lambda: os.setuid(0))
attempt("mount", lambda: __import__("ctypes").CDLL(None).mount(b"none", b"/build", b"tmpfs", 0, 0))
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith(("NoNewPrivs", "CapEff", "CapBnd", "Seccomp:"))])
"""
    )
    expected = ["chmod EPERM", "fchmod EPERM", "create EPERM", "plain chmod None", "setuid EINVAL", "mount -1"]
    assert lines[:-1] == expected
    assert sorted(lines[-1].split()) == ["0000000000000000", "0000000000000000", "1", "2"]


def test_a_hostile_conftest_runs_inside_only():
    box = sandbox()
    conftest = b"import os\nopen('/build/seen', 'w').write(','.join(os.listdir('/home')))\nopen('/usr/owned', 'w')\n"
    with box.workdir({"conftest.py": conftest, "test_x.py": b"def test_x(): pass\n"}) as work:
        ran = box.run([box.python(Path(sys.executable)), "-m", "pytest", "-q", "-p", "no:cacheprovider"], work, limits=SMALL)
        assert ran.exit == 4 and b"Read-only file system" in ran.output
        assert work.read("seen", 100) == b"sandbox"


def test_kernel_interfaces_with_a_history_are_closed():
    new_user, new_net = 0x10000000, 0x40000000
    lines = prints(
        CALL
        + f"""
call("userns", {NUMBERS["unshare"]}, {new_user})
call("netns", {NUMBERS["unshare"]}, {new_net})
call("clone", {NUMBERS["clone"]}, {new_user} | 17, 0, 0, 0, 0)
call("keyring", {NUMBERS["keyctl"]}, 0, -3, 1)
call("io_uring", {NUMBERS["io_uring_setup"]}, 8, 0)
call("userfaultfd", {NUMBERS["userfaultfd"]}, 1)
call("clone3", 435, 0, 0)
"""
    )
    assert lines == ["userns EPERM", "netns EPERM", "clone EPERM", "keyring EPERM", "io_uring ENOSYS", "userfaultfd EPERM", "clone3 ENOSYS"]


def test_one_process_is_refused_memory_beyond_the_limit():
    assert prints("try:\n    x = bytearray(400 << 20)\nexcept MemoryError:\n    print('MemoryError')") == ["MemoryError"]


def test_a_tree_of_processes_is_killed_beyond_the_memory_limit():
    ran = program(
        """
        import os, time
        for _ in range(4):
            if os.fork() == 0:
                x = bytearray(os.urandom(1 << 20) * 100)
                time.sleep(9)
                os._exit(0)
        time.sleep(9)
        """
    )
    assert ran.killed == "memory" and ran.seconds < 5


def test_memory_shared_after_a_fork_counts_once():
    ran = program(
        """
        import os, time
        x = bytearray(b"x" * (100 << 20))
        for _ in range(4):
            if os.fork() == 0:
                time.sleep(0.6)
                os._exit(0)
        time.sleep(0.7)
        """
    )
    assert (ran.exit, ran.killed) == (0, None)


def test_threads_and_subprocesses_of_ordinary_programs_work():
    lines = prints(
        """
        import concurrent.futures, multiprocessing, subprocess, sys
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            print(sum(pool.map(len, ["a"] * 10)))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(sum(pool.map(len, ["a"] * 10)))
        print(subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True).stdout.strip())
        """
    )
    assert lines == ["10", "10", "1"]


def test_stopping_ends_a_run_within_a_moment():
    box = sandbox()
    begin = time.monotonic()
    with box.workdir({}) as work:
        ran = box.run(["/usr/bin/sleep", "30"], work, stopping=lambda: time.monotonic() - begin > 0.5)
    assert ran.killed == "stopped" and time.monotonic() - begin < 1.0


def test_a_work_directory_swapped_for_a_link_is_not_followed(tmp_path):
    box = sandbox()
    with box.workdir({}) as work:
        aside = work.path.with_name(work.path.name + "-aside")
        work.path.rename(aside)
        work.path.symlink_to(tmp_path)
        try:
            ran = box.run(["/bin/sh", "-c", "echo x > written"], work, limits=SMALL)
        finally:
            work.path.unlink()
            aside.rename(work.path)
        assert ran.exit == 0 and work.read("written", 10) == b"x\n"
    assert list(tmp_path.iterdir()) == []
