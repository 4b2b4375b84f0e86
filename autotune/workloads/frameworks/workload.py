"""A framework's trainer as a workload: a script that makes one, or a function that does."""

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from autotune.core.settings import Known, Setting
from autotune.inside.inbox import SITE
from autotune.inside.site import autotune_wire as wire
from autotune.workloads.base import Cadence, Fit
from autotune.workloads.command import spec as commands
from autotune.workloads.command import training
from autotune.workloads.command.workload import CommandWorkload
from autotune.workloads.frameworks import spec
from autotune.workloads.frameworks.cadence import CADENCES
from autotune.workloads.frameworks.framework import Framework
from autotune.workloads.frameworks.known import FRAMEWORKS


@dataclass(frozen=True)
class FrameworkWorkload(CommandWorkload):
    """A command in whose process settings are put into what a framework makes."""

    framework: Framework

    @classmethod
    def of(cls, values: Mapping[str, Any], directory: Path) -> Self:
        framework = FRAMEWORKS[values["kind"]]
        spec.read(framework, values)  # before paths are made of what may be none
        whole = commands.located(values, directory)
        return cls(framework.kind, spec.read(framework, whole), whole, framework)

    @property
    def fit(self) -> Fit:
        """`fit(settings, workdir)` runs the script, with settings in the user's names and shape."""
        return functools.partial(training.fit, self.spec, self.directory, objects=self.framework.objects)

    @property
    def cadence(self) -> Cadence:
        return CADENCES[self.framework.kind]

    @property
    def known_settings(self) -> tuple[Known, ...]:
        return self.framework.known

    def for_trial(
        self, settings: Mapping[str, Setting], samples: int, evaluations: int, quality: str
    ) -> dict[str, Setting]:
        given = super().for_trial(settings, samples, evaluations, quality)
        return {**given, **self.framework.for_trial(settings, samples, evaluations, quality)}

    def _used(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """With what is put in; a function gets every setting."""
        is_built = isinstance(self.spec, spec.FrameworkSpec) and self.spec.build
        return (*super()._used(settings), *(settings if is_built else self.framework.objects))

    def _variables(self, settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, str]:
        """With those by which a script has the winner's settings, and need not be changed."""
        own = super()._variables(settings, values)
        path = os.pathsep.join(filter(None, (str(SITE), own.get("PYTHONPATH"))))
        put_in = training.put_in(settings, self.framework.objects)
        return {
            **own,
            "PYTHONPATH": path,
            wire.OVERRIDES: json.dumps(put_in),
            wire.SETTINGS: json.dumps(dict(settings)),
        }
