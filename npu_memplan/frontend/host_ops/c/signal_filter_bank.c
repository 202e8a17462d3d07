/* Weighted sums of ranges of a spectrum: each range adds to its own channel by its weights, to the next by its unweights. */
static void npu_memplan_signal_filter_bank(const uint32_t *input, const int16_t *weights, const int16_t *unweights,
                                           const int16_t *starts, const int16_t *weight_starts, const int16_t *widths,
                                           uint64_t *output, int32_t channels) {
  uint64_t next = 0;
  for (int32_t channel = 0; channel <= channels; channel++) {
    uint64_t sum = next;
    next = 0;
    for (int32_t j = 0; j < widths[channel]; j++) {
      const uint64_t energy = input[starts[channel] + j];
      sum += (uint64_t)weights[weight_starts[channel] + j] * energy;
      next += (uint64_t)unweights[weight_starts[channel] + j] * energy;
    }
    if (channel > 0) output[channel - 1] = sum; /* of the range before the first channel only its unweights count */
  }
}
