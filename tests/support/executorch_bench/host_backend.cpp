// A backend called EthosUBackend for the host, and a runner on memory that the caller gives.
//
// Rules of Arm's backend for Cortex-M: the scratch comes from the temporary allocator at every call, inputs are copied
// into it one after another, the driver gets the stream and three base pointers (constants in the program, scratch,
// fast scratch), outputs are copied out. In place of the driver a callback runs the stream. Where the temporary
// allocator begins with planned buffer 1, the two are one arena, as one_arena.h has it.
#include <cstdint>
#include <cstring>
#include <vector>

#include <executorch/extension/data_loader/buffer_data_loader.h>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>

#include "one_arena.h"

using namespace executorch::runtime;

namespace {

constexpr uint8_t kPoison = 0xA5;
constexpr size_t kHeader = 32;
constexpr size_t kAlignment = 16;

struct Slot {
  int32_t shape[6];
  int32_t element_bytes;
  int32_t offset;
  int32_t region;
};

struct Span64 {
  uint64_t offset;
  uint64_t size;
};

struct Job {
  const uint8_t* commands;
  uint64_t command_bytes;
  uint8_t* bases[3];
  uint64_t sizes[3];
  const Span64* given;  // bytes of the scratch that hold inputs
  uint64_t given_count;
  const Span64* taken;  // bytes of the scratch that are read back
  uint64_t taken_count;
};

typedef int (*Driver)(const Job*);
Driver driver = nullptr;
uint8_t* fast_scratch = nullptr;
uint64_t fast_scratch_bytes = 0;
uint64_t copied_in = 0, copied_out = 0, most_scratch = 0;

struct Handle {
  const uint8_t* commands = nullptr;
  uint64_t command_bytes = 0;
  const uint8_t* weights = nullptr;
  uint64_t weight_bytes = 0;
  uint32_t scratch_bytes = 0;
  std::vector<Slot> inputs, outputs;
};

bool read_slots(const uint8_t* data, size_t size, std::vector<Slot>& slots) {
  int32_t count = 0;
  if (size < 4) return false;
  memcpy(&count, data, 4);
  if (count < 0 || (size - 4) / sizeof(Slot) < (size_t)count) return false;
  slots.resize(count);
  if (count) memcpy(slots.data(), data + 4, count * sizeof(Slot));
  return true;
}

size_t slot_bytes(const Slot& slot) {
  size_t size = slot.element_bytes;
  for (int32_t extent : slot.shape) size *= extent;
  return size;
}

bool is_copied(const executorch::aten::Tensor& tensor) {
  using executorch::aten::ScalarType;
  switch (tensor.scalar_type()) {
    case ScalarType::Char:
    case ScalarType::Byte:
    case ScalarType::Bool:
    case ScalarType::Short:
    case ScalarType::Int:
      return true;
    default:
      return false;
  }
}

class HostEthosU final : public BackendInterface {
 public:
  bool is_available() const override { return true; }

  Result<DelegateHandle*> init(BackendInitContext& context, FreeableBuffer* processed,
                               ArrayRef<CompileSpec>) const override {
    const uint8_t* data = static_cast<const uint8_t*>(processed->data());
    const size_t size = processed->size();
    if (reinterpret_cast<uintptr_t>(data) % kAlignment || size % kAlignment) return Error::InvalidProgram;
    Handle* handle = new Handle();
    bool ended = false;
    for (size_t at = 0; !ended && at + kHeader <= size;) {
      char name[17] = {0};
      uint32_t length = 0;
      memcpy(name, data + at, 16);
      memcpy(&length, data + at + 16, 4);
      const bool external = data[at + 20] != 0;
      const uint8_t* content = data + at + kHeader;
      if (length > size - at - kHeader) break;
      at += kHeader + (length + kAlignment - 1) / kAlignment * kAlignment;
      uint64_t bytes = length;
      if (external) {
        const NamedDataMap* named = context.get_named_data_map();
        if (named == nullptr) break;
        auto found = named->get_data(std::string_view(reinterpret_cast<const char*>(content), length));
        if (!found.ok()) break;
        content = static_cast<const uint8_t*>(found->data());
        bytes = found->size();
      }
      if (!strcmp(name, "cmd_data")) {
        handle->commands = content;
        handle->command_bytes = bytes;
      } else if (!strcmp(name, "weight_data")) {
        handle->weights = content;
        handle->weight_bytes = bytes;
      } else if (!strcmp(name, "scratch_size") && length >= 4) {
        memcpy(&handle->scratch_bytes, content, 4);
      } else if (!strcmp(name, "inputs")) {
        if (!read_slots(content, length, handle->inputs)) break;
      } else if (!strcmp(name, "outputs")) {
        if (!read_slots(content, length, handle->outputs)) break;
      } else if (!strcmp(name, "vela_end_stream")) {
        ended = true;
      } else if (strcmp(name, "vela_bin_stream")) {
        break;
      }
    }
    if (!ended || handle->commands == nullptr) {
      delete handle;
      return Error::InvalidProgram;
    }
    return reinterpret_cast<DelegateHandle*>(handle);
  }

  Error execute(BackendExecutionContext& context, DelegateHandle* opaque, Span<EValue*> values) const override {
    const Handle* handle = reinterpret_cast<const Handle*>(opaque);
    const size_t inputs = handle->inputs.size(), outputs = handle->outputs.size();
    MemoryAllocator* temporary = context.get_temp_allocator();
    if (temporary == nullptr || values.size() < inputs + outputs) return Error::InvalidProgram;
    uint8_t* scratch = static_cast<uint8_t*>(temporary->allocate(handle->scratch_bytes, kAlignment));
    if (scratch == nullptr) return Error::MemoryAllocationFailed;
    if (handle->scratch_bytes > most_scratch) most_scratch = handle->scratch_bytes;
    std::vector<Span64> given, taken;
    for (size_t i = 0; i < inputs; i++) {
      const auto& tensor = values[i]->toTensor();
      const uint64_t offset = handle->inputs[i].offset, size = tensor.nbytes();
      if (!is_copied(tensor) || offset + size > handle->scratch_bytes) return Error::InvalidProgram;
      if (size != slot_bytes(handle->inputs[i])) return Error::NotSupported;
      arm_ethos_io_memcpy(scratch + offset, tensor.const_data_ptr(), size);
      if (scratch + offset != tensor.const_data_ptr()) copied_in += size;
      given.push_back({offset, size});
    }
    for (size_t i = 0; i < outputs; i++) {
      const auto& tensor = values[inputs + i]->toTensor();
      const uint64_t offset = handle->outputs[i].offset, size = tensor.nbytes();
      if (!is_copied(tensor) || offset + size > handle->scratch_bytes) return Error::InvalidProgram;
      if (size != slot_bytes(handle->outputs[i])) return Error::NotSupported;
      taken.push_back({offset, size});
    }
    if (fast_scratch != nullptr) memset(fast_scratch, kPoison, fast_scratch_bytes);
    const Job job = {handle->commands,
                     handle->command_bytes,
                     {const_cast<uint8_t*>(handle->weights), scratch, fast_scratch},
                     {handle->weight_bytes, handle->scratch_bytes, fast_scratch_bytes},
                     given.data(),
                     given.size(),
                     taken.data(),
                     taken.size()};
    if (driver == nullptr || driver(&job) != 0) return Error::DelegateInvalidHandle;
    for (size_t i = 0; i < outputs; i++) {
      const auto& tensor = values[inputs + i]->toTensor();
      const uint8_t* made = scratch + handle->outputs[i].offset;
      arm_ethos_io_memcpy(tensor.mutable_data_ptr(), made, tensor.nbytes());
      if (made != tensor.const_data_ptr()) copied_out += tensor.nbytes();
    }
    return Error::Ok;
  }

  void destroy(DelegateHandle* handle) const override { delete reinterpret_cast<Handle*>(handle); }
};

HostEthosU backend;
const auto registered = register_backend(Backend{"EthosUBackend", &backend});

struct Memory {
  uint8_t* data;
  uint64_t size;
};

}  // namespace

extern "C" {

void npu_memplan_set_driver(Driver called, uint8_t* fast, uint64_t fast_bytes) {
  driver = called;
  fast_scratch = fast;
  fast_scratch_bytes = fast_bytes;
}

void npu_memplan_counters(uint64_t* counters) {
  counters[0] = copied_in;
  counters[1] = copied_out;
  counters[2] = most_scratch;
  copied_in = copied_out = most_scratch = 0;
}

// 0, or the step that failed in the lowest byte and ExecuTorch's error above it. `planned` are the planned buffers in
// the order of their ids, `pools` the method allocator's memory and the temporary allocator's.
int npu_memplan_run(const Memory* program_bytes, const char* name, const Memory* planned, uint64_t planned_count,
                    const Memory* pools, const Memory* inputs, uint64_t input_count, const Memory* outputs,
                    uint64_t output_count, uint64_t* method_bytes) {
  auto failed = [](int step, Error error) { return step | static_cast<int>(error) << 8; };
  executorch::extension::BufferDataLoader loader(program_bytes->data, program_bytes->size);
  auto program = Program::load(&loader);
  if (!program.ok()) return failed(1, program.error());
  auto meta = program->method_meta(name);
  if (!meta.ok()) return failed(2, meta.error());
  if (meta->num_memory_planned_buffers() > planned_count) return failed(3, Error::InvalidArgument);
  std::vector<Span<uint8_t>> spans;
  for (uint64_t i = 0; i < planned_count; i++) spans.emplace_back(planned[i].data, planned[i].size);
  MemoryAllocator own(static_cast<uint32_t>(pools[0].size), pools[0].data);
  MemoryAllocator temporary(static_cast<uint32_t>(pools[1].size), pools[1].data);
  const bool shared = planned_count > 0 && planned[0].data == pools[1].data;
  npu_memplan::OneArena arena(shared ? planned[0].data : nullptr, shared ? planned[0].size : 0);
  if (shared) spans[0] = arena.planned();
  HierarchicalAllocator hierarchy({spans.data(), spans.size()});
  MemoryManager manager(&own, &hierarchy, shared ? arena.temporary() : &temporary);
  auto method = program->load_method(name, &manager);
  if (!method.ok()) return failed(4, method.error());
  *method_bytes = own.used_size();
  if (method->inputs_size() != input_count || method->outputs_size() != output_count)
    return failed(5, Error::InvalidArgument);
  for (uint64_t i = 0; i < input_count; i++) {
    const auto& tensor = method->get_input(i).toTensor();
    if (tensor.nbytes() != inputs[i].size || tensor.const_data_ptr() == nullptr)
      return failed(6, Error::InvalidArgument);
    memcpy(tensor.mutable_data_ptr(), inputs[i].data, inputs[i].size);
  }
  const Error error = method->execute();
  if (error != Error::Ok) return failed(7, error);
  for (uint64_t i = 0; i < output_count; i++) {
    const auto& tensor = method->get_output(i).toTensor();
    if (tensor.nbytes() != outputs[i].size) return failed(8, Error::InvalidArgument);
    memcpy(outputs[i].data, tensor.const_data_ptr(), outputs[i].size);
  }
  return 0;
}
}
