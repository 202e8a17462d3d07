/* Each row comes out `delay` samples later; `queue` holds what is on the way. */
static void npu_memplan_signal_delay(const int16_t *input, int16_t *queue, int16_t *output, int32_t rows, int32_t size,
                                     int32_t delay) {
  for (int32_t row = 0; row < rows; row++) {
    int16_t *const kept = queue + row * delay;
    const int16_t *const fresh = input + row * size;
    const int32_t old = delay < size ? delay : size;
    memcpy(output + row * size, kept, (size_t)old * sizeof(int16_t));
    memcpy(output + row * size + old, fresh, (size_t)(size - old) * sizeof(int16_t));
    memmove(kept, kept + old, (size_t)(delay - old) * sizeof(int16_t));
    memcpy(kept + delay - old, fresh + size - old, (size_t)old * sizeof(int16_t));
  }
}
