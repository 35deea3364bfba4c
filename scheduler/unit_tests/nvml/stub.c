/* Stands in for NVIDIA's libnvidia-ml.so.1: four GPUs, whose answers the lines of the file $NVML_STUB change while a
   process runs. A line is `what gpu value`: a field below, or a function's name with the error code that it answers.
   A function that hangs has the value -1; it goes on when the line is gone. Then $NVML_STUB.hangs exists. With -DOLD it is the library of a driver
   that knows neither row remapping nor MIG nor the newer way to ask for a temperature. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS 4
#define MIB (1024ULL * 1024ULL)
#define OK 0
#define UNINITIALIZED 1
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7

typedef struct { int number, slice; } Device;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version; int sensor, temperature; } Temperature;
typedef struct {
  char old_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
} Pci;

/* Not in the order of the bus: sorting is the reader's work. */
static const char *BUSES[GPUS] = {"00000000:81:00.0", "00000000:07:00.0", "00000000:C1:00.0", "00000000:0F:00.0"};
static Device gpus[GPUS] = {{0, -1}, {1, -1}, {2, -1}, {3, -1}};
static int initialized;

static long asked(const char *what, int gpu, long otherwise) {
  const char *path = getenv("NVML_STUB");
  FILE *file = path ? fopen(path, "r") : NULL;
  char word[64];
  int number;
  long value;
  while (file && fscanf(file, "%63s %d %ld", word, &number, &value) == 3)
    if (!strcmp(word, what) && number == gpu) otherwise = value;
  if (file) fclose(file);
  return otherwise;
}

static void show_hanging(void) {
  const char *path = getenv("NVML_STUB");
  char marker[4096];
  FILE *file;
  snprintf(marker, sizeof marker, "%s.hangs", path ? path : "");
  if ((file = fopen(marker, "w"))) fclose(file);
}

static int fails(const char *function, int gpu) {
  long code;
  for (; (code = asked(function, gpu, OK)) == -1; usleep(10000)) show_hanging();
  return (int)code;
}

#define CALL(name, gpu) do { \
    int code = fails(name, gpu); \
    if (code) return code; \
    if (!initialized) return UNINITIALIZED; \
  } while (0)

static int text(char *into, unsigned size, const char *what) {
  if (strlen(what) >= size) return INSUFFICIENT_SIZE;
  strcpy(into, what);
  return OK;
}

int nvmlInitWithFlags(unsigned flags) {
  int code = fails("nvmlInit", 0);
  (void)flags;
  if (!code) initialized = 1;
  return code;
}

int nvmlShutdown(void) { initialized = 0; return fails("nvmlShutdown", 0); }

const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  CALL("nvmlDeviceGetCount", 0);
  *count = (unsigned)asked("count", 0, GPUS);
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
  CALL("nvmlDeviceGetHandleByIndex", (int)index);
  *device = &gpus[index];
  return OK;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Device **device) {
  for (unsigned index = 0; index < GPUS; index++)
    if (!strcmp(bus_id, BUSES[index])) return nvmlDeviceGetHandleByIndex_v2(index, device);
  return NOT_FOUND;
}

int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned size) {
  char whole[96];
  CALL("nvmlDeviceGetUUID", device->number);
  if (device->slice < 0) sprintf(whole, "GPU-00000000-0000-0000-0000-00000000000%d", device->number);
  else sprintf(whole, "MIG-00000000-0000-0000-0000-0000000000%d%d", device->number, device->slice);
  return text(uuid, size, whole);
}

int nvmlDeviceGetName(Device *device, char *name, unsigned size) {
  CALL("nvmlDeviceGetName", device->number);
  return text(name, size, "NVIDIA A100-SXM4-40GB");
}

int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
  CALL("nvmlDeviceGetPciInfo", device->number);
  strcpy(pci->bus_id, BUSES[device->number]);
  return OK;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
  CALL("nvmlDeviceGetMemoryInfo", device->number);
  memory->total = (device->slice < 0 ? 40960 : 4864) * MIB;
  memory->used = (unsigned long long)asked("used", device->number, 512) * MIB;
  memory->free = memory->total - memory->used;
  return OK;
}

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
  CALL("nvmlDeviceGetUtilizationRates", device->number);
  rates->gpu = (unsigned)asked("utilization", device->number, 0);
  rates->memory = 0;
  return OK;
}

int nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
  CALL("nvmlDeviceGetPowerUsage", device->number);
  *milliwatts = 54600;
  return OK;
}

int nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *degrees) {
  (void)sensor;
  CALL("nvmlDeviceGetTemperature", device->number);
  *degrees = 33;
  return OK;
}

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, unsigned long long *count) {
  CALL("nvmlDeviceGetTotalEccErrors", device->number);
  *count = type == 1 && counter == 0 ? (unsigned long long)asked("uncorrected", device->number, 0) : 99;
  return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(Device *device, int *pending) {
  CALL("nvmlDeviceGetRetiredPagesPendingStatus", device->number);
  *pending = (int)asked("pages", device->number, 0);
  return OK;
}

#ifndef OLD
int nvmlDeviceGetTemperatureV(Device *device, Temperature *temperature) {
  CALL("nvmlDeviceGetTemperatureV", device->number);
  temperature->temperature = 34;
  return OK;
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *un, unsigned *pending, unsigned *failed) {
  CALL("nvmlDeviceGetRemappedRows", device->number);
  if (asked("mig", device->number, 0)) return NOT_SUPPORTED;
  *corrected = *un = 0;
  *pending = (unsigned)asked("pending", device->number, 0);
  *failed = (unsigned)asked("failed", device->number, 0);
  return OK;
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
  CALL("nvmlDeviceGetMigMode", device->number);
  *current = *pending = (unsigned)asked("mig", device->number, 0);
  return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
  CALL("nvmlDeviceGetMaxMigDeviceCount", device->number);
  *count = 7;
  return OK;
}

/* Slots 0 and 2 are taken. */
static Device slices[2] = {{0, 0}, {0, 1}};

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **slice) {
  CALL("nvmlDeviceGetMigDeviceHandleByIndex", device->number);
  if (index != 0 && index != 2) return NOT_FOUND;
  *slice = &slices[index / 2];
  (*slice)->number = device->number;
  return OK;
}
#endif
