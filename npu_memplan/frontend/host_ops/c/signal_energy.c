/* Squared magnitudes of complex numbers of a range; 0 outside, where the reference writes nothing. */
static void npu_memplan_signal_energy(const int16_t *input, uint32_t *output, int32_t size, int32_t start, int32_t end) {
  for (int32_t i = 0; i < size; i++) {
    const int32_t real = input[2 * i], imaginary = input[2 * i + 1];
    output[i] = i >= start && i < end ? (uint32_t)(real * real) + (uint32_t)(imaginary * imaginary) : 0u;
  }
}
