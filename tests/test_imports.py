"""Imports run one way, from the maths up to the command, and heavy ones wait until they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

import vantage

SOURCE = Path(vantage.__file__).parent

# Each layer may import those above it; within one layer only a package's own modules see each other.
LAYERS = (
    ("errors",),
    ("system", "schedules", "seeding", "specs"),
    ("types", "importing"),
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
    "tyro": {"cli"},
    "argparse": set(),
    "matplotlib": {"tools"},
    "onnx": {"tools"},
    "onnxruntime": {"tools"},
    "optuna": {"tools"},
    "PIL": {"tools"},
    "pygame": {"tools"},
    "imageio_ffmpeg": {"tools"},
    **{module: set() for module in ("pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve")},
}

# What the maths may see.
ALGORITHMS_SEE = {"torch", "jaxtyping", "vantage.types", "vantage.specs", "vantage.keys", "vantage.schedules",
                  "vantage.errors", "vantage.algorithms"}


def modules() -> list[str]:
    """Dotted names of all modules and packages of Vantage."""
    paths = (path.relative_to(SOURCE.parent).with_suffix("") for path in SOURCE.rglob("*.py"))
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in paths)


def part_of(module: str) -> str:
    """The layer's member that a module of Vantage belongs to: vantage.envs.atari is of envs."""
    return module.split(".")[1] if "." in module else "__init__"


def source_of(module: str) -> ast.Module:
    path = SOURCE.parent / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_by(module: str) -> Iterator[str]:
    """All that `module` imports, anywhere in its text; a.b of `from a import b`, be it a module or a name."""
    is_package = (SOURCE.parent / Path(*module.split("."))).is_dir()
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(source_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("module", modules())
def test_imports_run_one_way(module: str) -> None:
    importer = part_of(module)
    assert importer in RANK, f"{importer} has no layer: give it one here, and in the layout that the docs show"
    for name in imported_by(module):
        if is_within(name, "vantage") and name != "vantage.__version__":
            imported = part_of(name)
            assert imported == importer or RANK[imported] < RANK[importer], f"{module} imports {name}, a layer above it"


@pytest.mark.parametrize("module", modules())
def test_each_library_is_imported_in_its_one_place(module: str) -> None:
    for name in imported_by(module):
        for library, places in ONLY_IN.items():
            assert not is_within(name, library) or part_of(module) in places, (
                f"{module} imports {name}, which is for {', '.join(places) or 'no module of Vantage'}")


@pytest.mark.parametrize("module", [name for name in modules() if part_of(name) == "algorithms"])
def test_the_maths_sees_tensors_only(module: str) -> None:
    for name in imported_by(module):
        standard = name.partition(".")[0] in sys.stdlib_module_names
        assert standard or any(is_within(name, seen) for seen in ALGORITHMS_SEE), f"{module} imports {name}"


@pytest.mark.parametrize("module", modules())
def test_no_tensor_is_saved_or_loaded_by_pickle(module: str) -> None:
    calls = {ast.unparse(node.func) for node in ast.walk(source_of(module)) if isinstance(node, ast.Call)}
    assert not calls & {"torch.save", "torch.load"}


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
                        f"for module in {[name for name in modules() if not name.endswith('__main__')]}:\n"
                        "    importlib.import_module(module)\n"
                        "assert before == {name: getattr(vantage, name) for name in vantage.__all__}\n"
                        "assert set(vantage.__all__) <= set(dir(vantage))\n")
    assert result.returncode == 0, result.stderr


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        vantage.trian  # noqa: B018
