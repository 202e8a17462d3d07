/* Subtracts an estimate of the noise, which follows the signal slowly; odd channels have coefficients of their own. */
static void npu_memplan_signal_spectral_subtraction(const uint32_t *input, uint32_t *estimate, uint32_t *output,
                                                    uint32_t *noise, int32_t channels, int32_t smoothing,
                                                    int32_t rest, int32_t odd_smoothing, int32_t odd_rest,
                                                    int32_t smoothing_bits, int32_t bits, int32_t least,
                                                    int32_t clamping) {
  for (int32_t i = 0; i < channels; i++) {
    const uint32_t signal = input[i] << smoothing_bits;
    const uint64_t gain = (uint32_t)(i & 1 ? odd_smoothing : smoothing), keep = (uint32_t)(i & 1 ? odd_rest : rest);
    estimate[i] = (uint32_t)((signal * gain + estimate[i] * keep) >> bits);
    uint32_t subtracted = estimate[i];
    if (subtracted > signal) {
      subtracted = signal;
      if (clamping) estimate[i] = signal;
    }
    const uint32_t floor = (uint32_t)((uint64_t)input[i] * (uint32_t)least >> bits);
    const uint32_t value = (signal - subtracted) >> smoothing_bits;
    output[i] = value > floor ? value : floor;
    noise[i] = estimate[i];
  }
}
