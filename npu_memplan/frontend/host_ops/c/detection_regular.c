/* A choice for each class, and of all of them those with the best scores. */
static void npu_memplan_detection_regular_SUFFIX(const BOX_TYPE *encoded, const SCORE_TYPE *scores,
                                                 const ANCHOR_TYPE *anchors, double *halves, float *boxes,
                                                 float *of_class, int32_t *order, int32_t *chosen, float *kept_scores,
                                                 int32_t *kept, float *next_scores, int32_t *next,
                                                 float *found_boxes, float *found_classes, float *found_scores,
                                                 float *number, int32_t count, int32_t pitch, int32_t classes,
                                                 int32_t columns, int32_t most, int32_t most_of_class, int32_t room) {
  int32_t total = 0;
  memset(found_boxes, 0, (size_t)room * 4 * sizeof(float));
  memset(found_classes, 0, (size_t)room * sizeof(float));
  memset(found_scores, 0, (size_t)room * sizeof(float));
  number[0] = 0.0f;
  if (!npu_memplan_decode_SUFFIX(encoded, anchors, halves, boxes, count, pitch)) return;
  for (int32_t class = 0; class < classes; class++) {
    for (int32_t i = 0; i < count; i++) of_class[i] = SCORE(scores[i * columns + columns - classes + class]);
    const int32_t found = npu_memplan_choose_SUFFIX(boxes, of_class, count, most_of_class, order, chosen);
    for (int32_t i = 0; i < found; i++) {
      kept_scores[total + i] = of_class[chosen[i]];
      kept[total + i] = chosen[i] * classes + class;
    }
    total += found;
    const int32_t left = total < most ? total : most;
    int32_t *const next_kept = next + most + most_of_class;
    for (int32_t i = 0; i < total; i++) next[i] = i;
    npu_memplan_make_heap_SUFFIX(kept_scores, next, total);
    for (int32_t i = 0; i < left; i++) {
      const int32_t first = npu_memplan_take_SUFFIX(kept_scores, next, total - i);
      next_scores[i] = kept_scores[first];
      next_kept[i] = kept[first];
    }
    memcpy(kept_scores, next_scores, (size_t)left * sizeof(float));
    memcpy(kept, next_kept, (size_t)left * sizeof(int32_t));
    total = left;
  }
  for (int32_t i = 0; i < total && i < room; i++) {
    memcpy(found_boxes + 4 * i, boxes + 4 * (kept[i] / classes), 4 * sizeof(float));
    found_classes[i] = (float)(kept[i] % classes);
    found_scores[i] = kept_scores[i];
  }
  number[0] = (float)total;
}
