#pragma once

#include <cstdint>

namespace monarch {

// The actor whose messages the calling thread handles; 0: none. While that thread waits, nobody does.
// Threading: a thread's own.
inline thread_local uint64_t served_actor = 0;

}  // namespace monarch
