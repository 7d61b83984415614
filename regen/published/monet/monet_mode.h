// Which decisions MONeT's model may take: the words of its mode names.
#pragma once

#include <string>
#include <string_view>

#include "regen/base/result.h"

namespace regen::published {

// A mode only restricts: what an instance or a graph does not offer is not there in any mode.
struct MonetMode {
  bool in_place = true;       // "inplace": ops may overwrite an input
  bool conv = true;           // "conv": every algorithm of a convolution; else the default one
  bool multiway = true;       // "multiway": backward ops may read their forward op's output
  bool newnode = true;        // "newnode": backward ops may read packed by-products
  bool checkpointing = true;  // not "ablation": forward ops may run again

  bool operator==(const MonetMode&) const = default;
};

// "all", or the words of a mode joined by _, as in inplace_conv_multiway_newnode; "normal" stands
// for none of them.
Result<MonetMode> parse_monet_mode(std::string_view text);
std::string to_string(const MonetMode& mode);

}  // namespace regen::published
