"""Puts the pipeline's files into wheels as `nightmill/pipeline/`; an editable install finds them in the checkout."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PIPELINE = ("dodo.py", "stages", "skills", "templates")


class PipelineHook(BuildHookInterface):  # type: ignore[type-arg]  # generic over a config class that has no name here
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "editable":
            build_data["force_include"] |= {name: f"nightmill/pipeline/{name}" for name in PIPELINE}
