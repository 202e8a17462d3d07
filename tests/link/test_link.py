"""`link`: several networks in one memory, each with the results that it has alone, in every order of runs."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.files import Application
from npu_memplan.problem import BufferKind
from npu_memplan.verify import Constraint, verify
from tests.states.test_variables import assigned_early, running_sum
from tests.support.entry import invoke
from tests.support.tflite_builder import TensorSpec, single_operator
from tests.support.warnings_of_c import check_warnings

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
CC = shutil.which("cc") or shutil.which("gcc")


def call(*arguments: object) -> tuple[int, str]:
    made = invoke(*arguments, code=None)
    return made.exit_code, made.output if made.exception is None or made.output else repr(made.exception)


def linked(folder: Path, *options: object) -> Path:
    """Two networks with states and one without, linked into `folder`/app."""
    (folder / "sums.tflite").write_bytes(running_sum())
    (folder / "last.tflite").write_bytes(assigned_early())
    models = [folder / "sums.tflite", MODEL, folder / "last.tflite"]
    common = ("--options", "--effort quick --npu-compiler tvm")
    code, said = call("link", *models, *common, *options, "-o", folder / "app")
    assert code == 0, said
    return folder / "app"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return linked(tmp_path_factory.mktemp("app"), "--pool", "sram=40KiB", "--resident", "auto", "--rate", "digits=5")


def test_two_hundred_runs_in_a_random_order_equal_those_alone(app: Path) -> None:
    code, said = call("run", app, "--steps", 200, "--input", "random:7", "--json")
    assert code == 0, said
    runs = json.loads(said)["runs"]
    assert sum(runs.values()) == 200
    assert set(runs) == {"sums", "digits", "last"}


def test_networks_share_what_they_do_not_keep(app: Path) -> None:
    joint, application = Artifact.load(app), Application.load(app)
    assert verify(joint.problem, joint.plan) == ()
    assert [network.name for network in application.networks] == ["sums", "digits", "last"]
    assert joint.resident_bytes > 0
    kept = sum(network.kept_bytes for network in application.networks)
    used, alone = joint.pool_bytes("sram"), [network.alone_bytes["sram"] for network in application.networks]
    assert max(alone) <= used <= 40 * 1024
    assert used - kept < sum(alone)
    for network in application.networks:
        own = Artifact.load(app / network.name)
        assert own.pool_bytes("sram") <= used
        for placement in own.plan.placements:
            assert joint.plan.placement(f"{network.name}/{placement.buffer}").offset_bytes == placement.offset_bytes


def test_the_verifier_finds_an_overlap_with_what_is_kept(app: Path) -> None:
    joint = Artifact.load(app)
    state = next(b for b in joint.problem.buffers if b.kind is BufferKind.STATE)
    other = next(b for b in joint.problem.buffers if b.name.startswith("digits/") and b.kind is BufferKind.NPU_INTERNAL)
    at = joint.plan.placement(state.name).offset_bytes
    moved = [replace(p, offset_bytes=at) if p.buffer == other.name else p for p in joint.plan.placements]
    found = verify(joint.problem, replace(joint.plan, placements=tuple(moved)))
    assert (Constraint.OVERLAP, {state.name, other.name}) in [(v.constraint, {v.buffer, v.other}) for v in found]


def test_a_changed_plan_is_not_run(app: Path, tmp_path: Path) -> None:
    for name in (".", "digits"):
        broken = tmp_path / f"broken{len(name)}"
        shutil.copytree(app, broken)
        text = json.loads((broken / name / "plan.json").read_text())
        buffers = text["buffers"]
        first = next(
            b for b in buffers if b["kind"] == "npu_internal" and "digits" in (b["name"] if name == "." else "digits")
        )
        state = next(b for b in buffers if b["kind"] in ("state", "resident"))
        first["offset_bytes"] = state["offset_bytes"]
        (broken / name / "plan.json").write_text(json.dumps(text))
        code, said = call("run", broken, "--steps", 5)
        assert code != 0, said
        assert "violates" in said or "does not lie where" in said


def test_a_network_that_overwrites_another_ones_state_is_found(app: Path, tmp_path: Path) -> None:
    """The C of a network is moved by hand: the run, not the verifier, has to see it."""
    broken = tmp_path / "broken"
    shutil.copytree(app, broken)
    source = broken / "digits" / "src" / "digits.c"
    text = source.read_text()
    body = text.index("int32_t digits_run(")
    line = text.index("  int32_t status = 0;", body)
    joint = Artifact.load(app)
    state = next(b for b in joint.problem.buffers if b.kind is BufferKind.STATE)
    at = joint.plan.placement(state.name).offset_bytes
    source.write_text(f"{text[:line]}  pools[0][{at}] ^= 0x55;\n{text[line:]}")
    code, said = call("run", broken, "--steps", 40)
    assert code == 1, said
    assert "differ from those of" in said


def test_networks_that_run_together_share_nothing(tmp_path: Path) -> None:
    app = linked(tmp_path, "--together", "sums,digits")
    joint = Artifact.load(app)

    def spans(network: str) -> list[tuple[int, int]]:
        placed = [p for p in joint.plan.placements if p.buffer.startswith(f"{network}/")]
        return [(p.offset_bytes, p.offset_bytes + joint.problem.buffer(p.buffer).size_bytes) for p in placed]

    assert all(a >= d or c >= b for a, b in spans("sums") for c, d in spans("digits"))
    assert any(a < d and c < b for a, b in spans("last") for c, d in spans("digits"))
    assert verify(joint.problem, joint.plan) == ()
    code, said = call("run", app, "--steps", 60, "--json")
    assert code == 0, said
    assert json.loads(said)["overlapped"] > 5
    assert sum(json.loads(said)["runs"].values()) == 60


def test_a_network_that_overwrites_one_that_runs_meanwhile_is_found(tmp_path: Path) -> None:
    """Bytes that matter only while both run: runs one after the other do not show it."""
    app = linked(tmp_path, "--together", "sums,digits")
    joint = Artifact.load(app)
    fed = next(b for b in joint.problem.buffers if b.name.startswith("digits/") and b.kind is BufferKind.INPUT)
    at = joint.plan.placement(fed.name).offset_bytes
    source = app / "sums" / "src" / "sums.c"
    text = source.read_text()
    line = text.index("  int32_t status = 0;", text.index("int32_t sums_run("))
    damage = f"  for (int i = 0; i < {fed.size_bytes}; ++i) pools[0][{at} + i] ^= 0x55;"
    source.write_text(f"{text[:line]}{damage}\n{text[line:]}")
    code, said = call("run", app, "--steps", 60)
    assert code == 1, said
    assert "of digits, with sums during it" in " ".join(said.split())


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_the_sources_are_one_library(app: Path, tmp_path: Path) -> None:
    main = tmp_path / "main.c"
    main.write_text(
        '#include "app.h"\n#include "npu_memplan_runtime.h"\n'
        "int32_t npu_memplan_npu_launch(void *h, uint32_t r, const uint32_t *s, uint32_t n, const void *const b[],\n"
        "                               const uint32_t z[], int32_t c) {\n"
        "  (void)h; (void)r; (void)s; (void)n; (void)b; (void)z; (void)c; return 0; }\n"
        "int main(void) { return app_init() || sums_run(app_pools) || digits_run(app_pools) || last_run(app_pools); }\n"
    )
    make = (app / "src" / "app.mk").read_text().replace("$(addprefix $(APP_DIR)/,", "").replace("$(APP_DIR)", str(app))
    values = dict(line.split(" := ") for line in make.splitlines() if " := " in line)
    sources = [str(app / file) for file in values["APP_SOURCES"].rstrip(")").split()]
    includes = [flag for flag in values["APP_CFLAGS"].split() if flag.startswith("-I")]
    check_warnings([Path(source) for source in sources], *includes)
    command = [
        CC,
        *values["APP_CFLAGS"].split(),
        "-Wall",
        "-Werror",
        *sources,
        str(main),
        "-lm",
        "-o",
        str(tmp_path / "a"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([str(tmp_path / "a")], check=False).returncode == 0


@pytest.mark.parametrize(
    ("names", "output", "words"),
    [
        (("sums", "SUMS"), "app", "SUMS.tflite would both be called SUMS in C"),
        (("a/*b", "a??b"), "app", "would both be called a__b in C"),
        (("src", "sums"), "app", "as the folder of the application's C"),
        (("sums", "last"), "Sums", "application and network would both be called Sums in C"),
    ],
)
def test_names_that_are_one_in_c_are_refused(names: tuple[str, str], output: str, words: str, tmp_path: Path) -> None:
    models = [tmp_path / f"{name.replace('/', '-')}.tflite" for name in names]
    for model in models:
        model.write_bytes(running_sum())
    code, said = call("link", *models, "--options", "--effort quick --npu-compiler tvm", "-o", tmp_path / output)
    assert code != 0
    assert words in " ".join(said.split())
    assert not (tmp_path / output).exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--together", "digits,other"), "'other' is none of the networks"),
        (("--together", "digits"), "at least two networks"),
        (("--rate", "digits=often"), "NAME=NUMBER"),
        (("--rate", "digits=0"), "not above 0"),
        (("--pool", "sram=2KiB"), "does not fit"),
        (("--resident", "auto"), "--resident"),
        (("--options", "--name x"), "leave them out"),
    ],
)
def test_what_cannot_be_linked_is_reported(
    tmp_path: Path, options: tuple[str, ...], words: str, capfd, monkeypatch
) -> None:
    from tests.support.entry import exit_code

    code = exit_code(monkeypatch, "link", MODEL, *options, "-o", tmp_path / "app")
    assert code == 2
    assert words in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "app").exists()


def test_linked_networks_are_given_by_themselves(tmp_path: Path, monkeypatch, capfd) -> None:
    from tests.support.entry import exit_code

    code, said = call("link", MODEL, "--options", "--effort quick", "--no-check", "-o", tmp_path / "app")
    assert code == 0, said
    assert "bytes; " in next(line for line in said.splitlines() if "note: selected: " in line)
    assert "by how memories are shared" not in said
    assert exit_code(monkeypatch, "link", tmp_path / "app", "-o", tmp_path / "again") == 2
    words = f"has linked networks; give them by themselves: {tmp_path / 'app' / 'digits'}"
    assert words in " ".join(capfd.readouterr().err.split())


def test_networks_that_fill_the_pool_alone_are_made_smaller(tmp_path: Path) -> None:
    second = tmp_path / "second.tflite"
    shutil.copy(MODEL, second)
    options = ("--together", "second,digits", "--options", "--effort quick", "--pool", "sram=14KiB", "--json")
    code, said = call("link", second, MODEL, *options, "-o", tmp_path / "app")
    assert code == 0, said
    (pool,) = json.loads(said)["pools"]
    assert 7 * 1024 < pool["used_bytes"] <= 14 * 1024
    assert call("run", tmp_path / "app", "--steps", 4)[0] == 0


def softmax_of_ten() -> bytes:
    """A network that reads what digits gives."""
    x, y = TensorSpec((1, 10), "int8", 1 / 256, -128, name="x"), TensorSpec((1, 10), "int8", 1 / 256, -128)
    return single_operator("SOFTMAX", [x], [y], "SoftmaxOptions", 2, Beta=1.0).finish()


def chained(folder: Path, *options: object) -> tuple[int, str]:
    """The example, a network that is given its output, and one that is not."""
    (folder / "after.tflite").write_bytes(softmax_of_ten())
    (folder / "sums.tflite").write_bytes(running_sum())
    models = [MODEL, folder / "after.tflite", folder / "sums.tflite"]
    return call("link", *models, "--options", "--effort quick --npu-compiler tvm", *options, "-o", folder / "app")


def test_an_output_is_another_networks_input(tmp_path: Path) -> None:
    code, said = chained(tmp_path, "--connect", "digits:probabilities=after:x")
    assert code == 0, said
    joint, ((output, given),) = Artifact.load(tmp_path / "app"), Application.load(tmp_path / "app").connected
    at = joint.plan.placement(output)
    assert (at.pool, at.offset_bytes) == (joint.plan.placement(given).pool, joint.plan.placement(given).offset_bytes)
    for other in joint.plan.placements:  # nothing else is there, whichever network runs
        size = joint.problem.buffer(other.buffer).size_bytes
        apart = other.offset_bytes >= at.offset_bytes + 10 or other.offset_bytes + size <= at.offset_bytes
        assert apart or other.buffer in (output, given)
    assert verify(joint.problem, joint.plan) == ()
    code, said = call("run", tmp_path / "app", "--steps", 60)
    assert code == 0, said
    source = tmp_path / "app" / "after" / "src" / "after.c"
    text = source.read_text()
    start = text.index("int32_t after_run(")
    last = text.rindex("  return status;", start, text.index("\n}\n", start))
    source.write_text(f"{text[:last]}  pools[0][{at.offset_bytes}] ^= 0x55;\n{text[last:]}")
    code, said = call("run", tmp_path / "app", "--steps", 60)
    assert code == 1, said
    assert "has not the bytes" in " ".join(said.split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--connect", "digits:probabilities=sums:t0"), "both must be one"),
        (("--connect", "digits:scores=after:x"), "has no output 'scores' to connect; it has: probabilities"),
        (("--connect", "digits:probabilities=later:x"), "none of the networks"),
        (("--connect", "digits=after"), "NETWORK:OUTPUT=NETWORK:INPUT"),
        (("--connect", "digits:probabilities=after:x", "--together", "digits,after"), "may run together"),
    ],
)
def test_outputs_that_cannot_be_connections(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    code, said = chained(tmp_path, *options)
    assert code != 0
    assert words in " ".join(said.replace("│", " ").split())


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, compiled with resident constants."""
    out = tmp_path_factory.mktemp("artifact") / "digits"
    code, said = call("compile", MODEL, "--effort", "quick", "--resident", "8KiB", "-o", out)
    assert code == 0, said
    return out


def test_an_artifact_is_linked_as_it_is(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "sums.tflite").write_bytes(running_sum())
    code, said = call("link", tmp_path / "sums.tflite", artifact, "-o", tmp_path / "app")
    assert code == 0, said
    joint, own = Artifact.load(tmp_path / "app"), Artifact.load(artifact)
    assert {p.name: p.read_bytes() for p in (tmp_path / "app" / "digits" / "src").iterdir()} == {
        p.name: p.read_bytes() for p in (artifact / "src").iterdir()
    }
    assert own.resident_bytes == joint.resident_bytes > 0
    for placement in own.plan.placements:
        assert joint.plan.placement(f"digits/{placement.buffer}").offset_bytes == placement.offset_bytes
    used = joint.pool_bytes("sram")
    assert own.pool_bytes("sram") <= used < own.pool_bytes("sram") + 4096
    code, said = call("run", tmp_path / "app", "--steps", 100)
    assert code == 0, said


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (True, (), "these cannot"),
        (False, ("--options", "--accelerator ethos-u55-64"), "the application is for ethos-u55-64"),
        (False, ("--pool", "sram=4KiB"), "of pool sram, which has 4,096"),
    ],
)
def test_artifacts_that_cannot_be_linked_are_named(
    artifact: Path, tmp_path: Path, change: bool, options: tuple[str, ...], words: str
) -> None:
    """A second artifact whose resident constants lie where the first one's do; another NPU; no room."""
    folders = [artifact]
    if change:
        shutil.copy(MODEL, tmp_path / "second.tflite")
        folders.append(tmp_path / "second")
        made = ("--effort", "quick", "--no-check", "--resident", "8KiB", "-o", tmp_path / "second")
        assert call("compile", tmp_path / "second.tflite", *made)[0] == 0
    code, said = call("link", *folders, *options, "-o", tmp_path / "app")
    assert code != 0
    assert words in " ".join(said.split())
    assert not (tmp_path / "app").exists()
