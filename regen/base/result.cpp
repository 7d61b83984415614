#include "regen/base/result.h"

namespace regen {

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInfeasible:
      return 1;
    case ErrorCode::kBadInput:
    case ErrorCode::kMissing:
      return 2;
    case ErrorCode::kLimit:
      return 3;
  }
  return 2;
}

}  // namespace regen
