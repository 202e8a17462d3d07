static void npu_memplan_cmsis_nn_average(const int8_t *input, int32_t *scratch, int8_t *output, int32_t in_h,
                                    int32_t in_w, int32_t channels, int32_t k_h, int32_t k_w, int32_t out_h,
                                    int32_t out_w, int32_t stride_w, int32_t stride_h, int32_t before_w,
                                    int32_t before_h, int32_t low, int32_t high, int32_t scratch_bytes) {
  const cmsis_nn_context context = {scratch, scratch_bytes};
  const cmsis_nn_pool_params params = {{stride_w, stride_h}, {before_w, before_h}, {low, high}};
  const cmsis_nn_dims in = {1, in_h, in_w, channels}, filter = {1, k_h, k_w, 1}, out = {1, out_h, out_w, channels};
  (void)arm_avgpool_s8(&context, &params, &in, input, &filter, &out, output);
}
