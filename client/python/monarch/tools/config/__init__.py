"""What a job is scheduled with."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

from monarch.tools.config.workspace import Workspace

__all__ = ["NOT_SET", "Config", "Workspace"]

NOT_SET = "__NOT_SET__"


@dataclasses.dataclass
class Config:
    """How and where a job runs.

    Attributes:
        scheduler: its name.
        scheduler_args: what the scheduler takes beside the job.
        workspace: the directories that go to the hosts.
        dryrun: only shows what would be submitted.
        appdef: the job.
    """

    scheduler: str = NOT_SET
    scheduler_args: dict[str, Any] = dataclasses.field(default_factory=dict)
    workspace: Workspace = dataclasses.field(default_factory=Workspace.null)
    dryrun: bool = False
    appdef: Any = None

    def __post_init__(self) -> None:
        given: Any = self.workspace
        if not given:
            self._warn("None", "Workspace(env=None)")
            self.workspace = Workspace.null()
        elif isinstance(given, str):
            self._warn(repr(given), f"Workspace(dirs=[{given!r}])")
            self.workspace = Workspace(dirs={given: ""})

    @staticmethod
    def _warn(given: str, better: str) -> None:
        text = f"workspace={given} is deprecated; use monarch.tools.config.workspace.{better}"
        warnings.warn(text, FutureWarning, stacklevel=4)
