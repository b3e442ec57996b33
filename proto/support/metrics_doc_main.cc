// fsdp-metrics-doc: prints docs/metrics.md.

#include <iostream>

#include "proto/support/metric_table.h"

int main() {
  std::cout << fsdp::MetricsMarkdown() << std::flush;
  return std::cout.good() ? 0 : 1;
}
