/* What gate `row` of a unit sees: its bias, then the products of its input and of the last result. */
static float npu_memplan_hybrid_gate(float value, const int8_t *stored, const int8_t *weights, int32_t count,
                                     int32_t zero, float scale) {
  int32_t total = 0;
  for (int32_t k = 0; k < count; k++) total += (stored[k] - zero) * weights[k];
  return value + (float)total * scale;
}

/* Gates are forget, input, cell, output; `scales` are those of their input weights, then of their recurrent weights.
   `clip` limits what a cell keeps, if it is above 0. */
static void npu_memplan_hybrid_lstm(const float *input, const int8_t *into, const int8_t *recurrent, const float *scales,
                                    const float *bias, int8_t *stored, float *gates, float *hidden, float *cells,
                                    float *output, int32_t batches, int32_t steps, int32_t depth, int32_t units,
                                    int32_t time_major, int32_t shifted, double clip) {
  int8_t *const stored_hidden = stored + depth;
  for (int32_t n = 0; n < batches; n++) {
    for (int32_t t = 0; t < steps; t++) {
      const int32_t place = time_major != 0 ? t * batches + n : n * steps + t;
      float *const kept = cells + n * units, *const last = hidden + n * units;
      float scale, scale_hidden;
      int32_t zero, zero_hidden;
      npu_memplan_hybrid_stored(input + place * depth, stored, depth, shifted != 0, &scale, &zero);
      npu_memplan_hybrid_stored(last, stored_hidden, units, shifted != 0, &scale_hidden, &zero_hidden);
      for (int32_t row = 0; row < 4 * units; row++) {
        const int32_t gate = row / units;
        float value = npu_memplan_hybrid_gate(bias[row], stored, into + row * depth, depth, zero, scales[gate] * scale);
        value = npu_memplan_hybrid_gate(value, stored_hidden, recurrent + row * units, units, zero_hidden,
                                        scales[4 + gate] * scale_hidden);
        gates[row] = gate == 2 ? tanhf(value) : 1.0f / (1.0f + expf(-value));
      }
      for (int32_t u = 0; u < units; u++) {
        float state = gates[u] * kept[u];
        state += gates[2 * units + u] * gates[units + u];
        if (clip > 0.0) {
          state = state < -(float)clip ? -(float)clip : state;
          state = state > (float)clip ? (float)clip : state;
        }
        kept[u] = state;
        last[u] = gates[3 * units + u] * tanhf(state);
        output[place * units + u] = last[u];
      }
    }
  }
}
