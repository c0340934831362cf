"""Values of a scenario file, read strictly. A field or parameter that carries a reader in its annotation can be written in the file."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from nightmill.errors import ConfigError

Reader = Callable[[object], object]
_WORDS = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
_DAY_S = 86_400
MOST_SLOTS = 1024
"""Each waits in a thread of its own."""


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _DAY_S:
        raise ValueError(f"give seconds between 0 and {_DAY_S}")
    return float(value)


def _rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("give tokens per second, above 0")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("give a whole number from 1")
    return value


def _slots(value: object) -> int:
    number = _count(value)
    if number > MOST_SLOTS:
        raise ValueError(f"give at most {MOST_SLOTS}")
    return number


def _characters(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("give a number of characters from 0")
    return value


def _status(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 200 <= value <= 599:
        raise ValueError("give an HTTP status from 200 to 599")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise ValueError("give text")
    return str(value)


def _flag(value: object) -> bool:
    found = value if isinstance(value, bool) else _WORDS.get(value.lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("give on or off")
    return found


def _folder(value: object) -> Path:
    return Path(_text(value)).expanduser()


Seconds = Annotated[float, _seconds]
Rate = Annotated[float, _rate]
Count = Annotated[int, _count]
SlotCount = Annotated[int, _slots]
Characters = Annotated[int, _characters]
Status = Annotated[int, _status]
Text = Annotated[str, _text]
Flag = Annotated[bool, _flag]
Folder = Annotated[Path, _folder]


def readers(target: Callable[..., object]) -> dict[str, tuple[Reader, ...]]:
    """What may be written for a dataclass or a function: name → its reader, and before it one for null where None is allowed."""
    found = {name: _of(hint) for name, hint in get_type_hints(target, include_extras=True).items()}
    return {name: hints for name, hints in found.items() if hints}


def read(target: Callable[..., object], given: Mapping[Any, object], where: str, *also: str) -> dict[str, Any]:
    """The arguments for `target` that a mapping of the file gives; `also` are keys that others read.

    Raises ConfigError, one line: an unknown key with its near miss, a value that does not fit, a missing key.
    """
    known = readers(target)
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key in also:
            continue
        if key not in known:
            raise ConfigError(f"{where}: unknown key `{key}`{near(key, [*also, *known])}")
        values[key] = one(known[key], value, f"{where}: {key}")
    for name, parameter in inspect.signature(target).parameters.items():
        if name in known and name not in values and parameter.default is parameter.empty:
            raise ConfigError(f"{where}: `{name}` is missing")
    return values


def one(hints: tuple[Reader, ...], value: object, where: str) -> object:
    """One value. Raises ConfigError."""
    if value is None and _null in hints:
        return None
    try:
        return hints[-1](value)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"{where}: {error} (got {value!r:.60})") from error


def near(word: object, known: list[str]) -> str:
    """The likeliest of the known names, else all of them."""
    close = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    return f": did you mean `{close[0]}`?" if close else f"; known are {', '.join(known)}"


def _null(value: object) -> None:
    """Stands for a None that is allowed."""


def _of(hint: Any) -> tuple[Reader, ...]:
    if get_origin(hint) is Annotated:
        return (get_args(hint)[1],)
    if get_origin(hint) not in (Union, UnionType):
        return ()
    parts = [_of(arg) for arg in get_args(hint) if arg is not type(None)]
    return (_null, *parts[0]) if parts and parts[0] else ()
