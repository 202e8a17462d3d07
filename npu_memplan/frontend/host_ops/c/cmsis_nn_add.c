static void npu_memplan_cmsis_nn_add(const int8_t *first, const int8_t *second, int8_t *output, int32_t offset_1,
                                     int32_t multiplier_1, int32_t shift_1, int32_t offset_2, int32_t multiplier_2,
                                     int32_t shift_2, int32_t left_shift, int32_t out_offset, int32_t multiplier,
                                     int32_t shift, int32_t low, int32_t high, int32_t count) {
  (void)arm_elementwise_add_s8(first, second, offset_1, multiplier_1, shift_1, offset_2, multiplier_2, shift_2,
                               left_shift, output, out_offset, multiplier, shift, low, high, count);
}
