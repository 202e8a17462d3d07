"""Output directories are complete or absent."""

from pathlib import Path

import pytest

from npu_memplan.staging import OutputError, staged_directory


def test_success_moves_everything_at_once(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with staged_directory(target) as staging:
        (staging / "a.txt").write_text("a")
        assert not target.exists()
    assert [p.name for p in target.iterdir()] == ["a.txt"]
    assert [p.name for p in target.parent.iterdir()] == ["out"]


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail_halfway() -> None:
        with staged_directory(tmp_path / "out") as staging:
            (staging / "half.txt").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert list(tmp_path.iterdir()) == []


def test_a_full_directory_needs_force_and_survives_failure(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "old.txt").write_text("old")
    (target / "plan.json").write_text("{}")
    with pytest.raises(OutputError) as error, staged_directory(target):
        pass
    assert str(error.value) == (f"{target} has a compiled model; give --force to replace it, or another one with -o")
    with pytest.raises(ZeroDivisionError), staged_directory(target, force=True):
        raise ZeroDivisionError
    assert (target / "old.txt").read_text() == "old"
    with staged_directory(target, force=True) as staging:
        (staging / "new.txt").write_text("new")
    assert [p.name for p in target.iterdir()] == ["new.txt"]


def test_no_force_replaces_what_is_no_compiled_model(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("five years")
    for force in (False, True):
        with pytest.raises(OutputError) as error, staged_directory(tmp_path, force):
            pass
        assert str(error.value) == (
            f"{tmp_path} is not empty and has no plan.json: nothing was compiled into it, and it is never replaced; "
            "choose another directory with -o"
        )
    assert (tmp_path / "thesis.txt").read_text() == "five years"


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("mine")
    with pytest.raises(OutputError) as error, staged_directory(target, force=True):
        pass
    assert str(error.value) == f"{target} exists and is a file; choose another output directory with -o"
    assert target.read_text() == "mine"
