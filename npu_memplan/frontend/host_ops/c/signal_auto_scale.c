/* Shifts left by as many bits as the largest magnitude leaves free, and says how many. */
static void npu_memplan_signal_auto_scale(const int16_t *input, int16_t *output, int32_t *bits, int32_t size) {
  int16_t largest = 0;
  int32_t shift = 15;
  for (int32_t i = 0; i < size; i++) { /* as in the reference, 32768 is negative here and whatever comes next is larger */
    const int16_t value = input[i];
    if (value > largest) {
      largest = value;
    } else if (-value > largest) {
      largest = (int16_t)-value;
    }
  }
  for (uint32_t rest = (uint32_t)largest; rest != 0; rest >>= 1) shift--;
  if (largest == 0 || shift < 0) shift = 0;
  for (int32_t i = 0; i < size; i++) output[i] = (int16_t)(input[i] * (1 << shift));
  bits[0] = shift;
}
