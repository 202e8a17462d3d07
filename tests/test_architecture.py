"""The layout and its rules, held by reading the imports: who may depend on whom, and how large a module may be."""

from __future__ import annotations

import ast
import builtins
import functools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import fvp_runner

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("npu_memplan", "fvp_runner")
MODULES = sorted(p for package in PACKAGES for p in (REPOSITORY / package).rglob("*.py"))
LINES = 800  # of a module
FUNCTION_LINES = 80  # of a function's body
PIPELINE_LINES = 140  # the whole compile on a screen or two


def name_of(path: Path) -> str:
    """`npu_memplan/ethosu/stream/isa.py` -> `npu_memplan.ethosu.stream.isa`."""
    return ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a module; do not change it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the syntax tree of a module."""
    return tuple(ast.walk(parsed(path)))


def imported(tree: ast.AST, package: list[str]) -> Iterator[str]:
    """Every module that is imported anywhere in `tree`, by its full name, however it is spelt."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:  # of a folder: a module in it, or a name
                yield f"{source}.{alias.name}" if f"{source}.{alias.name}" in NAMED else home_of(source, alias.name)


def home_of(source: str, name: str) -> str:
    """The module that a name is imported from: the runner's interface lends names of its modules."""
    home = runner_interface().get(name) if source == "fvp_runner" else None
    return f"fvp_runner.{home}" if home else source


@functools.cache
def runner_interface() -> dict[str, str]:
    """Name -> module of all that `fvp_runner/__init__.py` imports for types."""
    statements = [n for n in nodes(REPOSITORY / "fvp_runner" / "__init__.py") if isinstance(n, ast.ImportFrom)]
    return {alias.name: str(n.module) for n in statements if n.level for alias in n.names}


def imports_in(path: Path, tree: ast.AST) -> list[str]:
    """Every module that `tree`, source of `path`, imports, each once, in its order."""
    package = name_of(path).split(".") if path.name == "__init__.py" else name_of(path).split(".")[:-1]
    return list(dict.fromkeys(imported(tree, package)))


@functools.cache
def imports(path: Path) -> list[str]:
    """Every module that the source of `path` imports."""
    return imports_in(path, parsed(path))


NAMED = {name_of(path): path for path in MODULES}


def depends(path: Path, *prefixes: str) -> list[str]:
    return [name for name in imports(path) if name.startswith(prefixes)]


def imports_beyond(paths: Iterable[Path], allowed: Collection[str]) -> dict[str, list[str]]:
    """Imports of `npu_memplan` that are in none of the packages `allowed`, by module; only modules that have some."""
    packages = tuple(f"{package}." for package in allowed)
    found = {
        name_of(path): [name for name in depends(path, "npu_memplan.") if not f"{name}.".startswith(packages)]
        for path in paths
    }
    return {name: others for name, others in found.items() if others}


@pytest.fixture(scope="module", autouse=True)
def every_module_is_parsed() -> None:
    """Shared by all tests, so that none of them is called slow for being the first."""
    for path in MODULES:
        nodes(path)
        imports(path)


def test_every_module_has_a_readable_size() -> None:
    long = [name_of(path) for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > LINES]
    assert long == [], f"more than {LINES} lines: one story a file"


def test_every_module_states_its_invariant() -> None:
    trees = {name_of(path): parsed(path) for path in MODULES if path.name != "__init__.py"}
    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_the_pipeline_is_stages_and_nothing_else() -> None:
    path = REPOSITORY / "npu_memplan" / "pipeline.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < PIPELINE_LINES


def test_every_function_fits_a_screen() -> None:
    functions = [(path, n) for path in MODULES for n in nodes(path) if isinstance(n, ast.FunctionDef)]
    lines = {
        f"{name_of(path)}.{node.name}": (node.end_lineno or 0) - node.body[0].lineno + 1 for path, node in functions
    }
    assert {name: count for name, count in lines.items() if count > FUNCTION_LINES} == {}, "give the steps names"


# Names of one word that say neither what is done nor what is returned: prepositions, pronouns, participles.
_SAYS_NOTHING = re.compile(
    "of|under|instead|otherwise|together|around|with|at|by|up|begun|further|ours|theirs|made|found|moved|held|said|asked"
    "|taken|settled|named|joined|described|divided|completed|lifted|forms|where|same|inside|within|between"
    "|(?!(feed|seed|speed|need|embed)$)[a-z]+(ed|own|ept|elt)"
)


def says_nothing(name: str) -> bool:
    """Whether the name of a function is neither a verb nor a noun."""
    return _SAYS_NOTHING.fullmatch(name.strip("_")) is not None


@pytest.mark.parametrize(
    ("name", "nothing"),
    [
        ("made", True),
        ("_planned", True),
        ("of", True),
        ("embed", False),
        ("planned_pools", False),
        ("peak_bytes", False),
    ],
)
def test_a_participle_is_no_name(name: str, nothing: bool) -> None:
    assert says_nothing(name) is nothing


def test_functions_are_verbs_or_nouns() -> None:
    assert not [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and says_nothing(node.name)
    ]


@pytest.mark.parametrize(
    "spelling",
    [
        "import npu_memplan.problem",
        "import npu_memplan.problem as p",
        "from npu_memplan import problem",
        "from npu_memplan.problem import Pool",
        "from . import problem",
        "from .problem import Pool",
        "def f():\n    from . import problem",
    ],
)
def test_an_import_is_seen_however_it_is_spelt(spelling: str) -> None:
    assert list(imported(ast.parse(spelling), ["npu_memplan"])) == ["npu_memplan.problem"]


class _WithoutTypes(ast.NodeTransformer):
    """Drops what is imported for the type checker alone."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        return node.orelse if ast.unparse(node.test).endswith("TYPE_CHECKING") else self.generic_visit(node)


def circles(graph: Mapping[str, Collection[str]]) -> list[set[str]]:
    """The sets of modules that import each other, directly or through others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        new = {start}
        while new:
            new = {target for source in new for target in graph[source]} - found
            found |= new
        return found

    behind = {module: reached(module) for module in graph}
    found = [{m for m in behind[module] if module in behind[m]} for module in graph if module in behind[module]]
    return [circle for i, circle in enumerate(found) if circle not in found[:i]]


def test_a_circle_is_found() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": [], "e": ["e"]}
    assert circles(graph) == [{"b", "c"}, {"e"}]


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count: what needs one to open a circle is in the wrong place."""
    graph = {}
    for name, path in NAMED.items():
        targets = imports_in(path, _WithoutTypes().visit(ast.parse(path.read_text(encoding="utf-8"))))
        graph[name] = [target for target in targets if target in NAMED and target != name]
    assert circles(graph) == []


def folder_of(module: str) -> str:
    """`npu_memplan.ethosu.stream.isa` -> `npu_memplan.ethosu`; a module beside the folders is one by itself."""
    return ".".join(module.split(".")[:2])


def folder_imports() -> dict[str, set[str]]:
    """What each folder imports, types included; a package's own names are those of its interface."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name, path in NAMED.items():
        found = {folder_of(target) for target in imports(path) if target in NAMED}
        graph[folder_of(name)] |= found - {folder_of(name), *PACKAGES}
    return graph


def test_no_folder_imports_itself_through_others() -> None:
    """So no two folders import each other, and every folder has a floor: see docs/architecture.md."""
    assert circles(folder_imports()) == []


def test_only_one_module_loads_vela() -> None:
    users = {name_of(path) for path in MODULES if depends(path, "ethosu")}
    assert users == {"npu_memplan.ethosu.weight_codec"}


@pytest.mark.parametrize("module", ["npu_memplan.problem", "npu_memplan.verify", "npu_memplan.planners", "npu_memplan"])
def test_the_planning_core_imports_without_tvm_vela_and_numpy(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('tvm', 'tvm_ffi', 'ethosu', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_verifier_shares_no_code_with_planners_or_extraction() -> None:
    allowed = ("npu_memplan.verify", "npu_memplan.problem", "npu_memplan.errors")
    assert imports_beyond([p for p in MODULES if "verify" in p.parts], allowed) == {}


def test_planners_know_only_problems() -> None:
    allowed = (
        "npu_memplan.planners",
        "npu_memplan.problem",
        "npu_memplan.errors",
        "npu_memplan.verify",
        "npu_memplan.clock",
        "npu_memplan.compiled",
        "npu_memplan.process.incidents",  # that a search is another one is told there
    )
    assert imports_beyond([p for p in MODULES if "planners" in p.parts], allowed) == {}


def test_runners_depend_on_the_npus_language_and_the_artifact_only() -> None:
    forbidden = ("npu_memplan.planners", "npu_memplan.extract", "npu_memplan.rewrite", "npu_memplan.pipeline")
    runners = {name_of(path): depends(path, *forbidden) for path in MODULES if "fvp_runner" in path.parts}
    assert {name: found for name, found in runners.items() if found} == {}


def test_the_compiler_uses_the_runners_interface_alone() -> None:
    """And nothing that the runner imports, lazily too, imports the runner: so the two packages have one direction."""
    assert runner_interface() == {name: fvp_runner._HOMES[name] for name in fvp_runner.__all__}
    deeper = [
        f"{name_of(path)}: {node.module}"
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and "npu_memplan" in path.parts and not node.level
        if str(node.module).startswith("fvp_runner.")
    ]
    assert deeper == []
    used = {
        alias.name
        for path in MODULES
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.module == "fvp_runner"
        for alias in node.names
    }
    assert used == runner_interface().keys()
    below, waiting = set(), [name for name in NAMED if name.startswith("fvp_runner.")]
    while waiting:
        if (name := waiting.pop()) not in below:
            below.add(name)
            waiting += [target for target in imports(NAMED[name]) if target in NAMED]
    above = {name for name in below if name.startswith("npu_memplan") and depends(NAMED[name], "fvp_runner")}
    assert above == set()


_CHECKERS = [
    *(REPOSITORY / "fvp_runner" / "npu_model").rglob("*.py"),
    REPOSITORY / "fvp_runner" / "emulators" / "job.py",
]


def test_the_checking_side_never_asks_the_compilers_analysis() -> None:
    """What compiler and model share is the table in docs/npu_model.md; everything else the model derives itself."""
    language = ("stream.isa", "stream.decode", "arch", "time")
    texts = ("npu_memplan.errors", "npu_memplan.sizes")
    allowed = (*texts, "npu_memplan.models", *(f"npu_memplan.ethosu.{name}" for name in language))
    assert imports_beyond(_CHECKERS, allowed) == {}


_VERIFICATION = sorted((REPOSITORY / "npu_memplan" / "transform" / "verification").glob("*.py"))


def test_the_verification_of_modules_asks_nothing_of_the_analysis() -> None:
    shared = ("errors", "vocabulary", "transform.typed_pass", "transform.verification")
    assert imports_beyond(_VERIFICATION, [f"npu_memplan.{name}" for name in shared]) == {}


_SIZES_OF_AN_NPU = "npu_memplan/ethosu/arch/"
_BIT_FIELDS = ("npu_memplan/ethosu/stream/", "fvp_runner/npu_model/spec/")  # compiler and model: each reads its own
# A register that is shifted or masked where it is read, or named by joining texts.
_TAKEN_APART = re.compile(r"Register\.\w+[\])]+ *(>>|<<|&)|(>>|<<|&) *\w+\[Register\.|\bRegister\[f[\"']")


def compares_macs(tree: ast.AST) -> Iterator[ast.Compare]:
    """Comparisons of a number of MACs with particular ones."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
            sides = (node.left, *node.comparators)
            if any(isinstance(side, ast.Attribute) and side.attr == "macs" for side in sides):
                yield node


def test_rules_of_text_catch_what_they_are_for() -> None:
    bad = ("registers[Register.IFM_PRECISION] >> 2", "op.get(Register.KERNEL_STRIDE) & 1", "7 & r[Register.OFM_REGION]")
    assert all(_TAKEN_APART.search(text) for text in (*bad, 'Register[f"{name}_BASE0"]'))
    assert not _TAKEN_APART.search("InputPrecision.SIZE.of(registers[Register.IFM_PRECISION])")
    assert list(compares_macs(ast.parse("if npu.macs in (32, 64): pass")))
    assert list(compares_macs(ast.parse("x = npu.macs == 512")))
    assert not list(compares_macs(ast.parse("x = npu.macs > least")))


def test_what_an_npu_is_stands_in_arch_and_its_bit_fields_in_stream() -> None:
    for path in MODULES:
        name, source = path.relative_to(REPOSITORY).as_posix(), path.read_text(encoding="utf-8")
        if not name.startswith(_SIZES_OF_AN_NPU):
            assert not [ast.unparse(node) for node in compares_macs(parsed(path))], f"{name}: ask the Architecture"
        if not name.startswith(_BIT_FIELDS):
            assert not [line for line in source.splitlines() if _TAKEN_APART.search(line)], f"{name}: use stream/fields"


def test_readers_of_models_know_no_ir_and_only_velas_knows_the_npu() -> None:
    readers = [p for p in MODULES if "models" in p.parts]
    beside = ("errors", "fixed_point", "names", "sizes", "models", "process.ending", "files.paths")
    allowed = tuple(f"npu_memplan.{name}" for name in beside)
    npu = ("npu_memplan.ethosu.arch", "npu_memplan.ethosu.stream")
    velas = [p for p in readers if p.stem.startswith("vela") or p.stem == "delegates"]
    assert imports_beyond([p for p in readers if p not in velas], allowed) == {}
    assert imports_beyond(velas, (*allowed, *npu)) == {}
    assert [name_of(p) for p in readers if depends(p, "tvm")] == []


_BESIDE_THE_NPU = ("compiled", "fixed_point", "errors", "names", "vocabulary", "target_data", "problem", "files.paths")
_LANGUAGE = tuple(f"npu_memplan.{name}" for name in ("ethosu", *_BESIDE_THE_NPU))


def test_the_npus_language_stands_alone() -> None:
    assert imports_beyond((REPOSITORY / "npu_memplan" / "ethosu").rglob("*.py"), _LANGUAGE) == {}


_BASES = ("NpuMemplanError", "InternalError")  # of users' errors, and of faults of ours, which are none


def test_every_user_error_has_the_one_base() -> None:
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and node.name not in _BASES:
                bases = {ast.unparse(base) for base in node.bases}
                assert bases & {"NpuMemplanError"} or all(b.endswith("Error") for b in bases), f"{path}: {node.name}"
                builtin = bases & {"Exception", "ValueError", "RuntimeError", "KeyError", "AssertionError"}
                assert not builtin or "NpuMemplanError" in bases, f"{path}: {node.name}"


# Classes of the same name that are two: of the compiler and of the model of the NPU, which each have their own
# (docs/npu_model.md, "What ... share"), and of the NPU's graph and of plan.json, whose schema names it.
TWINS = {"Access", "Activation", "Footprint", "Scale", "Window"}
OF_A_FILE = {"Layer"}


def test_a_name_means_one_thing() -> None:
    """Those that begin with an underscore are a file's own."""
    places = defaultdict(set)
    for path in MODULES:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert not hasattr(builtins, node.name), f"{path}: {node.name} is Python's"
                places[node.name].add(name_of(path))
    several = {name: sorted(found) for name, found in places.items() if len(found) > 1}
    assert several.keys() == TWINS | OF_A_FILE, several
    for name in TWINS:
        assert len(several[name]) == 2, several[name]
        assert "npu_model" in several[name][0], several[name]


def test_no_code_knows_a_board() -> None:
    """What docs/howto/own-board.md says: the shipped boards are files like a user's."""
    boards = sorted(path.stem for path in (REPOSITORY / "targets" / "boards").glob("*.toml"))
    assert len(boards) > 3
    for path in MODULES:
        texts = [n.value for n in nodes(path) if isinstance(n, ast.Constant)]
        assert not [board for board in boards for text in texts if isinstance(text, str) and board in text], path


# Who catches everything, and neither raises nor reports it at once: each with the reason.
CATCH_ALL = {
    "npu_memplan.process.incidents": "what contains and tells faults",
    "npu_memplan.cli": "the last to hear of a fault, which it prints",
    "npu_memplan.sweep.measure": "a case's result says that it crashed",
    "npu_memplan.sweep.run": "a lost worker is the case's result",
    "fvp_runner.emulators.unicorn": "handed to the caller's thread",
    "fvp_runner.checked_run.compare": "without the reference's library nothing is judged by it; the facts say so",
    "fvp_runner.checked_run.worker": "handed to the compile, which reports it",
    "fvp_runner.host.runner": "handed to the caller's thread",
    "fvp_runner.host.sanitizer": "kept, and raised where the run ends: C cannot hand it on",
}


def hides(handler: ast.ExceptHandler) -> bool:
    """Whether a handler of every exception neither raises nor reports."""
    caught = ast.unparse(handler.type) if handler.type is not None else "BaseException"
    every = re.search(r"\b(Base)?Exception\b", caught) is not None
    told = any(
        isinstance(n, ast.Raise) or (isinstance(n, ast.Call) and ast.unparse(n.func) == "report_fault")
        for n in ast.walk(handler)
    )
    return every and not told


def hides_lack_of_memory(handler: ast.ExceptHandler) -> bool:
    """Whether a handler of every exception goes on without asking whether a lack of memory raised it."""
    caught = ast.unparse(handler.type) if handler.type is not None else "BaseException"
    asks = {"raise_lack_of_memory", "report_fault"}
    kept = any(
        (isinstance(n, ast.Raise) and n.exc is None) or (isinstance(n, ast.Call) and ast.unparse(n.func) in asks)
        for n in ast.walk(handler)
    )
    return re.search(r"\bException\b", caught) is not None and not kept


def test_no_handler_hides_a_lack_of_memory() -> None:
    """What TVM makes of one is a RuntimeError, see `process.ending`."""
    program = ast.walk(ast.parse("try: f()\nexcept Exception as e: raise X from e"))
    assert [hides_lack_of_memory(n) for n in program if isinstance(n, ast.ExceptHandler)] == [True]
    handlers = ((p, n) for p in MODULES for n in nodes(p) if isinstance(n, ast.ExceptHandler))
    found = {name_of(p) for p, handler in handlers if hides_lack_of_memory(handler)}
    in_threads = {
        "npu_memplan.cli",  # asks `lacks_memory`
        *("npu_memplan.sweep.measure", "npu_memplan.sweep.run"),
        "fvp_runner.checked_run.worker",  # a process of its own, which is killed
        "fvp_runner.host.sanitizer",  # kept, and raised where the run ends
    }
    assert found <= in_threads, found - in_threads


def test_one_module_reads_files() -> None:
    """So no pipe is waited for, and nothing is read without end (`files.paths`)."""
    own = {  # read what this package itself has, made, or keeps
        *("npu_memplan.sweep.measure", "npu_memplan.sweep.run"),
        *("npu_memplan.vela.worker", "npu_memplan.vela.compiler", "npu_memplan.process.setup", "npu_memplan.versions"),
        *("npu_memplan.frontend.host_ops.operator", "npu_memplan.report.page.tables", "npu_memplan.evidence.gather"),
        "npu_memplan.process.programs",  # the system's list of a process's children
        *("npu_memplan.compiled.library", "npu_memplan.compiled.arrays", "fvp_runner.host.instrumented"),
        "fvp_runner.executorch.commands",
        *(f"fvp_runner.firmware_build.{name}" for name in ("project", "sources")),
    }
    reads = re.compile(r"\.read_(text|bytes)\(|(?<![\w.])open\(|path\.open\(|np\.load\((?!file|io)")
    found = {name_of(path) for path in MODULES if reads.search(path.read_text(encoding="utf-8"))}
    found = {name for name in found if not name.startswith("npu_memplan.files.")}
    assert found - own - {"fvp_runner.references.other_formats"} == set()


def test_one_module_starts_programs() -> None:
    """So every one has limits, a group and a folder for its temporary files."""
    started = re.compile(r"subprocess\.(run|Popen|call|check_\w+)\(|os\.(system|popen|spawn\w+|exec\w+)\(")
    found = {name_of(path) for path in MODULES if started.search(path.read_text(encoding="utf-8"))}
    assert found <= {"npu_memplan.process.programs"}


def test_nobody_hides_a_fault() -> None:
    assert hides(ast.parse("try: f()\nexcept (OSError, Exception): pass").body[0].handlers[0])  # type: ignore[attr-defined]
    assert not hides(ast.parse("try: f()\nexcept Exception: raise").body[0].handlers[0])  # type: ignore[attr-defined]
    found = set()
    for path in MODULES:
        tree = parsed(path)
        suppressed = "suppress(Exception" in path.read_text(encoding="utf-8")
        if suppressed or any(isinstance(node, ast.ExceptHandler) and hides(node) for node in ast.walk(tree)):
            found.add(name_of(path))
    assert found <= CATCH_ALL.keys(), found - CATCH_ALL.keys()
