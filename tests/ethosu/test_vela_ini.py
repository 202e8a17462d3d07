"""A vela.ini of the user's own: sections that inherit, and files that change."""

from __future__ import annotations

from pathlib import Path

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.time import SystemDataError, load_system
from npu_memplan.vela.worker import VelaError, VelaOptions, resolve_configuration

_SYSTEM = """[System_Config.Mine]
core_clock={clock}
axi0_port=Sram
axi1_port=OffChipFlash
Sram_clock_scale=1.0
OffChipFlash_clock_scale=0.125
"""


def test_sections_that_inherit_each_other_are_an_error(tmp_path: Path) -> None:
    ini = tmp_path / "vela.ini"
    ini.write_text("[System_Config.A]\ninherit=System_Config.B\n[System_Config.B]\ninherit=System_Config.A\n")
    with pytest.raises(SystemDataError, match=r"\[System_Config.A\] inherits 'System_Config.A', which inherits it"):
        load_system("A", ini)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[Memory_Mode.A]\ninherit=Memory_Mode.B\n[Memory_Mode.B]\ninherit=Memory_Mode.A\n", "which inherits it"),
        ("[Memory_Mode.A]\ninherit=Memory_Mode.None\n", "inherits 'Memory_Mode.None', which the file does not have"),
    ],
)
def test_memory_modes_that_inherit_nothing_good(tmp_path: Path, text: str, message: str) -> None:
    ini = tmp_path / "vela.ini"
    ini.write_text(text)
    with pytest.raises(VelaError, match=message):
        resolve_configuration(accelerator("ethos-u55-256"), VelaOptions(memory_mode="A", ini=str(ini)))


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    ini = tmp_path / "vela.ini"
    for clock in (100e6, 200e6):
        ini.write_text(_SYSTEM.format(clock=clock))
        assert load_system("Mine", ini).clock_hz == clock
