"""How a doit command of ours ends: what a person can act on is one line and its exit code, a bug is a traceback and exit 2."""

from __future__ import annotations

import sys
import traceback
from typing import Any

from doit.cmdparse import CmdParseError
from doit.exceptions import InvalidCommand, InvalidDodoFile, InvalidTask

from nightmill.errors import EXIT_BUG, NightmillError, Stopped, UsageError, machine_trouble
from nightmill.redact import of_process
from nightmill.streams import drop_output


class OneLine:
    """Mixed in before a doit command."""

    name: str

    def parse_execute(self, arguments: Any) -> int:
        try:
            with machine_trouble():
                return super().parse_execute(arguments) or 0  # type: ignore[misc]
        except CmdParseError as error:
            cause = " ".join(str(error).partition("(parsing options")[0].split())
            return _told(UsageError(f"{cause}: see doit help {self.name}"))
        except NightmillError as error:
            return _told(error)
        except InvalidDodoFile as error:
            if isinstance(error.__cause__, NightmillError):
                return _told(error.__cause__)
            raise
        except (InvalidCommand, InvalidTask):
            raise
        except BrokenPipeError:
            drop_output()
            return 0
        except KeyboardInterrupt:
            return Stopped.exit_code
        except Exception:
            traceback.print_exc()
            return EXIT_BUG


def _told(error: NightmillError) -> int:
    print(f"nightmill: {of_process()(str(error))}", file=sys.stderr)  # noqa: T201
    return error.exit_code
