"""Imports run one way, from the maths up to the command, and heavy ones wait until they are needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

import vantage

SOURCE = Path(vantage.__file__).parent

# Each layer may import those above it; within one layer only a package's own modules see each other.
LAYERS = (
    ("errors",),
    ("extras",),
    ("config_keys", "processes", "system", "terminal", "time_limit", "schedules", "seeding", "specs"),
    ("types", "importing", "other_libraries"),
    ("keys",),
    ("algorithms",),
    ("config_groups",),
    ("config",),
    ("models", "envs"),
    ("learning",),
    ("runs",),
    ("runtimes",),
    ("consistency",),
    ("presets",),
    ("agent", "machine"),
    ("training",),
    ("tools",),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}

# Who alone may import it.
ONLY_IN = {
    "gymnasium": {"envs"},
    "ale_py": {"envs"},
    "tensorboard": {"runs"},
    "torch.utils.tensorboard": {"runs"},
    "wandb": {"runs"},
    "mlflow": {"runs"},
    "huggingface_hub": {"runs", "tools"},
    "tyro": {"cli"},
    "argparse": set(),
    "matplotlib": {"tools"},
    "onnx": {"tools"},
    "onnxruntime": {"tools"},
    "optuna": {"tools"},
    "PIL": {"tools"},
    "ray": {"runtimes"},
    "fsspec": {"runs"},
    "pygame": {"tools"},
    "imageio_ffmpeg": {"tools"},
    **{module: set() for module in ("pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")},
}

# What the maths may see.
ALGORITHMS_SEE = {"torch", "jaxtyping", "vantage.types", "vantage.specs", "vantage.keys", "vantage.schedules",
                  "vantage.errors", "vantage.algorithms"}


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


def test_each_library_is_imported_in_its_one_place() -> None:
    assert not [(module, name) for module, name in IMPORTS for library, places in ONLY_IN.items()
                if is_within(name, [library]) and part_of(module) not in places]


def test_the_maths_sees_tensors_only() -> None:
    assert not [(module, name) for module, name in IMPORTS if part_of(module) == "algorithms"
                and not is_within(name, ALGORITHMS_SEE | sys.stdlib_module_names)]


def test_no_tensor_is_saved_or_loaded_by_pickle() -> None:
    for path in MODULES.values():
        assert not re.search(r"torch\.(save|load)\(", path.read_text(encoding="utf-8")), path


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_an_update_imports_no_compiler() -> None:
    """It would take a second and 75 megabytes of each worker."""
    result = run_python("import sys, vantage\n"
                        "from vantage.learning.optimizers import STATISTICS\n"
                        "from vantage.runtimes.actor_learner import ActorLearner\n"
                        "for name in STATISTICS:\n"
                        "    learner = ActorLearner(vantage.configure('a2c', env='CartPole-v1', optimizer=name))\n"
                        "    learner.begin()\n"
                        "    assert learner.advance(lambda: 0).updates == 1\n"
                        "sys.exit('torch._dynamo was imported' if 'torch._dynamo' in sys.modules else 0)")
    assert result.returncode == 0, result.stderr


def test_the_public_names_are_there_and_survive_the_import_of_every_module() -> None:
    result = run_python("import importlib, vantage\n"
                        "before = {name: getattr(vantage, name) for name in vantage.__all__}\n"
                        f"for module in {[name for name in MODULES if not name.endswith('__main__')]}:\n"
                        "    importlib.import_module(module)\n"
                        "assert before == {name: getattr(vantage, name) for name in vantage.__all__}\n"
                        "assert set(vantage.__all__) <= set(dir(vantage))\n")
    assert result.returncode == 0, result.stderr


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        vantage.trian  # noqa: B018
