#ifndef FSDPCTL_COORDINATOR_WEB_ASSETS_H_
#define FSDPCTL_COORDINATOR_WEB_ASSETS_H_

// The files of assets/, compiled in.

#include <string_view>

namespace fsdp::coordinator {

struct WebAsset {
  std::string_view path;
  std::string_view content_type;
  std::string_view body;
};

// Null: there is none at this path.
const WebAsset* FindAsset(std::string_view path);

}  // namespace fsdp::coordinator

#endif  // FSDPCTL_COORDINATOR_WEB_ASSETS_H_
