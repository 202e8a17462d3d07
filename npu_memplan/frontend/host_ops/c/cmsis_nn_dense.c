static void npu_memplan_cmsis_nn_dense(const int8_t *input, const int8_t *weights, const int32_t *bias,
                                       const int32_t *multipliers, const int32_t *shifts, int32_t *scratch,
                                       int8_t *output, int32_t rows, int32_t depth, int32_t units,
                                       int32_t per_channel, int32_t offset, int32_t out_offset, int32_t low,
                                       int32_t high, int32_t scratch_bytes) {
  const cmsis_nn_context context = {scratch, scratch_bytes};
  const cmsis_nn_fc_params params = {offset, 0, out_offset, {low, high}};
  const cmsis_nn_quant_params scales = {(int32_t *)multipliers, (int32_t *)shifts, per_channel};
  const cmsis_nn_dims in = {rows, 1, 1, depth}, filter = {depth, 1, 1, units}, channels = {1, 1, 1, units};
  const cmsis_nn_dims out = {rows, 1, 1, units};
#if defined(ARM_MATH_MVEI) /* what Helium's kernel takes in its buffer */
  (void)arm_vector_sum_s8(scratch, depth, units, weights, offset, 0, bias);
#endif
  (void)arm_fully_connected_wrapper_s8(&context, &params, &scales, &in, input, &filter, weights, &channels, bias,
                                       &out, output);
}
