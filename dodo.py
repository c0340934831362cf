"""The pipelines, top to bottom. Each line is a stage (stages/NAME.py) that produces the files named in its header.

Dependencies are files: a stage comes after the stages that make what it needs. Run it with `doit` in a run directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.analysis import analysis
from stages.baseline import baseline
from stages.contract import contract, draft
from stages.contract_review import contract_review
from stages.deviations import deviations
from stages.implement import implement
from stages.intake import intake
from stages.integrate import integrate
from stages.merge import merge_wave
from stages.mutants import mutants
from stages.plan import plan
from stages.proof import proof
from stages.report import report
from stages.reviews import formal_review, ip_review, production_review
from stages.schema import schema
from stages.task import attempt, task
from stages.test_matrix import test_matrix
from stages.tests import tests
from stages.verify import verify

from nightmill.errors import ConfigError
from nightmill.graph.pipeline import Pipeline, Rounds, Waves, expand
from nightmill.graph.session import current
from nightmill.graph.tasks import tasks

REWRITE: Pipeline = (
    intake,  # the old program → source.md, source.lock
    baseline,  # its own build and tests → baseline.json
    Rounds(draft, contract_review, then=contract),  # → contract.md, drafted and reviewed in rounds
    test_matrix,  # clauses → rows of input and expected result
    analysis,  # what no single function shows
    schema,  # types and signatures with stub bodies
    tests,  # acceptance tests, proved red on the stubs, then locked
    proof,  # → proof.json, which tests prove something; again after every edit of a test
    plan,  # → plan.md, milestones; from here the graph is read from it
    Waves(implement, merge_wave),  # every milestone of a wave at once, then one tree
    integrate,  # the whole, mended against the locked tests → v2/
    verify,  # v2 as it lies there, against the locked tests → gate.md; nothing else says done
    mutants,  # small faults in v2: which of them no test notices → mutants.json
    production_review,  # the final panel; it comments
    formal_review,
    ip_review,
    deviations,  # what was noticed and not fixed
    report,  # report.html
)

TASK: Pipeline = (
    task,  # `nightmill try`: one small task → its files and the person's tests, locked
    attempt,  # the build loop alone → v2/
)

PIPELINES = {"rewrite": REWRITE, "task": TASK}

DOIT_CONFIG = {"backend": "sqlite3", "continue": True, "verbosity": 2, "sort": "definition"}


def pipeline_of(name: str) -> Pipeline:
    """Raises ConfigError on a name that is no pipeline."""
    if name not in PIPELINES:
        raise ConfigError(f"run.yaml: pipeline: there is no pipeline `{name}`; known: {', '.join(PIPELINES)}")
    return PIPELINES[name]


def task_pipeline() -> Iterator[dict[str, Any]]:
    """One task per stage of this run."""
    session = current()
    yield from tasks(session, expand(pipeline_of(session.run.config.pipeline), session))
