"""Known frameworks, by their kind of workload."""

from collections.abc import Mapping

from autotune.workloads.frameworks.framework import Framework
from autotune.workloads.frameworks.lightning import LIGHTNING
from autotune.workloads.frameworks.torch import TORCH
from autotune.workloads.frameworks.transformers import TRANSFORMERS

FRAMEWORKS: Mapping[str, Framework] = {one.kind: one for one in (LIGHTNING, TORCH, TRANSFORMERS)}
