/* A plugin of QEMU that adds memories to the machine before its devices are made. It calls functions of QEMU that are
 * not part of its plugin interface, but that its builds with loadable modules (those of Debian, Ubuntu and Fedora)
 * export; others refuse to load it.
 *
 * Each argument is NAME=BASE:SIZE:LIKE:WORD. LIKE is 0: memory of its own, which begins with WORD; else one more
 * address of what lies at LIKE.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void *get_system_memory(void);
extern void memory_region_init_ram(void *region, void *owner, const char *name, uint64_t size, void **error);
extern void memory_region_init_alias(void *region, void *owner, const char *name, void *like, uint64_t at,
                                     uint64_t size);
extern void memory_region_add_subregion_overlap(void *parent, uint64_t at, void *region, int priority);
extern void *memory_region_get_ram_ptr(void *region);
extern int qemu_plugin_num_vcpus(void) __attribute__((weak)); /* of QEMU 9 and later, which take version 2 at least */

#define REGION_BYTES 4096 /* QEMU's structure has some hundred */

int qemu_plugin_version = 1;

__attribute__((constructor)) static void set_version(void) {
  if (qemu_plugin_num_vcpus != NULL) {
    qemu_plugin_version = 2;
  }
}

int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments) {
  (void)id, (void)info;
  for (int i = 0; i < count; i++) {
    const char *text = strchr(arguments[i], '=');
    unsigned long long base, size, like, word;
    void *region = calloc(1, REGION_BYTES), *error = NULL;
    if (region == NULL || text == NULL || sscanf(text, "=%lli:%lli:%lli:%lli", (long long *)&base, (long long *)&size,
                                                 (long long *)&like, (long long *)&word) != 4) {
      fprintf(stderr, "no memory can be made of %s\n", arguments[i]);
      return 1;
    }
    if (like != 0) {
      memory_region_init_alias(region, NULL, arguments[i], get_system_memory(), like, size);
    } else {
      memory_region_init_ram(region, NULL, arguments[i], size, &error);
      if (error != NULL) {
        fprintf(stderr, "QEMU has no %llu bytes for %s\n", size, arguments[i]);
        return 1;
      }
      *(uint32_t *)memory_region_get_ram_ptr(region) = (uint32_t)word;
    }
    memory_region_add_subregion_overlap(get_system_memory(), base, region, 1);
  }
  return 0;
}
