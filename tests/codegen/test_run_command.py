"""`npu-memplan run`: exit codes, what it prints, what it refuses."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from fvp_runner.references.interpreters import Reference
from npu_memplan.artifact import Artifact
from tests.support.entry import exit_code
from tests.support.needs import need_runner


@pytest.fixture
def run(monkeypatch, capfd):
    """`run(*arguments)` -> (exit code, stdout, stderr), through the real entry point."""

    def call(*arguments):
        monkeypatch.setenv("COLUMNS", "100")
        capfd.readouterr()
        code = exit_code(monkeypatch, "run", *arguments)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def test_right_is_zero_and_says_so(run, digits, example):
    code, out, _ = run(digits(), "--on", "local", "--input", "random:7", "--reference", example)
    assert code == 0
    assert out.splitlines()[0] == "against tflite-micro: bit-exact"
    assert "runner local (" in out
    assert "estimated NPU cycles" in out


def test_json(run, digits, example):
    code, out, _ = run(digits("SOFTMAX"), "--on", "local", "--reference", example, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["runner"] == "local"
    assert document["bit_exact"] is True
    (output,) = document["outputs"]
    assert set(output) == {"name", "elements", "mismatches", "max_abs_diff"}
    assert (output["elements"], output["mismatches"], output["max_abs_diff"]) == (10, 0, 0)
    assert document["npu_cycles_are_estimates"] is True
    assert document["reference"] == "tflite-micro"


def test_without_a_reference_nothing_is_claimed(run, digits):
    code, out, _ = run(digits(), "--on", "local")
    assert code == 0
    assert out.splitlines()[0] == "not compared with any reference: give --reference MODEL.tflite"
    assert "bit-exact" not in out
    document = json.loads(run(digits(), "--on", "local", "--json")[1])
    assert document["bit_exact"] is None
    assert document["outputs"][0]["mismatches"] is None


def test_wrong_is_one(run, digits, example, tmp_path):
    folder = tmp_path / "wrong"
    shutil.copytree(digits("SOFTMAX"), folder)
    source = folder / "src" / "digits_host.c"
    text = source.read_text()
    flip = "pools[DIGITS_OUTPUT_0_POOL][DIGITS_OUTPUT_0_OFFSET] ^= 1;"
    source.write_text(text.replace("  return 0;", f"  {flip}\n  return 0;"))
    code, out, _ = run(folder, "--on", "local", "--input", "random:1", "--reference", example)
    assert code == 1
    assert out.splitlines()[0] == "against tflite-micro: NOT bit-exact"
    code, out, _ = run(folder, "--on", "local", "--input", "random:1", "--reference", example, "--json")
    assert code == 1
    assert json.loads(out)["bit_exact"] is False
    assert json.loads(out)["outputs"][0]["mismatches"] == 1
    assert json.loads(out)["outputs"][0]["max_abs_diff"] == 1
    code, out, _ = run(folder, "--on", "local", "--input", "random:1", "--reference", example, "--tolerance", "1")
    assert code == 0
    assert out.splitlines()[0] == "against tflite-micro: NOT bit-exact, within the tolerance of 1"
    arguments = ("--input", "random:1", "--reference", example, "--tolerance", "0.5")
    code, out, _ = run(folder, "--on", "local", *arguments)
    assert code == 1
    assert out.splitlines()[0] == "against tflite-micro: NOT bit-exact, not within the tolerance of 0.5"
    code, out, _ = run(folder, "--on", "local", *arguments, "--json")
    document = json.loads(out)
    assert (code, document["bit_exact"], document["tolerance"], document["within_tolerance"]) == (1, False, 0.5, False)


def test_a_complaint_of_the_checks_is_one(run, digits, example, tmp_path):
    folder = tmp_path / "skipped"
    shutil.copytree(digits("SOFTMAX"), folder)
    source = folder / "src" / "digits.c"
    text = source.read_text()
    first = text.index("  status = ", text.index("status = 0"))
    source.write_text(text[:first] + text[text.index("  status = ", first + 5) :])  # the NPU's step is left out
    code, out, err = run(folder, "--on", "local", "--reference", example)
    assert code == 1
    assert "NOT bit-exact: the run was stopped by a check" in out
    code, out, err = run(folder, "--on", "local", "--reference", example, "--json")
    assert code == 1
    assert json.loads(out)["bit_exact"] is False
    assert json.loads(out)["error"] in err


def test_files_in_and_out(run, digits, example, tmp_path):
    (slot,) = Artifact.load(digits()).inputs
    values = np.random.default_rng(1).integers(-128, 128, slot.shape).astype(slot.dtype)
    np.save(tmp_path / "in.npy", values)
    code, _, _ = run(digits(), "--on", "local", "--input", tmp_path / "in.npy", "--output", tmp_path / "out.npy")
    assert code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), Reference(example.read_bytes()).run([values])[0])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "out.npy"]


def test_a_reference_of_another_file_is_noted(run, digits, example, tmp_path):
    other = tmp_path / "other.tflite"
    other.write_bytes(example.read_bytes() + b"\0" * 16)
    code, _, err = run(digits(), "--on", "local", "--reference", other)
    assert code == 0
    assert "note: other.tflite is not the file that digits was compiled from" in err


def test_no_checks_and_timeout(run, digits, example):
    assert run(digits(), "--on", "local", "--no-checks", "--reference", example)[0] == 0
    code, _, err = run(digits(), "--on", "local", "--timeout", "1e-9")
    assert code == 2
    assert "took longer than 1e-09 s" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--input", "random:x"],
            "--input random:x: the seed must be a whole number >= 0 of up to 18 digits, as in random:7",
        ),
        (["--input", "random:1", "--input", "random:2"], "digits has 1 input (input), --input was given 2 times"),
        (["--input", "nowhere.npy"], "cannot read input nowhere.npy: No such file or directory"),
        (["--output", "a.npy", "--output", "b.npy"], "--output was given 2 times"),
        (
            ["--output", "nowhere/a.npy"],
            "cannot write nowhere/a.npy: No such file or directory; choose another place for it",
        ),
        (["--reference", "nowhere.tflite"], "cannot read the reference nowhere.tflite: No such file or directory"),
        (["--tolerance", "1"], "--tolerance is how far outputs may be from a reference; give --reference MODEL too"),
        (["--on", "moon"], "'moon' is not one of"),
        (["--timeout", "0"], "0.0 is not in the range 0<x<="),
        (
            ["--interrupt"],
            "--interrupt is for firmware, and the local runner has none; choose --on qemu, unicorn or fvp",
        ),
        (["--cycles"], "--cycles is for Arm's FVP, and the runner here is local; the FVP cannot run: "),
        (["--fvp-path", "nowhere"], "--fvp-path is for Arm's FVP, and the runner here is local; the FVP cannot run: "),
        (["--fvp-path", "nowhere"], " is not under nowhere; download it from "),
    ],
)
def test_bad_use_is_two(run, digits, arguments, message):
    given = arguments if "--on" in arguments else ["--on", "local", *arguments]
    code, _, err = run(digits(), *given)
    assert code == 2
    assert message.replace("(input)", f"({Artifact.load(digits()).inputs[0].name})") in err


def test_inputs_of_another_shape_or_no_npy_are_two(run, digits, tmp_path):
    np.save(tmp_path / "small.npy", np.zeros((1, 2), np.int8))
    (tmp_path / "text.npy").write_text("hello")
    code, _, err = run(digits(), "--on", "local", "--input", tmp_path / "small.npy")
    assert code == 2
    assert "small.npy holds int8[1, 2], but input" in err
    code, _, err = run(digits(), "--on", "local", "--input", tmp_path / "text.npy")
    assert code == 2
    assert "cannot read input" in err


def test_what_is_no_array_is_reported_in_our_words(run, digits, tmp_path):
    (slot,) = Artifact.load(digits()).inputs
    (tmp_path / "README.md").write_text("# hello")
    np.save(tmp_path / "objects.npy", np.array([{}, None], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "many.npz", a=np.zeros(3))
    np.save(tmp_path / "short.npy", np.zeros(slot.shape, slot.dtype))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-5])
    for name, words in {
        "README.md": "it is no .npy file",
        "objects.npy": "it is damaged, or no array of numbers",
        "short.npy": "it is damaged, or no array of numbers",
        "many.npz": "it is an archive of arrays",
    }.items():
        code, _, err = run(digits(), "--on", "local", "--input", tmp_path / name)
        assert code == 2
        assert err.startswith(f"npu-memplan: cannot read input {tmp_path / name}: {words}; save ")
        assert "pickle" not in err


def test_no_seed_is_seed_0(run, digits, tmp_path):
    for number, given in enumerate(("random", "random:", "random:0")):
        assert run(digits(), "--on", "local", "--input", given, "--output", tmp_path / f"{number}.npy")[0] == 0
    assert len({(tmp_path / f"{number}.npy").read_bytes() for number in range(3)}) == 1
    for seed in ("²", "9" * 5000, "-1"):
        code, _, err = run(digits(), "--on", "local", "--input", f"random:{seed}")
        assert code == 2
        assert "the seed must be a whole number >= 0" in err


def test_options_reach_the_firmware(run, digits, example, monkeypatch):
    need_runner("unicorn")
    code, out, err = run(digits(), "--on", "unicorn", "--interrupt", "--reference", example)
    assert (code, out.splitlines()[0]) == (0, "against tflite-micro: bit-exact")
    assert any("-irq" in p.name for p in (digits() / "firmware").iterdir()), "its own build"
    monkeypatch.setenv("FVP_PATH", "nowhere")
    code, _, err = run(digits(), "--on", "fvp", "--cycles")
    assert code == 2
    assert "runner 'fvp' cannot run here: FVP_Corstone_SSE-300_Ethos-U55 is not under nowhere" in err
