"""Imports run one way, from the maths up to the command, and heavy ones wait until they are needed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

import vantage

SOURCE = Path(vantage.__file__).parent

# Each layer may import those above it; within one layer only a package's own modules see each other.
LAYERS = ("errors", "_host", "keys", "specs", "types", "algorithms", "models envs", "learning", "config", "runs",
          "agents", "runtimes", "tools", "api", "cli", "__init__ __main__")
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer.split()}

# The libraries that only these parts may import.
ONLY_IN = {
    "envs": "gymnasium ale_py", "runtimes": "ray", "cli": "tyro", "runs tools": "huggingface_hub",
    "runs": "tensorboard torch.utils.tensorboard wandb mlflow fsspec",
    "tools": "matplotlib onnx onnxruntime optuna PIL pygame imageio_ffmpeg",
    "keys": "cloudpickle", "": "argparse pickle cPickle dill joblib marshal shelve"}

# What the maths may see.
ALGORITHMS_SEE = {"numpy", "torch", "jaxtyping", "vantage.types", "vantage.specs", "vantage.keys.fields",
                  "vantage.keys.algorithm_words",
                  "vantage.keys.schedules", "vantage.errors", "vantage.algorithms"}


def imported_by(path: Path, module: str) -> Iterator[str]:
    """All that a module imports, anywhere in its text; a.b of `from a import b`, be it a module or a name."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{base}.{alias.name}" for alias in node.names)


MODULES = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
           for path in sorted(SOURCE.rglob("*.py"))}


@cache
def imports() -> list[tuple[str, str]]:
    """Each module with each that it imports."""
    return [(module, name) for module, path in MODULES.items() for name in imported_by(path, module)]


def part_of(module: str) -> str:
    """The layer's member that a module of Vantage belongs to: vantage.envs.atari is of envs."""
    return module.split(".")[1] if "." in module else "__init__"


def is_within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_imports_run_one_way() -> None:
    parts = {part_of(module) for module in MODULES}
    assert parts == RANK.keys(), "each part has a layer here, and in the layout that the docs show"
    own = [(module, name) for module, name in imports()
           if is_within(name, ["vantage"]) and name != "vantage.__version__"]
    assert not [(module, name) for module, name in own
                if part_of(module) != part_of(name) and RANK[part_of(name)] >= RANK[part_of(module)]]


def test_the_modules_of_the_search_import_each_other_in_one_direction() -> None:
    package = "vantage.tools.search."
    graph = {module: {other for source, name in imports() if source == module for other in MODULES
                      if other.startswith(package) and is_within(name, [other])}
             for module in MODULES if module.startswith(package)}
    assert graph
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)  # CycleError where there is a circle


def test_each_library_is_imported_in_its_one_place() -> None:
    assert not [(module, name) for module, name in imports() for parts, libraries in ONLY_IN.items()
                if is_within(name, libraries.split()) and part_of(module) not in parts.split()]


def test_the_maths_sees_tensors_only() -> None:
    assert not [(module, name) for module, name in imports() if part_of(module) == "algorithms"
                and not is_within(name, ALGORITHMS_SEE | sys.stdlib_module_names)]


def test_no_tensor_is_saved_or_loaded_by_pickle() -> None:
    for path in MODULES.values():
        assert not re.search(r"torch\.(save|load)\(", path.read_text(encoding="utf-8")), path


PROGRAM = """
import importlib, json, sys
import vantage
vantage.train, vantage.Trainer
found = {"named": [*sys.modules]}
from vantage.learning.optimizers import STATISTICS
from vantage.runtimes.actor_learner import ActorLearner
for name in STATISTICS:
    learner = ActorLearner(vantage.configure('a2c', env='CartPole-v1', optimizer=name))
    learner.begin()
    assert learner.advance(lambda: 0).updates == 1
found["updated"] = [*sys.modules]
before = {name: getattr(vantage, name) for name in vantage.__all__}
for module in sys.argv[1:]:
    importlib.import_module(module)
found["changed"] = [name for name in vantage.__all__ if getattr(vantage, name) is not before[name]]
found["unlisted"] = [*{*vantage.__all__} - {*dir(vantage)}]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """The modules of a new interpreter after two names, after updates, and what the import of every module changes."""
    modules = [name for name in MODULES if not name.endswith("__main__")]
    ended = subprocess.run([sys.executable, "-c", PROGRAM, *modules], check=True, timeout=100, stdout=subprocess.PIPE)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def test_a_terminals_display_is_imported_where_one_is_used(found: dict[str, list[str]]) -> None:
    assert not {"rich", "IPython"} & {*found["named"]}


def test_an_update_imports_no_compiler(found: dict[str, list[str]]) -> None:
    """It would take a second and 75 megabytes of each worker."""
    assert "torch._dynamo" not in found["updated"]


def test_the_public_names_are_there_and_survive_the_import_of_every_module(found: dict[str, list[str]]) -> None:
    assert (found["changed"], found["unlisted"]) == ([], [])
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        vantage.trian  # noqa: B018
