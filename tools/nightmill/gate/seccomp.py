"""The system call filter of the sandbox: classic BPF for the kernel's seccomp, assembled here so that no library is needed.

Namespaces hide the host; this filter closes what they leave open: sockets of families that no network namespace contains
(VSOCK), tracing, nested namespaces and mounts, kernel interfaces with a history of exploits, and setuid bits on files.
Everything not named here is allowed. Calls whose arguments lie in memory a filter cannot read answer ENOSYS, so that libc falls
back to the older call whose arguments are in registers.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass

from nightmill.errors import SandboxMissing

_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, …, BPF_RET|K (linux/bpf_common.h)
_NR, _ARCH, _ARGS = 0, 4, 16  # offsets in struct seccomp_data (linux/seccomp.h); low word first on both machines
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32 = 0x40000000
_CLONE_NEWUSER = 0x10000000
_CREATES = 0o100 | 0o20000000  # O_CREAT, __O_TMPFILE: only then is open's mode argument meant
_SET_ID = 0o6000
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FAMILIES = (1, 2, 10, 16)  # UNIX, INET, INET6, NETLINK


@dataclass(frozen=True)
class _Machine:
    audit_arch: int
    """AUDIT_ARCH_* of linux/audit.h."""
    numbers: dict[str, int]


# Since Linux 5.0 new calls have one number everywhere.
_COMMON = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442,
    "open_tree_attr": 467, "pidfd_getfd": 438, "quotactl_fd": 443, "process_madvise": 440,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435, "openat2": 437, "fchmodat2": 452,
}  # fmt: skip

# arch/x86/entry/syscalls/syscall_64.tbl
_X86_64 = _Machine(0xC000003E, _COMMON | {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "add_key": 248, "request_key": 249, "keyctl": 250,
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "fanotify_init": 300, "mount": 165, "umount2": 166, "pivot_root": 155,
    "chroot": 161, "setns": 308, "unshare": 272, "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313,
    "delete_module": 176, "open_by_handle_at": 304, "acct": 163, "quotactl": 179, "swapon": 167, "swapoff": 168, "reboot": 169,
    "syslog": 103, "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "lookup_dcookie": 212,
    "iopl": 172, "ioperm": 173, "modify_ldt": 154, "vhangup": 153,
    "clone": 56, "ioctl": 16, "socket": 41, "chmod": 90, "fchmod": 91, "fchmodat": 268, "open": 2, "openat": 257, "creat": 85,
    "mknod": 133, "mknodat": 259,
})  # fmt: skip

# include/uapi/asm-generic/unistd.h
_AARCH64 = _Machine(0xC00000B7, _COMMON | {
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "add_key": 217, "request_key": 218, "keyctl": 219,
    "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "fanotify_init": 262, "mount": 40, "umount2": 39, "pivot_root": 41,
    "chroot": 51, "setns": 268, "unshare": 97, "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273,
    "delete_module": 106, "open_by_handle_at": 265, "acct": 89, "quotactl": 60, "swapon": 224, "swapoff": 225, "reboot": 142,
    "syslog": 116, "settimeofday": 170, "clock_settime": 112, "clock_adjtime": 266, "adjtimex": 171, "lookup_dcookie": 18,
    "vhangup": 58,
    "clone": 220, "ioctl": 29, "socket": 198, "fchmod": 52, "fchmodat": 53, "openat": 56, "mknodat": 33,
})  # fmt: skip

MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}
"""Keyed by `platform.machine()`."""

_ABSENT = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "openat2")
_MODE_ARGUMENT = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
_FLAGS_ARGUMENT = {"open": 1, "openat": 2}
_ARGUMENT_DEPENDENT = {"clone", "ioctl", "socket"} | set(_MODE_ARGUMENT) | set(_FLAGS_ARGUMENT)


def _op(code: int, k: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, k)


def _error(number: int) -> bytes:
    return _op(_RET, _ERRNO | number)


def _argument(index: int) -> bytes:
    return _op(_LD, _ARGS + 8 * index)


def _refuse_bits(index: int, bits: int) -> bytes:
    return _argument(index) + _op(_JSET, bits, 0, 1) + _error(errno.EPERM)


def _on(number: int, body: bytes) -> bytes:
    """`body` when the call is `number`; ends by allowing it, so the accumulator need not be restored."""
    body += _op(_RET, _ALLOW)
    return _op(_JEQ, number, 0, len(body) // 8) + body


def _rules(numbers: dict[str, int]) -> bytes:
    code = b""
    for name, number in sorted(numbers.items()):
        if name not in _ARGUMENT_DEPENDENT:
            code += _op(_JEQ, number, 0, 1) + _error(errno.ENOSYS if name in _ABSENT else errno.EPERM)
    code += _on(numbers["clone"], _refuse_bits(0, _CLONE_NEWUSER))
    forbidden = b"".join(_op(_JEQ, request, 0, 1) + _error(errno.EPERM) for request in _TERMINAL_INPUT)
    code += _on(numbers["ioctl"], _argument(1) + forbidden)
    allowed = b"".join(_op(_JEQ, family, 0, 1) + _op(_RET, _ALLOW) for family in _FAMILIES)
    code += _on(numbers["socket"], _argument(0) + allowed + _error(errno.EAFNOSUPPORT))
    for name, index in sorted(_MODE_ARGUMENT.items()):
        if name in numbers:
            code += _on(numbers[name], _refuse_bits(index, _SET_ID))
    for name, index in sorted(_FLAGS_ARGUMENT.items()):
        if name in numbers:
            creating = _refuse_bits(index + 1, _SET_ID)
            code += _on(numbers[name], _argument(index) + _op(_JSET, _CREATES, 0, len(creating) // 8) + creating)
    return code


def program(machine: str | None = None) -> bytes:
    """The filter as an array of `struct sock_filter`, for `bwrap --seccomp`.

    `machine` is a name as `platform.machine()` gives it, by default this one's. A call made for another architecture (32-bit, x32)
    kills the process. Raises SandboxMissing for a machine whose call numbers we do not know.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise SandboxMissing(f"no system call filter for {machine} machines: run nightmill on one of {', '.join(MACHINES)}")
    known = MACHINES[machine]
    code = _op(_LD, _ARCH) + _op(_JEQ, known.audit_arch, 1, 0) + _op(_RET, _KILL) + _op(_LD, _NR)
    if machine == "x86_64":
        code += _op(_JGE, _X32, 0, 1) + _op(_RET, _KILL)
    return code + _rules(known.numbers) + _op(_RET, _ALLOW)
