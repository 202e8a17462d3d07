/* Each frame times a window, shifted back and limited to int16. */
static void npu_memplan_signal_window(const int16_t *input, const int16_t *window, int16_t *output, int32_t frames,
                                      int32_t size, int32_t shift) {
  for (int32_t at = 0; at < frames * size; at++) {
    const int32_t value = (int32_t)input[at] * window[at % size] >> shift;
    output[at] = (int16_t)(value < -32768 ? -32768 : value > 32767 ? 32767 : value);
  }
}
