"""The load/store decoder against a real CPU model: every form is executed in Unicorn too."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from fvp_runner.emulators.trap import DecodeError, decode_access, instruction_length, next_it_state

BASE, SIZE, CODE, MIDDLE = 0x20000000, 0x4000, 0x1000, 0x20002000

FORMS = """
ldr r1, [r2, #4] | ldr r1, [r2, #124] | str r1, [r2, #64] | ldrb r3, [r4, #31] | strb r3, [r4, #1]
ldrh r5, [r6, #62] | strh r5, [r6, #2] | ldr r1, [sp, #16] | str r1, [sp, #1020]
ldr r0, [r1, r2] | str r0, [r1, r2] | ldrb r0, [r1, r2] | strb r0, [r1, r2] | ldrh r0, [r1, r2] | strh r0, [r1, r2]
ldrsb r0, [r1, r2] | ldrsh r0, [r1, r2]
ldm r1!, {r0, r2, r3} | ldm r1, {r0, r1, r2} | stm r1!, {r0, r2, r7}
ldr.w r8, [r9, #0x123] | str.w r8, [r9, #0xffc] | ldrb.w r8, [r9, #7] | strb.w r10, [r9, #3]
ldrh.w r8, [r9, #6] | strh.w r8, [r9, #0x200] | ldrsb.w r8, [r9, #0x11] | ldrsh.w r8, [r9, #0x12]
ldr.w r8, [r9, #-4] | str.w r8, [r9, #-255] | ldrsb.w r3, [r9, #-17] | ldrsh.w r3, [r9, #-2]
ldr r8, [r9, #8]! | ldr r8, [r9], #8 | str r8, [r9, #-8]! | str r8, [r9], #-8
ldrb r8, [r9], #1 | strb r8, [r9], #1 | ldrh r8, [r9, #2]! | strh r8, [r9], #2
ldrsb r8, [r9], #1 | ldrsh r8, [r9, #-2]!
ldr.w r8, [r9, r2, lsl #2] | str.w r8, [r9, r2, lsl #3] | ldrb.w r8, [r9, r2] | strh.w r8, [r9, r2, lsl #1]
ldrsb.w r8, [r9, r2, lsl #1] | ldrsh.w r8, [r9, r2, lsl #1]
ldrd r0, r1, [r9, #8] | strd r0, r1, [r9, #-8] | ldrd r0, r1, [r9], #16 | strd r0, r1, [r9, #16]! | ldrd r10, r11, [r9]
ldmia.w r9!, {r0, r1, r8} | ldmdb r9!, {r0, r1, r8} | stmia.w r9, {r1, r8} | stmdb r9!, {r1, r8, r10}
lda r0, [r9] | ldab r0, [r9] | ldah r0, [r9] | stl r0, [r9] | stlb r0, [r9] | stlh r0, [r9]
ldrt r0, [r9, #4] | strt r0, [r9, #4] | ldrbt r0, [r9, #4]
ldr.w r0, [pc, #16] | ldr r12, [sp, #0x104]
"""
INSTRUCTIONS = [form.strip() for line in FORMS.split("\n") for form in line.split("|") if form.strip()]


@pytest.fixture(scope="module")
def machine_code(arm_gcc: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Instruction text -> its bytes, from the real assembler."""
    folder: Path = tmp_path_factory.mktemp("asm")
    source = ".syntax unified\n.thumb\n" + "".join(f".balign 16, 0\n{i}\n" for i in INSTRUCTIONS) + ".balign 16, 0\n"
    (folder / "all.s").write_text(source)
    subprocess.run(["arm-none-eabi-as", "-mcpu=cortex-m33", "all.s", "-o", "all.o"], cwd=folder, check=True)
    subprocess.run(["arm-none-eabi-objcopy", "-O", "binary", "-j", ".text", "all.o", "all.bin"], cwd=folder, check=True)
    data = (folder / "all.bin").read_bytes()
    result = {}
    for index, text in enumerate(INSTRUCTIONS):
        first = int.from_bytes(data[16 * index : 16 * index + 2], "little")
        result[text] = data[16 * index : 16 * index + instruction_length(first)]
    return result


@pytest.mark.parametrize("text", INSTRUCTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_cpu(text: str, seed: int, machine_code: dict[str, bytes], unicorn_engine: None) -> None:
    import unicorn
    from unicorn import arm_const as c

    numbers = [c.UC_ARM_REG_R0 + i for i in range(13)] + [c.UC_ARM_REG_SP, c.UC_ARM_REG_LR, c.UC_ARM_REG_PC]
    generator = random.Random(f"{text} {seed}")
    content = generator.randbytes(SIZE)
    registers = [MIDDLE + 4 * generator.randrange(64) for _ in range(15)] + [CODE]
    if ", r2" in text.split("[")[-1]:  # an index, not an address
        registers[2] = 4 * generator.randrange(32)
    code = machine_code[text]
    uc = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
    uc.ctl_set_cpu_model(c.UC_CPU_ARM_CORTEX_M33)
    uc.mem_map(0, 0x2000)
    uc.mem_map(BASE, SIZE)
    uc.mem_write(BASE, content)
    uc.mem_write(CODE, code + generator.randbytes(64))
    code_page = bytes(uc.mem_read(CODE, 0x100))
    for number, value in zip(numbers[:15], registers, strict=False):
        uc.reg_write(number, value)
    uc.emu_start(CODE | 1, CODE + len(code), count=1)

    access = decode_access(
        int.from_bytes(code[:2], "little"), int.from_bytes(code[2:4] or b"\0\0", "little"), registers
    )
    after, memory = list(registers), bytearray(content)
    if access.write_back is not None:
        after[access.write_back[0]] = access.write_back[1]
    for t in access.transfers:
        inside = BASE <= t.address < BASE + SIZE
        if access.is_load:
            store, start = (memory, t.address - BASE) if inside else (code_page, t.address - CODE)
            after[t.register] = t.extend_value(int.from_bytes(store[start : start + t.size_bytes], "little"))
        else:
            value = registers[t.register].to_bytes(4, "little")[: t.size_bytes]
            memory[t.address - BASE : t.address - BASE + t.size_bytes] = value
    after[15] = CODE + access.length_bytes
    assert [uc.reg_read(n) for n in numbers] == after
    assert bytes(uc.mem_read(BASE, SIZE)) == bytes(memory)


@pytest.mark.parametrize(
    "first, second", [(0x4408, 0), (0xBF00, 0), (0xED91, 0x0A00), (0xE859, 0x1F00), (0xF891, 0xF000), (0xF381, 0x8809)]
)
def test_refuses_what_is_no_plain_access(first: int, second: int) -> None:
    """add, nop, vldr, ldrex, pld, msr."""
    with pytest.raises(DecodeError, match=r"no load or store of core registers"):
        decode_access(first, second, [0] * 16)


def test_it_state_moves_through_a_block() -> None:
    # ITTE EQ: firstcond 0000, mask 0110 (then, else, end)
    state = 0b0000_0110
    seen = []
    xpsr = 0x01000000 | (state & 3) << 25 | (state >> 2) << 10
    for _ in range(4):
        seen.append((xpsr >> 25 & 3) | (xpsr >> 10 & 0x3F) << 2)
        xpsr = next_it_state(xpsr)
    assert seen == [0b0000_0110, 0b0000_1100, 0b0001_1000, 0]
    assert next_it_state(0x61000000) == 0x61000000
