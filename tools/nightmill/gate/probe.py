"""Why a machine cannot sandbox, from what bubblewrap printed, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from nightmill.errors import SandboxMissing

Kind = Literal["missing", "outdated", "apparmor", "masked-proc", "netlink", "userns-limit", "userns-off", "root", "interpreter", "other"]


@dataclass(frozen=True)
class Cause:
    kind: Kind
    what: str
    fix: str


MISSING = Cause("missing", "bubblewrap is not installed", "apt install bubblewrap (dnf, pacman and zypper know it by the same name)")
PRLIMIT_MISSING = Cause("missing", "prlimit is not installed", "apt install util-linux")
INTERPRETER = Cause(
    "interpreter",
    "the Python interpreter does not start in the sandbox",
    "make its files readable (chmod -R go+rX DIRECTORY), or name another interpreter",
)

_DOCKER = "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"

# The first pattern found decides; texts of bubblewrap 0.4 to 0.11 and of our guard.
_KNOWN: tuple[tuple[str, Cause], ...] = (
    (
        r"Unknown option --(ro-)?bind-fd|Unknown option --(size|perms|json-status-fd)",
        Cause("outdated", "this bubblewrap is too old", "install the security update of your distribution, or bubblewrap 0.10 or newer"),
    ),
    (
        r"guard: (open_tree|unshare|mount|move_mount|Operation not permitted|Invalid argument)",
        Cause("root", "root lacks the rights to step down to an unprivileged user here", "run as an ordinary user"),
    ),
    (
        r"setting up [ug]id map: Permission denied|Failed RTM_NEWADDR: (Operation not permitted|Permission denied)|"
        r"(Creating new namespace failed|clone).*: Permission denied",
        Cause(
            "apparmor",
            "AppArmor restricts user namespaces",
            "load its profile bwrap-userns-restrict (apparmor-profiles), or: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ),
    (
        r"Can't mount proc|Can't mkdir /newroot/proc|Can't remount .*proc",
        Cause(
            "masked-proc", "a container or service hides parts of /proc", f"{_DOCKER} …, or ProtectKernelTunables=no in the systemd unit"
        ),
    ),
    (
        r"NETLINK_ROUTE socket|loopback: .*(Address family not supported|Operation not permitted|Protocol not supported)",
        Cause(
            "netlink",
            "netlink sockets are forbidden",
            "add AF_NETLINK to RestrictAddressFamilies= of the systemd unit, or allow it in the seccomp profile",
        ),
    ),
    (
        r"ENOSPC|max_.*namespaces exceeded|No space left on device",
        Cause("userns-limit", "the limit of user namespaces is reached", "sudo sysctl -w user.max_user_namespaces=15000"),
    ),
    (
        r"No permissions to create.* namespace|(Creating new namespace failed|clone).*: (Operation not permitted|Invalid argument)",
        Cause(
            "userns-off",
            "user namespaces are switched off",
            f"sudo sysctl -w kernel.unprivileged_userns_clone=1, or in a container {_DOCKER} …",
        ),
    ),
)


def classify(printed: str) -> Cause:
    """The cause behind what a failed start printed."""
    for pattern, cause in _KNOWN:
        if re.search(pattern, printed):
            return cause
    lines = printed.strip().splitlines()
    return Cause(
        "other", f"bubblewrap fails ({lines[-1] if lines else 'it prints nothing'})", "make `bwrap --unshare-all --ro-bind / / true` work"
    )


def refusal(cause: Cause) -> SandboxMissing:
    """The error for the person, in one line."""
    return SandboxMissing(f"generated code cannot be isolated here: {cause.what}. To fix it: {cause.fix}")
