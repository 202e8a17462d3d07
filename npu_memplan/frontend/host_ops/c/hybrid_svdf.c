/* A sum of products in the order of four lanes, and what is left over behind them. */
static float npu_memplan_hybrid_dot(const float *a, const float *b, int32_t count) {
  const int32_t even = count & ~3;
  float lanes[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  for (int32_t i = 0; i < even; i++) lanes[i & 3] += a[i] * b[i];
  float sum = lanes[0] + lanes[1] + lanes[2] + lanes[3];
  for (int32_t i = even; i < count; i++) sum += a[i] * b[i];
  return sum;
}

/* A layer of int8 factored into features and time; `state` has `memory` activations of each filter, the newest last. */
static void npu_memplan_hybrid_svdf(const float *input, const int8_t *features, const float *times, const float *bias,
                                    int8_t *stored, float *state, float *output, int32_t batches, int32_t depth,
                                    int32_t filters, int32_t memory, int32_t rank, int32_t shifted,
                                    double feature_scale, double low, double high) {
  const int32_t units = filters / rank;
  for (int32_t n = 0; n < batches; n++) {
    float scale;
    int32_t zero;
    npu_memplan_hybrid_stored(input + n * depth, stored, depth, shifted != 0, &scale, &zero);
    scale *= (float)feature_scale;
    for (int32_t unit = 0; unit < units; unit++) {
      float value = 0.0f;
      for (int32_t filter = unit * rank; filter < (unit + 1) * rank; filter++) {
        float *kept = state + (n * filters + filter) * memory;
        int32_t total = 0;
        for (int32_t k = 0; k < depth; k++) total += (stored[k] - zero) * features[filter * depth + k];
        for (int32_t m = 0; m + 1 < memory; m++) kept[m] = kept[m + 1];
        kept[memory - 1] = 0.0f + (float)total * scale;
        value += npu_memplan_hybrid_dot(times + filter * memory, kept, memory);
      }
      value += bias[unit];
      value = value < (float)low ? (float)low : value;
      output[n * units + unit] = value > (float)high ? (float)high : value;
    }
  }
}
