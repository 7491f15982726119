// The emulated GPU as a pluggable device of TensorFlow, of type "GPU". TensorFlow places ops
// with GPU kernels on it, and copies tensors between it and the host.

#include <cstring>
#include <new>
#include <type_traits>

#include "custom_ops/emulated_gpu/cuda_runtime.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

// TensorFlow's state of an event, a stream and a timer. It is empty, because all work is
// synchronous.
struct SP_Event_st {};
struct SP_Stream_st {};
struct SP_Timer_st {};

namespace {

void Report(cudaError_t error, TF_Status* status) {
  if (error == cudaSuccess) return TF_SetStatus(status, TF_OK, "");
  TF_SetStatus(status, TF_INTERNAL, cudaGetErrorString(error));
}

void Allocate(const SP_Device*, uint64_t size, int64_t, SP_DeviceMemoryBase* memory) {
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->size = cudaMalloc(&memory->opaque, size) == cudaSuccess ? size : 0;
}

void Deallocate(const SP_Device*, SP_DeviceMemoryBase* memory) {
  cudaFree(memory->opaque);
  memory->opaque = nullptr;
  memory->size = 0;
}

constexpr std::align_val_t kHostAlignment{64};  // TensorFlow requires it of tensors

void* AllocateOnHost(const SP_Device*, uint64_t size) {
  return ::operator new(size, kHostAlignment);
}
void DeallocateOnHost(const SP_Device*, void* memory) {
  ::operator delete(memory, kHostAlignment);
}

TF_Bool NoStatistics(const SP_Device*, SP_AllocatorStats*) { return false; }

TF_Bool MemoryUsage(const SP_Device*, int64_t* free, int64_t* total) {
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  *free = *total = static_cast<int64_t>(properties.totalGlobalMem);
  return true;
}

void Copy(void* to, const void* from, uint64_t size, cudaMemcpyKind kind, TF_Status* status) {
  Report(cudaMemcpy(to, from, size, kind), status);
}

void Fill(SP_DeviceMemoryBase* to, uint8_t byte, uint64_t size, TF_Status* status) {
  Report(cudaMemset(to->opaque, byte, size), status);
}

template <class T>
void Create(T* handle, TF_Status* status) {
  *handle = new std::remove_pointer_t<T>;
  TF_SetStatus(status, TF_OK, "");
}

void SetExecutor(SP_StreamExecutor* executor) {
  executor->allocate = Allocate;
  executor->deallocate = Deallocate;
  executor->host_memory_allocate = AllocateOnHost;
  executor->host_memory_deallocate = DeallocateOnHost;
  executor->get_allocator_stats = NoStatistics;
  executor->device_memory_usage = MemoryUsage;

  executor->create_stream = [](const SP_Device*, SP_Stream* stream, TF_Status* status) {
    Create(stream, status);
  };
  executor->destroy_stream = [](const SP_Device*, SP_Stream stream) { delete stream; };
  executor->create_stream_dependency = [](const SP_Device*, SP_Stream, SP_Stream,
                                          TF_Status* status) { Report(cudaSuccess, status); };
  executor->get_stream_status = [](const SP_Device*, SP_Stream, TF_Status* status) {
    Report(cudaSuccess, status);
  };
  executor->create_event = [](const SP_Device*, SP_Event* event, TF_Status* status) {
    Create(event, status);
  };
  executor->destroy_event = [](const SP_Device*, SP_Event event) { delete event; };
  executor->get_event_status = [](const SP_Device*, SP_Event) { return SE_EVENT_COMPLETE; };
  executor->record_event =
      executor->wait_for_event = [](const SP_Device*, SP_Stream, SP_Event, TF_Status* status) {
        Report(cudaSuccess, status);
      };
  executor->create_timer = [](const SP_Device*, SP_Timer* timer, TF_Status* status) {
    Create(timer, status);
  };
  executor->destroy_timer = [](const SP_Device*, SP_Timer timer) { delete timer; };
  executor->start_timer =
      executor->stop_timer = [](const SP_Device*, SP_Stream, SP_Timer, TF_Status* status) {
        Report(cudaSuccess, status);
      };

  executor->memcpy_dtoh =
      [](const SP_Device*, SP_Stream, void* to, const SP_DeviceMemoryBase* from, uint64_t size,
         TF_Status* status) { Copy(to, from->opaque, size, cudaMemcpyDeviceToHost, status); };
  executor->memcpy_htod = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to,
                             const void* from, uint64_t size, TF_Status* status) {
    Copy(to->opaque, from, size, cudaMemcpyHostToDevice, status);
  };
  executor->memcpy_dtod = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to,
                             const SP_DeviceMemoryBase* from, uint64_t size,
                             TF_Status* status) {
    Copy(to->opaque, from->opaque, size, cudaMemcpyDeviceToDevice, status);
  };
  executor->sync_memcpy_dtoh = [](const SP_Device*, void* to, const SP_DeviceMemoryBase* from,
                                  uint64_t size, TF_Status* status) {
    Copy(to, from->opaque, size, cudaMemcpyDeviceToHost, status);
  };
  executor->sync_memcpy_htod = [](const SP_Device*, SP_DeviceMemoryBase* to, const void* from,
                                  uint64_t size, TF_Status* status) {
    Copy(to->opaque, from, size, cudaMemcpyHostToDevice, status);
  };
  executor->sync_memcpy_dtod = [](const SP_Device*, SP_DeviceMemoryBase* to,
                                  const SP_DeviceMemoryBase* from, uint64_t size,
                                  TF_Status* status) {
    Copy(to->opaque, from->opaque, size, cudaMemcpyDeviceToDevice, status);
  };
  executor->mem_zero = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, uint64_t size,
                          TF_Status* status) { Fill(to, 0, size, status); };
  executor->memset = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase* to, uint8_t byte,
                        uint64_t size, TF_Status* status) { Fill(to, byte, size, status); };
  executor->memset32 = [](const SP_Device*, SP_Stream, SP_DeviceMemoryBase*, uint32_t, uint64_t,
                          TF_Status* status) {
    TF_SetStatus(status, TF_UNIMPLEMENTED, "memset of words on the emulated GPU");
  };

  executor->block_host_for_event = [](const SP_Device*, SP_Event, TF_Status* status) {
    Report(cudaSuccess, status);
  };
  executor->synchronize_all_activity = [](const SP_Device*, TF_Status* status) {
    Report(cudaSuccess, status);
  };
  executor->host_callback = [](const SP_Device*, SP_Stream, SE_StatusCallbackFn callback,
                               void* argument) -> TF_Bool {
    TF_Status* const status = TF_NewStatus();
    callback(argument, status);
    const bool fine = TF_GetCode(status) == TF_OK;
    TF_DeleteStatus(status);
    return fine;
  };
}

void SetPlatform(SP_Platform* platform) {
  platform->name = "EMULATED";
  platform->type = "GPU";
  platform->supports_unified_memory = false;
  platform->use_bfc_allocator = false;  // so a protected page follows each tensor
  platform->force_memory_growth = true;
}

void SetPlatformFunctions(SP_PlatformFns* functions) {
  functions->get_device_count = [](const SP_Platform*, int* count, TF_Status* status) {
    Report(cudaGetDeviceCount(count), status);
  };
  functions->create_device = [](const SP_Platform*, SE_CreateDeviceParams* params,
                                TF_Status* status) {
    params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
    params->device->ordinal = params->ordinal;
    params->device->hardware_name = "emulated GPU";
    params->device->device_vendor = "tf_largeout";
    params->device->pci_bus_id = "none";
    Report(cudaSuccess, status);
  };
  functions->destroy_device = [](const SP_Platform*, SP_Device*) {};
  functions->create_device_fns = [](const SP_Platform*, SE_CreateDeviceFnsParams* params,
                                    TF_Status* status) {
    params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
    Report(cudaSuccess, status);
  };
  functions->destroy_device_fns = [](const SP_Platform*, SP_DeviceFns*) {};
  functions->create_stream_executor =
      [](const SP_Platform*, SE_CreateStreamExecutorParams* params, TF_Status* status) {
        params->stream_executor->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
        SetExecutor(params->stream_executor);
        Report(cudaSuccess, status);
      };
  functions->destroy_stream_executor = [](const SP_Platform*, SP_StreamExecutor*) {};
  functions->create_timer_fns = [](const SP_Platform*, SP_TimerFns* functions,
                                   TF_Status* status) {
    functions->nanoseconds = [](SP_Timer) -> uint64_t { return 0; };
    Report(cudaSuccess, status);
  };
  functions->destroy_timer_fns = [](const SP_Platform*, SP_TimerFns*) {};
}

}  // namespace

// TensorFlow calls these two functions when it loads the library.
void SE_InitPlugin(SE_PlatformRegistrationParams* params, TF_Status* status) {
  params->major_version = SE_MAJOR;
  params->minor_version = SE_MINOR;
  params->patch_version = SE_PATCH;
  params->platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  params->platform_fns->struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  SetPlatform(params->platform);
  SetPlatformFunctions(params->platform_fns);
  params->destroy_platform = [](SP_Platform*) {};
  params->destroy_platform_fns = [](SP_PlatformFns*) {};
  Report(cudaSuccess, status);
}

extern "C" void TF_InitKernel() {}
