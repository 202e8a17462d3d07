// One arena for ExecuTorch programs that `npu-memplan compile --emit one-arena` wrote: planned buffer 1 and the scratch of
// Ethos-U delegates share bytes.
//
// Include this header in one source file of the runner, and give it the memory of planned buffer 1:
//
//   npu_memplan::OneArena arena(memory, method_meta->memory_planned_buffer_size(0).get());
//   Span<uint8_t> planned[] = {arena.planned()};  // further planned buffers as ever
//   HierarchicalAllocator planned_memory({planned, 1});
//   MemoryManager manager(&method_allocator, &planned_memory, arena.temporary());
//
// Only such programs may run with it: in others the scratch would lie over tensors that are still needed. The memory
// begins at a multiple of 16 bytes. With several methods, give the largest of their sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <executorch/runtime/core/memory_allocator.h>
#include <executorch/runtime/core/span.h>

namespace npu_memplan {

class OneArena {
 public:
  OneArena(uint8_t* memory, size_t size)
      : planned_(memory, size), temporary_(static_cast<uint32_t>(size), memory) {}

  executorch::runtime::Span<uint8_t> planned() const { return planned_; }
  executorch::runtime::MemoryAllocator* temporary() { return &temporary_; }

 private:
  executorch::runtime::Span<uint8_t> planned_;
  executorch::runtime::MemoryAllocator temporary_;
};

}  // namespace npu_memplan

// Arm's backend calls this for every copy into the scratch and out of it; its own definition is weak. Tensors lie where
// the NPU reads and writes them, so most copies are from a byte onto itself. Define NPU_MEMPLAN_OWN_IO_MEMCPY to write
// it yourself, for instance with cache maintenance or a DMA.
#ifndef NPU_MEMPLAN_OWN_IO_MEMCPY
extern "C" void arm_ethos_io_memcpy(void* target, const void* source, size_t size) {
  if (target != source) std::memcpy(target, source, size);
}
#endif
