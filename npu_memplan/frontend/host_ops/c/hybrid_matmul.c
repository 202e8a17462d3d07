/* Rows of floats times matrices [units, depth] of int8; `share` rows one after the other have the same matrix. */
static void npu_memplan_hybrid_matmul(const float *input, const int8_t *weights, int8_t *stored, float *output,
                                      int32_t rows, int32_t depth, int32_t units, int32_t share, int32_t shifted,
                                      double weight_scale) {
  for (int32_t n = 0; n < rows; n++) {
    const int8_t *matrix = weights + (n / share) * units * depth;
    float scale;
    int32_t zero;
    npu_memplan_hybrid_stored(input + n * depth, stored, depth, shifted != 0, &scale, &zero);
    scale *= (float)weight_scale;
    for (int32_t unit = 0; unit < units; unit++) {
      int32_t total = 0, of_weights = 0;
      for (int32_t k = 0; k < depth; k++) {
        total += stored[k] * matrix[unit * depth + k];
        of_weights += matrix[unit * depth + k];
      }
      total = (int32_t)((float)total - (float)of_weights * (float)zero); /* the reference subtracts floats */
      output[n * units + unit] = 0.0f + scale * (float)total;
    }
  }
}
