"""`link --npu`: networks of two NPUs of one chip, in one memory."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.files import Application
from npu_memplan.commands.link import _time
from npu_memplan.ethosu.time import MODELS
from npu_memplan.link.joint import choose_npus
from npu_memplan.report.text.compile_result import milliseconds_text
from npu_memplan.target_data import board_names, load_board, targets_folder
from npu_memplan.verify import verify
from tests.link.test_link import CC, MODEL, call, softmax_of_ten
from tests.states.test_variables import running_sum

HP, HE = "alif-e7-hp", "alif-e7-he"


def linked(folder: Path, *options: object, board: str = HP) -> tuple[int, str]:
    """The example, a network with states and a small one."""
    (folder / "sums.tflite").write_bytes(running_sum())
    (folder / "last.tflite").write_bytes(softmax_of_ten())
    models = [MODEL, folder / "sums.tflite", folder / "last.tflite"]
    common = ("--options", f"--effort quick --npu-compiler tvm --board {board}")
    return call("link", *models, *common, *options, "-o", folder / "app")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("npus")
    code, said = linked(folder, "--npu", f"digits=ethos-u55-128,last={HE}", "--together", "digits,sums", "--json")
    assert code == 0, said
    assert {n["name"]: n["npu"] for n in json.loads(said)["networks"]} == {"digits": HE, "sums": HP, "last": HE}
    return folder / "app"


def test_each_network_is_compiled_for_its_npu(app: Path) -> None:
    joint = Artifact.load(app)
    assert verify(joint.problem, joint.plan) == ()
    targets = {n.name: Artifact.load(app / n.name).target for n in Application.load(app).networks}
    assert {n: (t.board, t.accelerator) for n, t in targets.items()} == {
        "digits": (HE, "ethos-u55-128"),
        "sums": (HP, "ethos-u55-256"),
        "last": (HE, "ethos-u55-128"),
    }
    code, said = call("run", app, "--steps", 60, "--json")
    assert code == 0, said
    assert sum(json.loads(said)["runs"].values()) == 60
    assert json.loads(said)["overlapped"] > 5


def test_time_beside_the_other_npu_is_a_range(app: Path) -> None:
    """Alone, and where every byte of the other NPU takes its turn before one of the own."""
    found = {n.name: n.contention for n in Application.load(app).networks}
    assert found["last"] is None  # it runs when no other one does
    for name, other in (("digits", "sums"), ("sums", "digits")):
        contention, own = found[name], Artifact.load(app / name)
        assert contention is not None
        assert own.timing is not None
        by_model = [own.timing.by_model[model.name] for model in MODELS]
        assert contention.least_cycles == min(by_model)
        assert max(by_model) < contention.most_cycles
        assert (contention.others, contention.memories) == ((other,), ("MRAM", "SRAM0"))
    said = str(found["digits"])
    assert said.endswith(" ms while sums uses MRAM and SRAM0 too")


def test_networks_of_one_npu_do_not_wait_for_each_other(tmp_path: Path) -> None:
    code, said = linked(tmp_path, "--together", "digits,sums", "--json")
    assert code == 0, said
    networks = json.loads(said)["networks"]
    assert [n["contention"] for n in networks] == [None, None, None]
    for network, linked_network in zip(networks, Application.load(tmp_path / "app").networks, strict=True):
        every = Artifact.load(tmp_path / "app" / network["name"]).total_milliseconds
        assert [network[f"total_ms{end}"] for end in ("", "_least", "_most")] == [every[0], min(every), max(every)]
        assert _time(linked_network).startswith(f"about {milliseconds_text(every)} (estimated)")


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
def test_each_npu_has_a_library_and_a_context(app: Path, tmp_path: Path) -> None:
    """One program with both libraries: its launch function knows the NPU by the handle of each network."""
    make = (app / "src" / "app.mk").read_text().replace("$(addprefix $(APP_DIR)/,", "").replace("$(APP_DIR)", str(app))
    values = dict(line.split(" := ") for line in make.splitlines() if " := " in line)
    objects: list[str] = []
    for npu in (HP, HE):
        sources = values[f"APP_SOURCES_{npu.upper().replace('-', '_')}"].rstrip(")").split()
        for source in sources if npu == HP else sources[1:]:  # the pools once
            made = tmp_path / f"{len(objects)}.o"
            command = [str(CC), *values["APP_CFLAGS"].split(), "-Wall", "-Werror", "-c", str(app / source)]
            subprocess.run([*command, "-o", str(made)], check=True)
            objects.append(str(made))
    launch = (
        "int32_t npu_memplan_npu_launch(void *context, uint32_t r, const uint32_t *s, uint32_t n,\n"
        "                               const void *const b[], const uint32_t z[], int32_t c) {\n"
        "  (void)s; (void)n; (void)b; (void)z; (void)c; ++*(int *)context; return r == 3u ? 0 : -1;\n}\n"
    )
    main = tmp_path / "main.c"
    main.write_text(
        f'#include "app.h"\n#include "npu_memplan_runtime.h"\nstatic int hp, he;\n{launch}int main(void) {{\n'
        "  digits_npu_context = &he;\n  sums_npu_context = &hp;\n"
        "  if (app_init_alif_e7_hp() || app_init_alif_e7_he()) return 1;\n"
        "  if (digits_run(app_pools) || hp != 0 || he == 0) return 2;\n"
        "  int before = he;\n"
        "  return sums_run(app_pools) || he != before ? 3 : 0;\n}\n"
    )
    command = [str(CC), *values["APP_CFLAGS"].split(), str(main), *objects, "-lm", "-o", str(tmp_path / "a")]
    subprocess.run(command, check=True)
    assert subprocess.run([str(tmp_path / "a")], check=False).returncode == 0
    cmake = (app / "src" / "app.cmake").read_text()
    assert cmake.count("add_library(npu_memplan_app_alif_e7_h") == 2


TIMES = {"a": {"fast": 3.0, "slow": 9.0}, "b": {"fast": 2.0, "slow": 4.0}, "c": {"fast": 1.0, "slow": 2.0}}


@pytest.mark.parametrize(
    ("together", "slow"),
    [
        ([], ""),  # one after the other: each where it is fastest
        ([("a", "b")], "b"),  # 3 and 4 beside each other, in place of 5
        ([("b", "c")], "c"),
        ([("b", "a"), ("b", "c")], "b"),  # fast: 3 + 1, slow: 4
    ],
)
def test_networks_that_run_together_end_first_on_two_npus(together: list[tuple[str, str]], slow: str) -> None:
    assert choose_npus(TIMES, together) == {n: "slow" if n == slow else "fast" for n in TIMES}


def test_many_networks_are_spread_over_the_npus() -> None:
    times = {f"n{i}": {"fast": 1.0 + i % 3, "slow": 2.0 + i % 3} for i in range(30)}
    together = [(one, other) for one in times for other in times if one < other]
    npus = choose_npus(times, together)
    loads = {npu: sum(times[n][npu] for n in times if npus[n] == npu) for npu in ("fast", "slow")}
    assert max(loads.values()) < 0.65 * sum(of["fast"] for of in times.values())


def test_auto_puts_networks_that_overlap_on_two_npus(tmp_path: Path) -> None:
    second = tmp_path / "second.tflite"
    shutil.copy(MODEL, second)
    common = ("--options", f"--effort quick --npu-compiler tvm --board {HP}", "--json", "-o", tmp_path / "app")
    code, said = call(
        "link", MODEL, second, "--npu", "auto", "--rate", "digits=9", "--together", "digits,second", *common
    )
    assert code == 0, said
    assert {n["name"]: n["npu"] for n in json.loads(said)["networks"]} == {"digits": HP, "second": HE}


def test_an_artifact_says_its_npu(tmp_path: Path) -> None:
    code, said = call("compile", MODEL, "--effort", "quick", "--board", HE, "-o", tmp_path / "digits")
    assert code == 0, said
    (tmp_path / "sums.tflite").write_bytes(running_sum())
    models, common = (tmp_path / "sums.tflite", tmp_path / "digits"), ("--options", f"--effort quick --board {HP}")
    code, said = call("link", *models, *common, "--npu", "digits=ethos-u55-256", "-o", tmp_path / "app")
    assert code != 0
    assert f"is compiled for {HE}" in " ".join(said.split())
    code, said = call("link", *models, *common, "-o", tmp_path / "app")
    assert code == 0, said
    assert {n.name: n.npu for n in Application.load(tmp_path / "app").networks} == {"sums": HP, "digits": HE}
    assert call("run", tmp_path / "app", "--steps", 20)[0] == 0


@pytest.mark.parametrize(
    ("board", "npu", "words"),
    [
        (HP, "digits=ethos-u85-256", f"names none of the NPUs there are: {HP} (ethos-u55-256), {HE} (ethos-u55-128)"),
        (HP, "other=ethos-u55-128", "'other' is none of the networks"),
        (HP, "digits", "neither auto nor NAME=NPU"),
        ("himax-we2", "auto", "there is one"),
    ],
)
def test_npus_that_there_are_not(tmp_path: Path, board: str, npu: str, words: str) -> None:
    code, said = linked(tmp_path, "--npu", npu, board=board)
    assert code != 0
    assert words in " ".join(said.replace("│", " ").split())
    assert not (tmp_path / "app").exists()


def test_npus_with_pools_in_different_memories_are_refused(tmp_path: Path) -> None:
    """Of the user's own board files, one of which names the other."""
    for name in (HP, HE):
        text = (targets_folder() / "boards" / f"{name}.toml").read_text()
        text = text.replace(f'beside = ["{HE}"]', f'beside = ["{HE}.toml"]')
        (tmp_path / f"{name}.toml").write_text(text.replace('["SRAM0", "SRAM1"]', '["SRAM6"]') if name == HE else text)
    code, said = linked(tmp_path, "--npu", "digits=ethos-u55-128", board=str(tmp_path / f"{HP}.toml"))
    assert code != 0
    assert "in different memories" in " ".join(said.split())


def test_boards_beside_each_other_name_each_other() -> None:
    for name in board_names():
        for other in load_board(name).other_boards():
            assert name in other.beside
