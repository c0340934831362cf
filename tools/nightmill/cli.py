"""The `nightmill` command. Everything that runs stages is doit; what is added here makes runs and settles hand edits."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nightmill import __version__
from nightmill.errors import EXIT_BUG, NightmillError, Stopped, UsageError, machine_trouble
from nightmill.fake.command import add_fake_server
from nightmill.paths import working_directory
from nightmill.scaffold import DEFAULT_URL, Answering
from nightmill.streams import drop_output, steady

DOIT_VERBS = ("run", "list", "info", "forget", "clean", "ignore", "help", "reset-dep", "tabcompletion")

EPILOG = """\
doit's verbs work too, from anywhere inside a run directory: nightmill run|list|info|forget|... [ARGS]; `doit` itself in its top.

exit codes:
    0  done                            76  out of budget or attempts, the best result is kept
    1  a stage failed                  77  no provider could answer
    2  a bug of nightmill (traceback)  78  configuration, machine or sandbox: nothing was asked
    3  wrong use                      130  stopped by a signal; doit goes on from there
   75  waiting: for a person (a held stage), another process, or a server that is loading

INT, TERM and HUP stop a run at its next safe point with everything finished kept; a second one stops it at once.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code. A bug keeps its traceback."""
    steady()
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and arguments[0] in DOIT_VERBS:
            from nightmill.graph.verbs import doit

            wants_help = arguments[0] != "help" and {"-h", "--help"} & set(arguments)
            return doit(["help", arguments[0]] if wants_help else arguments)
        options = parser().parse_args(arguments)
        with machine_trouble():
            code: int = options.action(options)
        return code
    except NightmillError as error:
        print(f"nightmill: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except BrokenPipeError:
        drop_output()
        return 0
    except KeyboardInterrupt:
        return Stopped.exit_code
    except Exception:
        traceback.print_exc()
        return EXIT_BUG


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="nightmill",
        description="Make for code agents: leave them alone overnight on your own hardware.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"nightmill {__version__}")
    verbs = top.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    new = verbs.add_parser("new", help="start a run: a directory with mission.md to fill in, run.yaml, doit.cfg")
    new.add_argument("name", help="runs/NAME is made; a NAME with a slash is a path")
    new.add_argument("--source", required=True, type=Path, help="directory of the old program; it is only read")
    _answering(new)
    new.set_defaults(action=_new)

    demo = verbs.add_parser("demo", help="run the bundled example in a fresh directory")
    demo.add_argument("--scripted", action="store_true", help="with replies from files instead of a model (the default for now)")
    _answering(demo)
    demo.set_defaults(action=_demo)

    _settling(verbs)
    _looking(verbs)
    _trials(verbs)
    add_fake_server(verbs)
    return top


def _settling(verbs: Any) -> None:
    """What is stale, and what a person says about a hand edit."""
    why = verbs.add_parser(
        "why",
        help="what is not up to date, and which facts differ: old → new",
        description="For each stage that is not as it was made: its state and why. stale: it will be made again; kept: you edited"
        " its file; held: you edited its file and what it is made from changed since, so it waits for keep, redo or merge."
        " The closing reports follow.",
    )
    why.add_argument("stages", nargs="*", metavar="STAGE")
    why.set_defaults(action=_why)

    for verb, text, more in (
        (
            "keep",
            "a held stage: my text is right",
            "Records that your text fits its inputs as they are now; what depends on it is made from it.",
        ),
        (
            "redo",
            "set a stage's text aside and ask afresh",
            "What lies there is kept under .nightmill/objects; the next doit asks the model anew.",
        ),
        (
            "merge",
            "a held stage: remake it and merge the result into my text",
            "Asks the model now, and joins its text with yours over the last one that nightmill made. Where both changed the same lines,"
            " your text stays and NAME.proposed holds both.",
        ),
    ):
        sub = verbs.add_parser(verb, help=text, description=more)
        sub.add_argument("stage", metavar="STAGE", help="a stage's name, or its file")
        sub.set_defaults(action=_settle, verb=verb)


def _looking(verbs: Any) -> None:
    """What only reads a run."""
    explain = verbs.add_parser(
        "explain",
        help="what went wrong: its class, the evidence, who was charged, what comes next",
        description="EVENT is the number of a line of events.jsonl, the key or label of a call, or a stage. Without it: the last thing"
        " that went wrong.",
    )
    explain.add_argument("event", nargs="?", metavar="EVENT")
    explain.add_argument("--all", action="store_true", help="every problem of this run with its number, a line each")
    explain.set_defaults(action=_explain)

    providers = verbs.add_parser(
        "providers",
        help="who may answer: speed, errors, window, and each term of the score",
        description="Every model of run.yaml. May be left open beside a run: it takes no lock and writes nothing.",
    )
    providers.add_argument("--watch", action="store_true", help="again and again, until interrupted")
    providers.add_argument("--every", metavar="SECONDS", type=float, default=2.0, help="with --watch (default: 2)")
    providers.set_defaults(action=_providers)

    status = "every stage, the last run, what it cost, what is open"
    verbs.add_parser("status", help=status, description=f"Prints {status}.").set_defaults(action=_status)


def _trials(verbs: Any) -> None:
    one = verbs.add_parser(
        "try",
        help="the build loop alone on one small task with given tests",
        description="DIR holds instructions.md (or .docs/instructions.md), the files to write, and tests: in tests/, or in files named as"
        " tests. A line per attempt goes to stderr, the result to stdout as one line of JSON. Solved is what the gate calls green.",
    )
    one.add_argument("--task", metavar="DIR", type=Path, required=True)
    _answering(one)
    one.add_argument("--strategy", metavar="NAME", help="auto, repair (mend the best so far) or samples (fresh candidates)")
    one.set_defaults(action=_try)
    many = verbs.add_parser(
        "bench",
        help="many tasks, resumably: solved within k, tokens for each, two strategies or models compared",
        description="Tries each DIR, or each directory in it, that is a task. --model and --strategy may be given several times.",
    )
    many.add_argument("folders", metavar="DIR", type=Path, nargs="+")
    many.add_argument("--provider", metavar="URL", help="a server with /v1/chat/completions, e.g. http://127.0.0.1:8080/v1")
    many.add_argument("--model", metavar="ID", action="append", help="model name to ask it for")
    many.add_argument("--context", metavar="TOKENS", type=int, help="context window of one slot, where the server does not tell it")
    many.add_argument("--strategy", metavar="NAME", action="append", help="auto, repair or samples")
    many.add_argument("--out", metavar="FILE", type=Path, help="JSONL, a line per result; what stands there is not tried again")
    many.add_argument("--limit", metavar="N", type=int, help="the first N tasks only")
    many.set_defaults(action=_bench)
    for sub in (one, many):
        sub.add_argument("--run-config", metavar="FILE", type=Path, help="a run.yaml that names who answers, budgets and gates")
        sub.add_argument("--tries", metavar="K", type=int, help="attempts at most (default: 4, or as the run.yaml says)")
        sub.add_argument("--keep", metavar="DIR", type=Path, help="the run directory to make and keep; a try that ended there goes on")


def _answering(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--provider", metavar="URL", help="a server with /v1/chat/completions, e.g. http://127.0.0.1:8080/v1")
    sub.add_argument("--model", metavar="ID", help="model name to ask it for")
    sub.add_argument("--context", metavar="TOKENS", type=int, help="context window of one slot, where the server does not tell it")


def _chosen(options: argparse.Namespace) -> Answering:
    """Who shall answer in a new run, as the command line says."""
    if options.provider and not options.provider.startswith(("http://", "https://")):
        raise UsageError(f"--provider {options.provider}: give a URL such as {DEFAULT_URL}")
    return Answering(options.provider or DEFAULT_URL, options.model or "default", context=options.context)


def _new(options: argparse.Namespace) -> int:
    from nightmill.scaffold import command, new_run, run_path, source_for

    root = run_path(options.name, working_directory())
    answering = _chosen(options)
    new_run(root, source_for(root, options.source), answering)
    _say(f"{root}\n  1. write mission.md: what the new version must do, keep and change\n  2. look through run.yaml")
    _say(f"  3. cd {shlex.quote(str(root))} && {command('doit')}")
    return 0


def _demo(options: argparse.Namespace) -> int:
    from nightmill.demo import closing, opening, prepare
    from nightmill.graph.verbs import doit

    real = bool(options.provider or options.model)
    if real and options.scripted:
        raise UsageError("--scripted and --provider exclude each other")
    answering = _chosen(options) if real else None
    root = prepare(working_directory(), answering)
    _say(opening(root, scripted=not real))
    os.chdir(root)
    code = doit(["run"], talkative=True)
    _say(closing(root, code, scripted=not real))
    return code


def _why(options: argparse.Namespace) -> int:
    from nightmill.graph.session import open_here
    from nightmill.graph.verbs import why

    _say("\n".join(why(open_here(), options.stages)))
    return 0


def _settle(options: argparse.Namespace) -> int:
    from nightmill.graph import verbs
    from nightmill.graph.session import open_here

    settle = {"keep": verbs.keep, "redo": verbs.redo, "merge": verbs.merge}[options.verb]
    _say(settle(open_here(), options.stage))
    return 0


def _status(options: argparse.Namespace) -> int:
    from nightmill.graph.commands import stages_of
    from nightmill.graph.reading import leftovers, stage_lines, summary_of
    from nightmill.graph.session import open_here
    from nightmill.status import status_lines

    session = open_here()
    stages = stages_of(session)
    lines = stage_lines(session, stages)
    states: dict[str, str] = {line.name: line.state for line in lines}
    _say("\n".join(status_lines(summary_of(session, states), lines)))
    if left := leftovers(session, stages):
        _say(f"left over  {', '.join(left)}: no stage makes them any more; delete them when you like")
    return 0


def _explain(options: argparse.Namespace) -> int:
    from nightmill.explain import explain

    return explain(options)


def _providers(options: argparse.Namespace) -> int:
    from nightmill.providers_view import providers

    return providers(options)


def _try(options: argparse.Namespace) -> int:
    from nightmill.trial.command import try_one

    return try_one(options)


def _bench(options: argparse.Namespace) -> int:
    from nightmill.trial.command import bench

    return bench(options)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
