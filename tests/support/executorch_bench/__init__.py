"""ExecuTorch's own runtime with a host backend in place of Arm's: delegates run on the NPU model.

Invariant: the rules are those of Arm's backend for Cortex-M (scratch from the temporary allocator, inputs copied in one
after another, three base pointers, outputs copied out); every memory is filled with a poison pattern first. Needs the
package executorch and a C++ compiler; nothing of TVM.
"""
