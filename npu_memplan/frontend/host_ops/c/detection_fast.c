/* One choice for all classes, by the best score of each box; then the best classes of each chosen box. */
static void npu_memplan_detection_fast_SUFFIX(const BOX_TYPE *encoded, const SCORE_TYPE *scores,
                                              const ANCHOR_TYPE *anchors, double *halves, float *boxes, float *best,
                                              int32_t *order, int32_t *chosen, float *found_boxes,
                                              float *found_classes, float *found_scores, float *number, int32_t count,
                                              int32_t pitch, int32_t classes, int32_t columns, int32_t most,
                                              int32_t each, int32_t room) {
  memset(found_boxes, 0, (size_t)room * 4 * sizeof(float));
  memset(found_classes, 0, (size_t)room * sizeof(float));
  memset(found_scores, 0, (size_t)room * sizeof(float));
  number[0] = 0.0f;
  if (!npu_memplan_decode_SUFFIX(encoded, anchors, halves, boxes, count, pitch)) return;
  for (int32_t i = 0; i < count; i++) {
    const SCORE_TYPE *const row = scores + i * columns + columns - classes;
    best[i] = SCORE(row[0]);
    for (int32_t k = 1; k < classes; k++) {
      if (SCORE(row[k]) > best[i]) best[i] = SCORE(row[k]);
    }
  }
  const int32_t found = npu_memplan_choose_SUFFIX(boxes, best, count, most, order, chosen);
  int32_t written = 0;
  for (int32_t i = 0; i < found; i++) {
    const SCORE_TYPE *const row = scores + chosen[i] * columns + columns - classes;
    for (int32_t rank = 0; rank < each; rank++) {
      /* the class that `rank` others go before: a higher score, or the same and a lower number */
      int32_t class = 0;
      for (int32_t k = 0; k < classes; k++) {
        int32_t before = 0;
        for (int32_t other = 0; other < classes; other++) {
          if (SCORE(row[other]) > SCORE(row[k]) || (SCORE(row[other]) == SCORE(row[k]) && other < k)) before++;
        }
        if (before == rank) class = k;
      }
      const int32_t place = each * written + rank; /* as the reference counts; with several classes it leaves gaps */
      if (place < room) {
        memcpy(found_boxes + 4 * place, boxes + 4 * chosen[i], 4 * sizeof(float));
        found_classes[place] = (float)class;
        found_scores[place] = SCORE(row[class]);
      }
      written++;
    }
  }
  number[0] = (float)written;
}
