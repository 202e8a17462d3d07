static void npu_memplan_cmsis_nn_multiply(const int8_t *first, const int8_t *second, int8_t *output,
                                          int32_t offset_1, int32_t offset_2, int32_t out_offset,
                                          int32_t multiplier, int32_t shift, int32_t low, int32_t high,
                                          int32_t count) {
  (void)arm_elementwise_mul_s8(first, second, offset_1, offset_2, output, out_offset, multiplier, shift, low, high,
                               count);
}
