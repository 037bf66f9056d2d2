#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "message/link.h"

namespace monarch {

// Two ends of a link, and what differs between implementations.
// Threading: AwaitRoom confined to left's sender, AwaitFrames to right's receiver.
class LinkRig {
 public:
  virtual ~LinkRig() = default;
  virtual Link& left() = 0;
  virtual Link& right() = 0;
  // After a kFull of left: asks for the signal and waits for it. False if none came in half a minute.
  virtual bool AwaitRoom() = 0;
  // Waits until right was told of frames. False if it was not in half a minute.
  virtual bool AwaitFrames() = 0;
  // Makes right receive `bytes` where a frame is expected. Not to be mixed with sends of left.
  virtual void Inject(std::string_view bytes) = 0;
};

// What every Link does. To be called in a test case; each property is a section with a rig of its own.
void CheckLinkConformance(const std::function<std::unique_ptr<LinkRig>()>& make_rig);

}  // namespace monarch
