"""The call filter, run on a small model of the kernel's BPF machine, for both machines whatever this one is."""

from __future__ import annotations

import errno
import hashlib
import struct

import pytest

from nightmill.errors import SandboxMissing
from nightmill.gate.seccomp import MACHINES, program

ALLOW, KILL = "allow", "kill"


def decide(code: bytes, arch: int, number: int, *args: int) -> str:
    """What the filter answers to one call: allow, kill, or the name of an errno."""
    data = struct.pack("=iIQ6Q", number, arch, 0, *(list(args) + [0] * 6)[:6])
    instructions = list(struct.iter_unpack("=HBBI", code))
    at, accumulator = 0, 0
    while True:
        kind, true, false, k = instructions[at]
        at += 1
        if kind == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, k)
        elif kind == 0x06:
            return {0x7FFF0000: ALLOW, 0x80000000: KILL}.get(k) or errno.errorcode[k & 0xFFFF]
        else:
            holds = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[kind]
            at += true if holds else false


@pytest.fixture(params=sorted(MACHINES))
def call(request):
    machine = MACHINES[request.param]
    code = program(request.param)
    return lambda name, *args: decide(code, machine.audit_arch, machine.numbers[name], *args)


GOLDEN = {
    "aarch64": "50b4ebef46a97857dc184163eabf063149558c75466b190ee82980209b6ed6e4",
    "x86_64": "0a2d12b73151adcaa63b340dfe5cb6289488d429103955bb4a281a16a3f9e88e",
}


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_the_bytes_of_the_filter_change_only_on_purpose(machine):
    assert hashlib.sha256(program(machine)).hexdigest() == GOLDEN[machine]


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_a_filter_fits_the_kernel_and_ends_on_every_path(machine):
    code = list(struct.iter_unpack("=HBBI", program(machine)))
    assert len(code) <= 4096
    for at, (kind, true, false, _) in enumerate(code):
        if kind in (0x15, 0x35, 0x45):
            assert at + 1 + max(true, false) < len(code)
    assert code[-1][0] == 0x06


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_numbers_are_plausible(machine):
    numbers = MACHINES[machine].numbers
    assert len(set(numbers.values())) == len(numbers)
    assert all(0 <= number < 500 for number in numbers.values())


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_calls_of_another_architecture_kill(machine):
    i386, arm = 0x40000003, 0x40000028
    assert decide(program(machine), i386, 1) == KILL and decide(program(machine), arm, 1) == KILL


def test_x32_calls_kill():
    assert decide(program("x86_64"), 0xC000003E, 0x40000000 + 1) == KILL


def test_ordinary_calls_pass(call):
    assert call("clone", 0x01200011) == ALLOW  # fork
    assert call("clone", 0x003D0F00) == ALLOW  # a thread
    assert call("ioctl", 1, 0x5401) == ALLOW  # TCGETS
    assert call("fchmodat", 0, 0, 0o1777) == ALLOW
    assert call("openat", 0, 0, 0o101, 0o644) == ALLOW


def test_dangerous_calls_are_refused(call):
    for name in ("ptrace", "bpf", "mount", "unshare", "setns", "keyctl", "userfaultfd", "process_vm_readv", "kexec_load", "move_mount"):
        assert call(name) == "EPERM"


def test_calls_whose_arguments_cannot_be_seen_do_not_exist(call):
    for name in ("clone3", "openat2", "io_uring_setup", "io_uring_enter", "io_uring_register"):
        assert call(name) == "ENOSYS"


def test_arguments_decide(call):
    assert call("clone", 0x10000000 | 17) == "EPERM"
    assert call("ioctl", 0, 0x5412) == call("ioctl", 0, 0x541C) == "EPERM"
    assert call("ioctl", 0, 0x5412 | 1 << 40) == "EPERM"  # the kernel looks at the low half only
    assert [call("socket", family) for family in (1, 2, 10, 16)] == [ALLOW] * 4
    assert [call("socket", family) for family in (0, 17, 38, 40, 44)] == ["EAFNOSUPPORT"] * 5
    for mode in (0o4755, 0o2755, 0o6000):
        assert (
            call("fchmod", 0, mode)
            == call("fchmodat", 0, 0, mode)
            == call("fchmodat2", 0, 0, mode)
            == call("mknodat", 0, 0, mode)
            == "EPERM"
        )
        assert call("openat", 0, 0, 0o101, mode) == call("openat", 0, 0, 0o20000000 | 2, mode) == "EPERM"
        assert call("openat", 0, 0, 0, mode) == ALLOW  # without O_CREAT the mode is not an argument


def test_an_unknown_machine_is_named():
    with pytest.raises(SandboxMissing, match="riscv64"):
        program("riscv64")
