#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace regen::execute {

// Around every call of a program's operators, whether measured or run. What PyTorch does above an operator (autograd,
// casts) is in the program already, so the caller's surroundings must not do it again: a device's worker takes over the
// caller's thread state, and a step may be planned inside `torch.autocast`.
struct BelowAutograd {
  explicit BelowAutograd(bool gradients = c10::GradMode::is_enabled()) : grad_mode(gradients) {}

  at::AutoDispatchBelowADInplaceOrView autograd;
  c10::AutoGradMode grad_mode;  // restored at the end
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

}  // namespace regen::execute
