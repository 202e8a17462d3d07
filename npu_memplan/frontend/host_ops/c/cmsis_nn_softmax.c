static void npu_memplan_cmsis_nn_softmax(const int8_t *input, int8_t *output, int32_t rows, int32_t columns,
                                         int32_t multiplier, int32_t shift, int32_t lowest) {
  arm_softmax_s8(input, rows, columns, multiplier, shift, lowest, output);
}
