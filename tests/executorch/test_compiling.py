"""`compile` of a `.pte`: the same program with less memory, its outputs compared; what is written is read again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from fvp_runner.executorch import commands
from fvp_runner.executorch.commands import compile_program
from fvp_runner.executorch.model import ExecutorchModel
from npu_memplan.errors import InternalError
from npu_memplan.models.executorch.delegates import npu_calls
from npu_memplan.models.executorch.program import (
    ExecutorchProgram,
    PlannedPlace,
    ProgramChanges,
    RewriteError,
    read_program,
    rewrite_program,
)
from tests.executorch.test_reading import BLOB, OTHER, two_methods
from tests.executorch.test_running import REFERENCE, ramp
from tests.support.entry import invoke
from tests.support.pte_file import bundle
from tests.support.saving import save

MODELS = Path(__file__).resolve().parents[1] / "models"
U55 = MODELS / "three_convolutions_u55.pte"


def compiled(source: Path, output: Path, *options: str) -> Result:
    return invoke("compile", source, "-o", output, *options, code=None)


def outputs(data: bytes) -> list[float]:
    program = read_program(data)
    found: list[float] = ExecutorchModel(program, program.methods[0]).run([ramp()]).outputs[0].ravel().tolist()
    return found


def test_the_scratch_is_smaller_and_the_outputs_are_those_of_pytorch(tmp_path: Path) -> None:
    out = tmp_path / "planned.pte"
    done = compiled(U55, out, "--objective", "bytes", "--json")
    row = json.loads(done.output)["delegates"][0]
    program = read_program(out.read_bytes())
    assert npu_calls(program)[0].blocks.scratch_bytes == row["scratch_bytes"] == row["bound_bytes"] == 30256
    assert row["scratch_bytes_before"] == 39808
    assert outputs(out.read_bytes()) == list(REFERENCE)
    compile_program(out, tmp_path / "again.pte", objective="bytes")
    assert outputs((tmp_path / "again.pte").read_bytes()) == list(REFERENCE)


@pytest.mark.parametrize("objective", ["auto", "cycles"])
def test_cycles_are_kept(tmp_path: Path, objective: str) -> None:
    document = json.loads(compiled(U55, tmp_path / "o.pte", "--objective", objective, "--json").output)
    row = document["methods"][0]
    assert row["npu_cycles"] <= row["npu_cycles_before"] * (1.01 if objective == "auto" else 1)
    assert outputs((tmp_path / "o.pte").read_bytes()) == list(REFERENCE)


@pytest.mark.parametrize("name", ["three_convolutions_u65", "three_convolutions_u85"])
def test_a_scratch_that_cannot_shrink_stays(tmp_path: Path, name: str) -> None:
    done = compiled(MODELS / f"{name}.pte", tmp_path / "o.pte", "--objective", "bytes")
    assert "no smaller one found" in done.output
    assert outputs((tmp_path / "o.pte").read_bytes()) == list(REFERENCE)


@pytest.mark.parametrize(
    ("deaf", "text"),
    [
        (False, "method 'forward' gives another output once planned"),
        (True, "a kernel of 'forward' writes something else once planned"),  # where the output does not show it
    ],
)
def test_a_wrong_delegate_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deaf: bool, text: str
) -> None:
    """The comparison is what decides: constants that were changed on the way are found."""
    if deaf:
        monkeypatch.setattr(commands, "same_outputs", lambda *_: True)

    def damaged(data: bytes, program: ExecutorchProgram, changes: ProgramChanges) -> bytes:
        made = bytearray(rewrite_program(data, program, changes))
        made[bytes(made).index(b"weight_data") + 33] ^= 0x55  # of the first bias or weights
        return bytes(made)

    monkeypatch.setattr(commands, "rewrite_program", damaged)
    with pytest.raises(InternalError, match=text):
        compile_program(U55, tmp_path / "o.pte", objective="bytes")
    assert not (tmp_path / "o.pte").exists()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--stripes"], "is a .pte, and --stripes is not for those; leave it out"),
        (["--board", "corstone-300"], "is a .pte, and --board is not for those; leave it out"),
    ],
)
def test_options_for_models_are_bad_use(tmp_path: Path, options: list[str], text: str) -> None:
    done = compiled(U55, tmp_path / "o.pte", *options)
    assert text in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_files_are_replaced_with_force_only(tmp_path: Path) -> None:
    out = save(tmp_path / "o.pte", b"mine")
    assert "is there already; give another file with -o, or --force" in str(compiled(U55, out).exception)
    assert out.read_bytes() == b"mine"
    assert compiled(U55, out, "--force").exit_code == 0
    assert "is a folder; give another file" in str(compiled(U55, tmp_path, "--force").exception)


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("new", [b"", b"short", bytes(range(256)) * 3])
def test_delegate_data_of_any_size_is_written(inline: bool, new: bytes) -> None:
    data = two_methods(inline=inline, named={"here": b"inside"})
    program = read_program(data, "p")
    made = read_program(rewrite_program(data, program, ProgramChanges({program.methods[0].delegates[0]: new})), "p")
    before, after = program.methods, made.methods
    assert [bytes(d.data) for d in after[0].delegates] == [new, OTHER]
    assert [bytes(d.data) for d in before[0].delegates] == [BLOB, OTHER]
    assert [m.instructions for m in before] == [m.instructions for m in after]
    assert [m.values for m in before] == [m.values for m in after]
    assert {key: bytes(value) for key, value in made.named_data.items()} == {"here": b"inside"}
    assert all(not d.file_offset % 16 for d in after[0].delegates)


def test_bundles_are_refused(tmp_path: Path) -> None:
    file = save(tmp_path / "b.bpte", bundle(U55.read_bytes()))
    done = compiled(file, tmp_path / "o.pte", "--objective", "bytes")
    assert "is a bundled program; give the .pte file that it was made of" in str(done.exception)
    assert not (tmp_path / "o.pte").exists()


def test_random_inputs_give_the_same(tmp_path: Path) -> None:
    compile_program(U55, tmp_path / "o.pte", objective="bytes")
    old, new = (read_program(path.read_bytes()) for path in (U55, tmp_path / "o.pte"))
    generator = np.random.default_rng(7)
    for _ in range(3):
        values = generator.standard_normal((1, 3, 64, 64)).astype(np.float32)
        ran = [ExecutorchModel(one, one.methods[0]).run([values]).outputs[0] for one in (old, new)]
        assert np.array_equal(*ran)


@pytest.mark.parametrize("inline", [False, True])
def test_tensors_get_other_places(inline: bool) -> None:
    data = two_methods(inline=inline)
    places = {0: PlannedPlace(2, 1 << 33), 1: PlannedPlace(1, 0)}
    changes = ProgramChanges(places={0: places}, planned_bytes={0: {1: 4096, 2: 1 << 35}})
    made = read_program(rewrite_program(data, read_program(data, "p"), changes), "p")
    method = made.methods[0]
    assert {index: method.values[index].place for index in places} == places  # type: ignore[union-attr]
    assert method.planned_bytes == {1: 4096, 2: 1 << 35}
    assert [bytes(d.data) for d in method.delegates] == [BLOB, OTHER]
    assert made.methods[1].planned_bytes == read_program(data, "p").methods[1].planned_bytes


def test_a_tensor_without_planned_memory_gets_none() -> None:
    data = two_methods()
    with pytest.raises(RewriteError, match="value 6 has no planned memory"):
        rewrite_program(data, read_program(data, "p"), ProgramChanges(places={0: {6: PlannedPlace(1, 0)}}))


def test_a_program_without_a_header_is_rewritten() -> None:
    data = two_methods(inline=True, header=False)
    program = read_program(data, "p")
    assert rewrite_program(data, program, ProgramChanges()) == data
    changes = ProgramChanges(
        {program.methods[0].delegates[0]: b"other" * 9}, {0: {0: PlannedPlace(2, 32)}}, {0: {1: 80}}
    )
    made = read_program(rewrite_program(data, program, changes), "p").methods[0]
    assert [bytes(d.data) for d in made.delegates] == [b"other" * 9, OTHER]
    assert made.planned_bytes == {1: 80, 2: program.methods[0].planned_bytes[2]}
