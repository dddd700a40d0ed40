// Tells the CPU build of PyTorch that there is one CUDA device, as far as shapes go: enough for fake tensors,
// autograd and torch.compile up to the generated code. Nothing is computed.
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device first() const { return {c10::DeviceType::CUDA, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return first(); }
  c10::Device getDevice() const override { return first(); }
  c10::Stream getStream(c10::Device) const noexcept override { return c10::Stream(c10::Stream::DEFAULT, first()); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};
c10::impl::DeviceGuardImplRegistrar guard(c10::DeviceType::CUDA, new Guard());

// What SDPA takes on an H100: cuDNN.
int64_t cudnn(const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
              double, bool, std::optional<double>, bool) {
  return static_cast<int64_t>(at::SDPBackend::cudnn_attention);
}
using Choice = std::remove_reference_t<decltype(at::native::_fused_sdp_choice_stub)>;
at::native::RegisterCUDADispatch<Choice> choice(at::native::_fused_sdp_choice_stub, &cudnn);

}  // namespace

struct CUDAHooks : at::CUDAHooksInterface {
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  at::DeviceIndex current_device() const override { return 0; }
  at::DeviceIndex deviceCount() const override { return 1; }
  at::DeviceIndex getCurrentDevice() const override { return 0; }
};
// PyTorch looks them up by this name.
using at::CUDAHooksRegistry;
namespace at {
using ::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
