"""Firmware on an emulated CPU (QEMU or Unicorn), with the NPU model behind the NPU's registers.

Invariant: the firmware is the one that an FVP or silicon gets; all that is emulated for it is the CPU and the NPU's
register page (`register_page`), whose jobs (`job`) run on the emulator's own memory.
"""
