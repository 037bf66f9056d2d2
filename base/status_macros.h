#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr` (an absl::Status) is not OK.
#define MONARCH_RETURN_IF_ERROR(expr)                                                        \
  do {                                                                                       \
    if (::absl::Status monarch_status = (expr); !monarch_status.ok()) return monarch_status; \
  } while (false)

// Evaluates `expr` (an absl::StatusOr<T>); returns its status, or moves its value into `lhs`.
#define MONARCH_ASSIGN_OR_RETURN(lhs, expr) \
  MONARCH_ASSIGN_OR_RETURN_IMPL_(MONARCH_CONCAT_(monarch_or_, __LINE__), lhs, expr)

#define MONARCH_ASSIGN_OR_RETURN_IMPL_(var, lhs, expr) \
  auto var = (expr);                                   \
  if (!var.ok()) return std::move(var).status();       \
  lhs = *std::move(var)

#define MONARCH_CONCAT_(a, b) MONARCH_CONCAT_INNER_(a, b)
#define MONARCH_CONCAT_INNER_(a, b) a##b
