"""How the artifact's C is compiled with the sanitizers' calls in it.

Invariant: the C is the artifact's, unchanged: headers of ours stand before it, which give calls of `<name>_run` their
numbers and check what the C library copies.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npu_memplan.files.folders import scratch_folder
from npu_memplan.files.paths import encode_c, read_c

from ..base import RunnerError, RunnerMissingError
from ..process import read_output

_RUNTIME = Path(__file__).with_name("sanitizer.c")
# No functions of the C library in place of loops: they are not instrumented. Without sections of their own, constants
# have gaps after them.
_COMMON = "-std=c11 -O1 -ffp-contract=off -fno-strict-aliasing -fPIC -fno-builtin -U__ELF__".split()  # noqa: SIM905
_COMMON += ["-fsanitize=kernel-address,undefined,float-cast-overflow"]
# A function for each access; the stack has no poison, as UBSan has the bounds of what is there.
_OPTIONS = ("asan-instrumentation-with-call-threshold=0", "asan-stack=0", "asan-globals=1")
_DIALECTS = (
    tuple(word for option in _OPTIONS for word in ("--param", option)),  # GCC's
    tuple(word for option in _OPTIONS for word in ("-mllvm", f"-{option}")),  # clang's
)
_PROBE = """\
static const int table[3] = {1, 2, 3};
int probe(const int *a, int i);
int probe(const int *a, int i) { return a[i] << table[i]; }
"""
_WANTED = (b"__asan_load4_noabort", b"__asan_register_globals", b"__ubsan_handle_shift_out_of_bounds")
_CHECKED = "#include <string.h>\n" + "".join(
    f"void *npu_memplan_checked_{name}(void *, {second}, size_t);\n#define {name} npu_memplan_checked_{name}\n"
    for name, second in (("memcpy", "const void *"), ("memmove", "const void *"), ("memset", "int"))
)


@dataclass(frozen=True, slots=True)
class Instrumented:
    """Command lines that make object files, and what takes the place of the sources then."""

    lines: tuple[tuple[str, ...], ...]
    inputs: tuple[Path, ...]


@functools.cache
def instrumentation_flags(command: tuple[str, ...]) -> tuple[str, ...]:
    """Options with which the compiler `command` instruments C; `RunnerMissingError` where it cannot."""
    with scratch_folder("host") as folder:
        source, target = folder / "probe.c", folder / "probe.o"
        source.write_text(_PROBE, encoding="utf-8")
        for dialect in _DIALECTS:
            target.unlink(missing_ok=True)
            read_output([*command, *_COMMON, *dialect, "-c", str(source), "-o", str(target)])
            if target.is_file() and all(name in target.read_bytes() for name in _WANTED):
                return (*_COMMON, *dialect)
    raise RunnerMissingError(
        f"the compiler {' '.join(command)} has no -fsanitize=kernel-address,undefined, which --sanitize needs; "
        "set CC to GCC or clang, or leave --sanitize out"
    )


@functools.cache
def _runtime_object(command: tuple[str, ...], plain: tuple[str, ...]) -> bytes:
    """The object file of `sanitizer.c`, which is the same for every artifact: compiled once a process."""
    with scratch_folder("host") as folder:
        target = folder / "sanitizer.o"
        result = read_output([*command, *plain, "-c", str(_RUNTIME), "-o", str(target)], timeout_s=300)
        if result.code != 0:
            raise RunnerError(f"{command[0]} could not compile {_RUNTIME}:\n{result.stopped or result.text}")
        return target.read_bytes()


def instrument_sources(
    command: Sequence[str], name: str, sources: Sequence[Path], folder: Path, plain: Sequence[str]
) -> Instrumented:
    """The artifact's `sources` and users', instrumented into `folder`; `plain`: options of the others."""
    place = sources[0].parent
    checked, numbered, host = folder / "checked.h", folder / "numbered.h", folder / "host.c"
    checked.write_text(_CHECKED, encoding="utf-8")
    numbered.write_bytes(encode_c(_number_calls(read_c(place / f"{name}.c"), name)))
    host.write_bytes(encode_c(_with_files(place / f"{name}_host.c", place)))
    runtime = folder / "sanitizer.o"
    options, lines, inputs = instrumentation_flags(tuple(command)), [], [runtime]
    runtime.write_bytes(_runtime_object(tuple(command), tuple(plain)))
    for number, source in enumerate(sources):
        if source == place / f"{name}_npu.c":
            inputs.append(source)
            continue
        target = folder / f"{number}.o"
        inputs.append(target)
        own = (
            (*plain, "-include", str(numbered))
            if source == place / f"{name}.c"
            else (*options, "-include", str(checked))
        )
        if source == place / f"{name}_cmsis_nn.c":  # a library's: what it reads and writes is checked alone
            own = (*own, "-fno-sanitize=undefined", "-w")
        given = host if source == place / f"{name}_host.c" else source
        lines.append((*command, *own, f"-I{place}", f"-Wa,-I,{place}", "-c", str(given), "-o", str(target)))
    return Instrumented(tuple(lines), tuple(inputs))


def called_steps(main: str, name: str) -> list[tuple[int, str]]:
    """(line, function) of every call in `<name>_run`, in textual order: that of the artifact's calls."""
    entry = re.search(rf"int32_t {name}_run\(", main)
    start = entry.start() if entry else 0
    first = main.count("\n", 0, start) + 1
    found = (re.match(r" +status = (\w+)\(", line) for line in main[start:].splitlines())
    return [(first + number, match[1]) for number, match in enumerate(found) if match is not None]


def _number_calls(main: str, name: str) -> str:
    """The text of `<name>.c` with what precedes `main`: its calls say their numbers before they are made."""
    steps = called_steps(main, name)
    cases = "".join(f"    case {line}: return {number};\n" for number, (line, _) in enumerate(steps))
    macros = "".join(
        f"#define {symbol}(...) "
        f"(npu_memplan_sanitizer_step(npu_memplan_sanitizer_number(__LINE__)), {symbol}(__VA_ARGS__))\n"
        for symbol in dict.fromkeys(symbol for _, symbol in steps)
    )
    return (
        f'#include "{name}.h"\nvoid npu_memplan_sanitizer_step(int32_t step);\n'
        "int32_t npu_memplan_sanitizer_number(int line);\nint32_t npu_memplan_sanitizer_number(int line) {\n"
        f"  switch (line) {{\n{cases}    default: return -1;\n  }}\n}}\n{macros}"
    )


def _with_files(host: Path, folder: Path) -> str:
    """The host's C and a function that returns where the constants are that the assembler includes from files."""
    text = read_c(host) + read_c(folder / f"{host.stem.removesuffix('_host')}.h")
    known = set(re.findall(r"\bextern const \w+ (\w+)\[", text))
    taken = [(path.stem, path.stat().st_size) for path in sorted(folder.glob("*.bin")) if path.stem in known]
    calls = "".join(f'  npu_memplan_sanitizer_constant((uintptr_t){name}, {size}, "{name}");\n' for name, size in taken)
    return (
        f'#include "{host.name}"\n'
        "void npu_memplan_sanitizer_constant(uintptr_t address, uintptr_t bytes, const char *name);\n"
        f"__attribute__((constructor)) static void npu_memplan_sanitizer_constants(void) {{\n{calls}}}\n"
    )
