"""The layout and its rules, held by reading the imports: who may depend on whom, and how large a module may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("npu_memplan", "fvp_runner")
MODULES = sorted(p for package in PACKAGES for p in (REPOSITORY / package).rglob("*.py"))
LINES = 400


def name_of(path: Path) -> str:
    """`npu_memplan/ethosu/stream/isa.py` -> `npu_memplan.ethosu.stream.isa`."""
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> Iterator[str]:
    """Every module that the source of `path` imports, anywhere in it, by its full name."""
    package = name_of(path).split(".") if path.name == "__init__.py" else name_of(path).split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield ".".join([*base, *([node.module] if node.module else [])])


def depends(path: Path, *prefixes: str) -> list[str]:
    return [name for name in imports(path) if name.startswith(prefixes)]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: name_of(p))
def test_a_module_is_one_concept_of_readable_size(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= LINES, f"{path} has more than {LINES} lines: one concept a file"
    tree = ast.parse(source)
    if tree.body and path.name != "__init__.py":
        assert ast.get_docstring(tree), f"{path} has no docstring that states its invariant"


def test_only_one_module_calls_vela() -> None:
    users = {name_of(path) for path in MODULES if depends(path, "ethosu.")}
    assert users <= {"npu_memplan.ethosu.vela", "npu_memplan.ethosu.vela_worker"}


@pytest.mark.parametrize("module", ["npu_memplan.problem", "npu_memplan.verify", "npu_memplan.planners", "npu_memplan"])
def test_the_planning_core_imports_without_tvm_vela_and_numpy(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('tvm', 'tvm_ffi', 'ethosu', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_verifier_shares_no_code_with_planners_or_extraction() -> None:
    assert depends(REPOSITORY / "npu_memplan" / "verify.py", "npu_memplan.") == [
        "npu_memplan.errors",
        "npu_memplan.problem",
    ]


@pytest.mark.parametrize("path", [p for p in MODULES if "planners" in p.parts], ids=lambda p: name_of(p))
def test_planners_know_only_problems(path: Path) -> None:
    ours = depends(path, "npu_memplan.")
    allowed = (
        "npu_memplan.planners",
        "npu_memplan.problem",
        "npu_memplan.errors",
        "npu_memplan.verify",
        "npu_memplan.c_compiler",
    )
    assert all(name.startswith(allowed) for name in ours), ours


@pytest.mark.parametrize("path", [p for p in MODULES if "fvp_runner" in p.parts], ids=lambda p: name_of(p))
def test_runners_depend_on_the_npus_language_and_the_artifact_only(path: Path) -> None:
    ours = depends(path, "npu_memplan.")
    forbidden = ("npu_memplan.planners", "npu_memplan.extract", "npu_memplan.rewrite", "npu_memplan.pipeline")
    assert not [name for name in ours if name.startswith(forbidden)], ours


_CHECKERS = [
    *(REPOSITORY / "fvp_runner" / "npu_model").rglob("*.py"),
    REPOSITORY / "fvp_runner" / "emulators" / "job.py",
]


@pytest.mark.parametrize("path", _CHECKERS, ids=lambda p: name_of(p))
def test_the_checking_side_never_asks_the_compilers_analysis(path: Path) -> None:
    """What compiler and model share is the table in docs/npu_model.md; everything else the model derives itself."""
    language = ("stream.isa", "stream.commands", "stream.decode", "arch", "time")
    allowed = ("npu_memplan.errors", *(f"npu_memplan.ethosu.{name}" for name in language))
    ours = depends(path, "npu_memplan.")
    assert [name for name in ours if name not in allowed and not name.startswith("npu_memplan.models.")] == []


@pytest.mark.parametrize("path", [p for p in MODULES if "models" in p.parts], ids=lambda p: name_of(p))
def test_readers_of_models_know_no_ir_and_only_velas_knows_the_npu(path: Path) -> None:
    npu = ("npu_memplan.ethosu.arch", "npu_memplan.ethosu.stream") if path.stem.startswith("vela") else ()
    allowed = ("npu_memplan.errors", "npu_memplan.models", *npu)
    assert [name for name in depends(path, "npu_memplan.", "tvm") if not name.startswith(allowed)] == []


_LANGUAGE = tuple(
    f"npu_memplan.{name}" for name in ("ethosu", "models", "errors", "names", "vocabulary", "target_data")
)


def test_the_npus_language_stands_alone() -> None:
    folder = REPOSITORY / "npu_memplan" / "ethosu"
    for path in folder.rglob("*.py"):
        others = [n for n in depends(path, "npu_memplan.") if not n.startswith(_LANGUAGE)]
        assert others == [], f"{path} imports {others}"


def test_every_user_error_has_the_one_base() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and node.name != "NpuMemplanError":
                bases = {ast.unparse(base) for base in node.bases}
                assert bases & {"NpuMemplanError"} or all(b.endswith("Error") for b in bases), f"{path}: {node.name}"
                builtin = bases & {"Exception", "ValueError", "RuntimeError", "KeyError", "AssertionError"}
                assert not builtin or "NpuMemplanError" in bases, f"{path}: {node.name}"


def test_no_code_knows_a_board() -> None:
    """What docs/howto/own-board.md says: the shipped boards are files like a user's."""
    boards = sorted(path.stem for path in (REPOSITORY / "targets" / "boards").glob("*.toml"))
    assert len(boards) > 3
    for path in MODULES:
        texts = [n.value for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Constant)]
        assert not [board for board in boards for text in texts if isinstance(text, str) and board in text], path
