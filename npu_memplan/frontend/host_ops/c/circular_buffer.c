/* The newest slot comes in at the end, the oldest goes out at the front. */
static void npu_memplan_circular_buffer(const int8_t *input, int8_t *slots, int8_t *output, int32_t bytes, int32_t slot) {
  memmove(slots, slots + slot, (size_t)(bytes - slot));
  memcpy(slots + bytes - slot, input, (size_t)slot);
  memcpy(output, slots, (size_t)bytes);
}
