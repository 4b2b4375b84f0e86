// A CUDA device whose streams and events do nothing, for builds of PyTorch without CUDA. Tensors that have a
// place and no memory (FakeTensorMode) can then lie on it, and autograd starts its thread.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {
constexpr auto kCuda = c10::DeviceType::CUDA;

struct Guard : c10::impl::NoOpDeviceGuardImpl<kCuda> {
  c10::Device getDevice() const override { return {kCuda, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return {kCuda, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, {kCuda, 0});
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};

struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  bool isBuilt() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};
}  // namespace

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
}
namespace at {
REGISTER_CUDA_HOOKS(CUDAHooks)
}
