#pragma once

#include "client/python/runtime_module/python.h"

namespace monarch::python {

// dumps_plain(object) -> bytes | None: the pickle (protocol 5) of None, bools, small ints, floats, short
// bytes and strs, tuples of at most three of these, and the empty dict; None for anything else. Such are the
// arguments and results of most calls, and a pickler object for each would cost more than the rest of
// sending.
// loads_plain(data, otherwise) -> object: loads such a pickle; anything else is left to otherwise(data).
void DefinePlainPickle(nb::module_& module);

}  // namespace monarch::python
