#include "coordinator/metrics/counters.h"

namespace fsdp::coordinator {

void Counters::Add(std::string_view name, std::string_view label, std::string_view label2,
                   double amount) {
  const std::lock_guard lock(mutex_);
  counters_[{std::string(name), {std::string(label), std::string(label2)}}] += amount;
}

void Counters::Observe(std::string_view name, absl::Duration value, std::string_view label) {
  MetricHistogram* histogram = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& slot = histograms_[{std::string(name), {std::string(label), ""}}];
    if (slot == nullptr) slot = std::make_unique<MetricHistogram>(name);
    histogram = slot.get();
  }
  histogram->Observe(absl::ToDoubleSeconds(value));
}

double Counters::Value(std::string_view name, std::string_view label,
                       std::string_view label2) const {
  const std::lock_guard lock(mutex_);
  const auto entry = counters_.find({std::string(name), {std::string(label), std::string(label2)}});
  return entry == counters_.end() ? 0 : entry->second;
}

void Counters::AddTo(MetricFamilies* families) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, value] : counters_) {
    const auto& [name, labels] = key;
    if (labels[0].empty()) {
      families->Add(name, {}, value);
    } else if (labels[1].empty()) {
      families->Add(name, {labels[0]}, value);
    } else {
      families->Add(name, {labels[0], labels[1]}, value);
    }
  }
  for (const auto& [key, histogram] : histograms_) {
    if (key.second[0].empty()) {
      histogram->AddTo(families, {});
    } else {
      histogram->AddTo(families, {key.second[0]});
    }
  }
}

}  // namespace fsdp::coordinator
