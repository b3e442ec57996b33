#include "worker/profile/counters/nnls.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fsdp {
namespace {

// Of a pivot against its diagonal entry: below it a column is a combination of the ones before.
constexpr double kSingular = 1e-10;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Cholesky factor of the rows and columns in `chosen`; a column that depends on earlier ones gets a
// zero pivot and is left out by Substitute.
NormalMatrix Factor(const NormalMatrix& matrix, std::span<const std::size_t> chosen) {
  NormalMatrix factor(chosen.size());
  for (std::size_t j = 0; j < chosen.size(); ++j) {
    const double diagonal = matrix.at(chosen[j], chosen[j]);
    double pivot = diagonal;
    for (std::size_t k = 0; k < j; ++k) pivot -= factor.at(j, k) * factor.at(j, k);
    if (pivot <= kSingular * diagonal) continue;
    factor.at(j, j) = std::sqrt(pivot);
    for (std::size_t i = j + 1; i < chosen.size(); ++i) {
      double value = matrix.at(chosen[i], chosen[j]);
      for (std::size_t k = 0; k < j; ++k) value -= factor.at(i, k) * factor.at(j, k);
      factor.at(i, j) = value / factor.at(j, j);
    }
  }
  return factor;
}

// Solves L L' x = b; unknowns without a pivot are 0.
std::vector<double> Substitute(const NormalMatrix& factor, std::vector<double> x) {
  const std::size_t size = factor.size();
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t k = 0; k < i; ++k) x[i] -= factor.at(i, k) * x[k];
    x[i] = factor.at(i, i) > 0 ? x[i] / factor.at(i, i) : 0;
  }
  for (std::size_t i = size; i-- > 0;) {
    for (std::size_t k = i + 1; k < size; ++k) x[i] -= factor.at(k, i) * x[k];
    x[i] = factor.at(i, i) > 0 ? x[i] / factor.at(i, i) : 0;
  }
  return x;
}

std::vector<double> SolveChosen(const NormalMatrix& matrix, std::span<const double> target,
                                std::span<const std::size_t> chosen) {
  std::vector<double> right;
  right.reserve(chosen.size());
  for (const std::size_t i : chosen) right.push_back(target[i]);
  return Substitute(Factor(matrix, chosen), std::move(right));
}

// Moves x towards `wanted` as far as nothing becomes negative, and takes what reached zero out of
// `chosen`. True: all of the way.
bool Approach(std::span<const double> wanted, std::vector<std::size_t>* chosen,
              std::vector<double>* x) {
  // How far the i-th of chosen may go; a newcomer starts at zero.
  const auto limit = [&](std::size_t i) {
    const double now = (*x)[(*chosen)[i]];
    if (wanted[i] > 0) return 1.0;
    return now > 0 ? now / (now - wanted[i]) : 0.0;
  };
  double step = 1;
  for (std::size_t i = 0; i < chosen->size(); ++i) step = std::min(step, limit(i));
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < chosen->size(); ++i) {
    double& value = (*x)[(*chosen)[i]];
    // What limits the step becomes exactly zero, whatever rounding says.
    const bool limits = wanted[i] <= 0 && limit(i) <= step;
    value = limits ? 0 : value + step * (wanted[i] - value);
    if (value > 0) kept.push_back((*chosen)[i]);
  }
  const bool arrived = kept.size() == chosen->size();
  *chosen = std::move(kept);
  return arrived;
}

// The unknown whose growth lowers the residual fastest; size() when none does.
std::size_t Steepest(const NormalMatrix& matrix, std::span<const double> target,
                     std::span<const double> x, const std::vector<bool>& barred) {
  double scale = 0;
  for (const double value : target) scale = std::max(scale, std::abs(value));
  std::size_t best = matrix.size();
  double best_gradient = 1e-12 * scale;  // below it, rounding
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    if (x[i] > 0 || barred[i] || matrix.at(i, i) <= 0) continue;
    double gradient = target[i];
    for (std::size_t k = 0; k < matrix.size(); ++k) gradient -= matrix.at(i, k) * x[k];
    if (gradient > best_gradient) {
      best = i;
      best_gradient = gradient;
    }
  }
  return best;
}

}  // namespace

std::vector<double> SolveNonNegative(const NormalMatrix& matrix, std::span<const double> target) {
  const std::size_t size = matrix.size();
  std::vector<double> x(size, 0.0);
  std::vector<std::size_t> chosen;
  // Columns that the chosen ones stand for: taking one would change nothing.
  std::vector<bool> barred(size, false);
  // Each round lowers the residual, so no set comes twice; the limit is for rounding only.
  for (std::size_t round = 0; round < 10 * size + 10; ++round) {
    const std::size_t newcomer = Steepest(matrix, target, x, barred);
    if (newcomer == size) break;
    chosen.push_back(newcomer);
    while (!Approach(SolveChosen(matrix, target, chosen), &chosen, &x)) {
    }
    if (x[newcomer] > 0) {
      std::fill(barred.begin(), barred.end(), false);
    } else {
      barred[newcomer] = true;
    }
  }
  return x;
}

std::vector<double> InverseDiagonal(const NormalMatrix& matrix) {
  const std::size_t size = matrix.size();
  std::vector<double> result(size, kInfinity);
  // Each unknown comes last once: its pivot is what the others leave of it.
  for (std::size_t last = 0; last < size; ++last) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < size; ++i) {
      if (i != last) order.push_back(i);
    }
    order.push_back(last);
    const NormalMatrix factor = Factor(matrix, order);
    const double pivot = factor.at(size - 1, size - 1);
    if (pivot > 0) result[last] = 1 / (pivot * pivot);
  }
  return result;
}

}  // namespace fsdp
