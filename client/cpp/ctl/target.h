#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace monarch::ctl {

// Whom the operator named: a mesh of processes or actors (NAME), a member of one (NAME:RANK or NAME[RANK]),
// or a process (PID). Threading: immutable value.
struct Target {
  std::string name;              // all of it
  std::string mesh;              // without a rank
  std::optional<uint32_t> rank;  // given
  std::optional<int64_t> pid;    // if it is a number

  bool IsMember(const std::string& of, uint32_t at) const {
    return of == name || (rank.has_value() && of == mesh && at == *rank);
  }
};

Target ParseTarget(const std::string& text);

}  // namespace monarch::ctl
