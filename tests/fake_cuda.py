"""A fake CUDA driver: a libcuda.so.1 that reports the values of environment variables."""

import subprocess

from tests import compiler

SOURCE = r"""
#include <stdlib.h>
#include <string.h>

static int Number(const char* name) { return atoi(getenv(name)); }
static int Set(int* to, int value) { *to = value; return 0; }

int cuInit(unsigned) { return getenv("FAKE_CUDA_ERROR") ? 100 : 0; }
int cuDriverGetVersion(int* version) { return Set(version, Number("FAKE_CUDA_DRIVER")); }
int cuDeviceGetCount(int* count) { return Set(count, 1); }
int cuDeviceGet(int* device, int number) { return Set(device, number + 7); }
int cuDeviceGetName(char* name, int size, int device) {
  if (device != 7) return 101;
  strncpy(name, "Fake V100", size);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (device != 7) return 101;
  const int card = Number("FAKE_CUDA_CARD");
  return Set(value, attribute == 75 ? card / 10 : attribute == 76 ? card % 10 : -1);
}
"""


def environment(folder, driver, card):
    """Compiles the driver in a folder, and returns the environment of processes that use it.

    Args:
        folder: Folder of the driver.
        driver: CUDA version in CUDA's format, such as 13000 for 13.0.
        card: Compute capability, such as 70 for 7.0.
    """
    compiler.require()
    command = ["g++", "-x", "c", "-shared", "-fPIC", "-w", "-o", folder / "libcuda.so.1", "-"]
    subprocess.run(command, check=True, input=SOURCE, text=True)
    return {
        "LD_LIBRARY_PATH": str(folder),
        "FAKE_CUDA_DRIVER": str(driver),
        "FAKE_CUDA_CARD": str(card),
    }
