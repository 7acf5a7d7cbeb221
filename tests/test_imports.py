"""Imports run one way, from the maths up to the command, and heavy ones wait until they are needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
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
IMPORTS = [(module, name) for module, path in MODULES.items() for name in imported_by(path, module)]


def part_of(module: str) -> str:
    """The layer's member that a module of Vantage belongs to: vantage.envs.atari is of envs."""
    return module.split(".")[1] if "." in module else "__init__"


def is_within(module: str, packages: Iterable[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def test_imports_run_one_way() -> None:
    parts = {part_of(module) for module in MODULES}
    assert parts == RANK.keys(), "each part has a layer here, and in the layout that the docs show"
    own = [(module, name) for module, name in IMPORTS if is_within(name, ["vantage"]) and name != "vantage.__version__"]
    assert not [(module, name) for module, name in own
                if part_of(module) != part_of(name) and RANK[part_of(name)] >= RANK[part_of(module)]]


def test_the_modules_of_the_search_import_each_other_in_one_direction() -> None:
    package = "vantage.tools.search."
    graph = {module: {other for source, name in IMPORTS if source == module for other in MODULES
                      if other.startswith(package) and is_within(name, [other])}
             for module in MODULES if module.startswith(package)}
    assert graph
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)  # CycleError where there is a circle


def test_each_library_is_imported_in_its_one_place() -> None:
    assert not [(module, name) for module, name in IMPORTS for parts, libraries in ONLY_IN.items()
                if is_within(name, libraries.split()) and part_of(module) not in parts.split()]


def test_the_maths_sees_tensors_only() -> None:
    assert not [(module, name) for module, name in IMPORTS if part_of(module) == "algorithms"
                and not is_within(name, ALGORITHMS_SEE | sys.stdlib_module_names)]


def test_no_tensor_is_saved_or_loaded_by_pickle() -> None:
    for path in MODULES.values():
        assert not re.search(r"torch\.(save|load)\(", path.read_text(encoding="utf-8")), path


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_update_imports_no_compiler() -> None:
    """It would take a second and 75 megabytes of each worker."""
    run_python("""
import sys, vantage
from vantage.learning.optimizers import STATISTICS
from vantage.runtimes.actor_learner import ActorLearner
for name in STATISTICS:
    learner = ActorLearner(vantage.configure('a2c', env='CartPole-v1', optimizer=name))
    learner.begin()
    assert learner.advance(lambda: 0).updates == 1
assert 'torch._dynamo' not in sys.modules
""")


def test_a_terminals_display_is_imported_where_one_is_used() -> None:
    run_python("""
import sys, vantage
vantage.train, vantage.Trainer
assert 'rich' not in sys.modules and 'IPython' not in sys.modules
""")


def test_the_public_names_are_there_and_survive_the_import_of_every_module() -> None:
    run_python(f"""
import importlib, vantage
before = {{name: getattr(vantage, name) for name in vantage.__all__}}
for module in {[name for name in MODULES if not name.endswith('__main__')]}:
    importlib.import_module(module)
assert before == {{name: getattr(vantage, name) for name in vantage.__all__}}
assert set(vantage.__all__) <= set(dir(vantage))
""")
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        vantage.trian  # noqa: B018
