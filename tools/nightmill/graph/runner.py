"""doit's runners with three changes: a signal stops before the next task, waiting for a person is no failure of what follows,
and the process's exit code is the worst that happened (nightmill.errors)."""

from __future__ import annotations

from typing import Any

from doit.exceptions import TaskError, TaskFailed, UnmetDependency
from doit.runner import MThreadRunner, Runner

from nightmill.errors import EXIT_BUG
from nightmill.graph.session import Session


class _Careful:
    """Mixed in before a doit runner; `session` and `codes` are set by the run command."""

    session: Session
    codes: list[int]

    def _handle_task_error(self, node: Any, base_fail: Any) -> None:
        """As doit's, but a task that merely could not run keeps its earlier record."""
        node.run_status = "failure"
        if not isinstance(base_fail, UnmetDependency):
            self.codes.append(getattr(base_fail, "exit_code", EXIT_BUG if isinstance(base_fail, TaskError) else 1))
            self.dep_manager.remove_success(node.task)  # type: ignore[attr-defined]
        self.reporter.add_failure(node.task, base_fail)  # type: ignore[attr-defined]
        self.final_result = 1 if isinstance(base_fail, TaskFailed) else EXIT_BUG
        if not self.continue_:  # type: ignore[attr-defined]
            self._stop_running = True


class SerialRunner(_Careful, Runner):  # type: ignore[misc]  # doit has no type hints
    def select_task(self, node: Any, tasks_dict: Any) -> bool:
        if self.session.stopping():
            self._stop_running = True
            return False
        return bool(super().select_task(node, tasks_dict))


class ThreadRunner(_Careful, MThreadRunner):  # type: ignore[misc]  # doit has no type hints
    """Threads, not processes: with processes a killed run leaves workers that go on."""

    def get_next_job(self, completed: Any) -> Any:
        if self.session.stopping():
            self._stop_running = True
        return super().get_next_job(completed)


class QuietReporter:
    """doit's reporter interface; the console says what happens from events, so this one only keeps failures and bugs' tracebacks."""

    desc = "nightmill's own: the console speaks from events"

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []
        self.bugs: list[str] = []
        self.blocked: list[str] = []
        self.failed: set[str] = set()
        """Stages that ran and did not come to their end."""

    def initialize(self, tasks: Any, selected_tasks: Any) -> None: ...
    def get_status(self, task: Any) -> None: ...
    def execute_task(self, task: Any) -> None: ...
    def add_success(self, task: Any) -> None: ...
    def skip_uptodate(self, task: Any) -> None: ...
    def skip_ignore(self, task: Any) -> None: ...
    def teardown_task(self, task: Any) -> None: ...
    def complete_run(self) -> None: ...

    def add_failure(self, task: Any, fail: Any) -> None:
        if isinstance(fail, UnmetDependency):
            self.blocked.append(task.name)
            return
        self.failed.add(task.name)
        if isinstance(fail, TaskFailed):
            self.failures.append((task.name, fail.message))
        else:
            self.bugs.append(f"{task.name}: {fail.get_msg()}")

    def cleanup_error(self, exception: Any) -> None:
        self.bugs.append(exception.get_msg())

    def runtime_error(self, msg: str) -> None:
        self.bugs.append(msg)
