static void npu_memplan_cmsis_nn_depthwise(const int8_t *input, const int8_t *weights, const int32_t *bias,
                                             const int32_t *multipliers, const int32_t *shifts, int32_t *scratch,
                                             int8_t *output, int32_t n, int32_t in_h, int32_t in_w, int32_t in_c,
                                             int32_t k_h, int32_t k_w, int32_t out_h, int32_t out_w,
                                             int32_t out_c, int32_t offset, int32_t stride_w, int32_t stride_h,
                                             int32_t before_w, int32_t before_h, int32_t dilation_w,
                                             int32_t dilation_h, int32_t out_offset, int32_t low, int32_t high,
                                             int32_t scratch_bytes) {
  const cmsis_nn_context context = {scratch, scratch_bytes};
  const cmsis_nn_dw_conv_params params = {offset,
                                       out_offset,
                                       out_c / in_c,
                                       {stride_w, stride_h},
                                       {before_w, before_h},
                                       {dilation_w, dilation_h},
                                       {low, high}};
  const cmsis_nn_per_channel_quant_params scales = {(int32_t *)multipliers, (int32_t *)shifts};
  const cmsis_nn_dims in = {n, in_h, in_w, in_c}, filter = {1, k_h, k_w, out_c}, channels = {1, 1, 1, out_c};
  const cmsis_nn_dims out = {n, out_h, out_w, out_c};
  (void)arm_depthwise_conv_wrapper_s8(&context, &params, &scales, &in, input, &filter, weights, &channels, bias, &out,
                                output);
}
