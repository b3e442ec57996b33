#include "worker/profile/counters/nnls.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace fsdp {
namespace {

using Rows = std::vector<std::vector<double>>;

struct Problem {
  Rows rows;
  std::vector<double> target;
};

NormalMatrix NormalOf(const Rows& rows) {
  const std::size_t size = rows.front().size();
  NormalMatrix normal(size);
  for (const std::vector<double>& row : rows) {
    for (std::size_t i = 0; i < size; ++i) {
      for (std::size_t k = 0; k < size; ++k) normal.at(i, k) += row[i] * row[k];
    }
  }
  return normal;
}

std::vector<double> ProjectedOf(const Problem& problem) {
  std::vector<double> projected(problem.rows.front().size(), 0.0);
  for (std::size_t r = 0; r < problem.rows.size(); ++r) {
    for (std::size_t i = 0; i < projected.size(); ++i) {
      projected[i] += problem.rows[r][i] * problem.target[r];
    }
  }
  return projected;
}

double SquaredError(const Problem& problem, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t r = 0; r < problem.rows.size(); ++r) {
    double value = -problem.target[r];
    for (std::size_t i = 0; i < x.size(); ++i) value += problem.rows[r][i] * x[i];
    sum += value * value;
  }
  return sum;
}

std::vector<double> Solve(const Problem& problem) {
  return SolveNonNegative(NormalOf(problem.rows), ProjectedOf(problem));
}

// Gauss-Jordan with row exchange, unlike the solver's Cholesky. Empty: singular.
std::vector<double> SolveSquare(Rows a, std::vector<double> b) {
  const std::size_t size = b.size();
  for (std::size_t c = 0; c < size; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < size; ++r) {
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    }
    if (std::abs(a[pivot][c]) < 1e-9) return {};
    std::swap(a[c], a[pivot]);
    std::swap(b[c], b[pivot]);
    for (std::size_t r = 0; r < size; ++r) {
      if (r == c) continue;
      const double factor = a[r][c] / a[c][c];
      for (std::size_t k = c; k < size; ++k) a[r][k] -= factor * a[c][k];
      b[r] -= factor * b[c];
    }
  }
  for (std::size_t i = 0; i < size; ++i) b[i] /= a[i][i];
  return b;
}

// The least error over all sets of unknowns that may be positive.
double BruteForce(const Problem& problem) {
  const NormalMatrix normal = NormalOf(problem.rows);
  const std::vector<double> projected = ProjectedOf(problem);
  const std::size_t size = normal.size();
  double best = SquaredError(problem, std::vector<double>(size, 0.0));
  for (unsigned set = 1; set < 1U << size; ++set) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < size; ++i) {
      if ((set >> i & 1U) != 0) chosen.push_back(i);
    }
    Rows a(chosen.size(), std::vector<double>(chosen.size()));
    std::vector<double> b(chosen.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      b[i] = projected[chosen[i]];
      for (std::size_t k = 0; k < chosen.size(); ++k) a[i][k] = normal.at(chosen[i], chosen[k]);
    }
    const std::vector<double> part = SolveSquare(a, b);
    std::vector<double> x(size, 0.0);
    bool allowed = !part.empty();
    for (std::size_t i = 0; i < part.size(); ++i) {
      x[chosen[i]] = part[i];
      allowed = allowed && part[i] >= 0;
    }
    if (allowed) best = std::min(best, SquaredError(problem, x));
  }
  return best;
}

Problem Random(std::mt19937& random, std::size_t num_rows, std::size_t size) {
  std::uniform_real_distribution<double> value(-1, 1);
  Problem problem{Rows(num_rows, std::vector<double>(size)), std::vector<double>(num_rows)};
  for (auto& row : problem.rows) {
    for (double& entry : row) entry = value(random);
  }
  for (double& entry : problem.target) entry = value(random);
  return problem;
}

void ExpectBest(const Problem& problem) {
  const std::vector<double> x = Solve(problem);
  for (const double value : x) EXPECT_GE(value, 0);
  EXPECT_NEAR(SquaredError(problem, x), BruteForce(problem), 1e-8);
}

TEST(NnlsTest, IsAsGoodAsTryingEverySet) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    const std::size_t size = 1 + round % 6;
    ExpectBest(Random(random, size + round % 9, size));
  }
}

TEST(NnlsTest, FewerRowsThanUnknowns) {
  std::mt19937 random(8);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    ExpectBest(Random(random, 1 + round % 3, 5));
  }
}

TEST(NnlsTest, ColumnsThatAreTheSameOrSumsOfOthers) {
  std::mt19937 random(9);
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(round);
    Problem problem = Random(random, 8, 5);
    for (auto& row : problem.rows) {
      row[3] = row[0];
      row[4] = row[1] + 2 * row[2];
    }
    ExpectBest(problem);
  }
}

TEST(NnlsTest, NothingToDo) {
  EXPECT_EQ(Solve({{{0, 0}, {0, 0}}, {1, 2}}), (std::vector<double>{0, 0}));
  EXPECT_EQ(Solve({{{1, 2}, {3, 4}}, {0, 0}}), (std::vector<double>{0, 0}));
  EXPECT_EQ(Solve({{{1, 1}}, {-5}}), (std::vector<double>{0, 0}));
}

TEST(NnlsTest, AnExactMixtureIsRecovered) {
  const Problem problem{{{0.2, 0.8}, {0.5, 0.5}, {1, 0}}, {0.2 * 0.9 + 0.8 * 0.1, 0.5, 0.9}};
  const std::vector<double> x = Solve(problem);
  EXPECT_NEAR(x[0], 0.9, 1e-12);
  EXPECT_NEAR(x[1], 0.1, 1e-12);
}

TEST(InverseDiagonalTest, GrowsWhereColumnsResembleEachOther) {
  const std::vector<double> apart = InverseDiagonal(NormalOf({{1, 0}, {0, 1}}));
  EXPECT_NEAR(apart[0], 1, 1e-12);
  const std::vector<double> alike = InverseDiagonal(NormalOf({{1, 1}, {1, 0.9}}));
  EXPECT_GT(alike[1], 50);
  const std::vector<double> same = InverseDiagonal(NormalOf({{1, 1, 0}, {2, 2, 1}}));
  EXPECT_TRUE(std::isinf(same[0]));
  EXPECT_TRUE(std::isinf(same[1]));
  EXPECT_TRUE(std::isfinite(same[2]));
}

TEST(InverseDiagonalTest, AgreesWithTheInverse) {
  std::mt19937 random(10);
  for (int round = 0; round < 100; ++round) {
    const Problem problem = Random(random, 9, 4);
    const NormalMatrix normal = NormalOf(problem.rows);
    Rows a(4, std::vector<double>(4));
    for (std::size_t i = 0; i < 4; ++i) {
      for (std::size_t k = 0; k < 4; ++k) a[i][k] = normal.at(i, k);
    }
    const std::vector<double> diagonal = InverseDiagonal(normal);
    for (std::size_t i = 0; i < 4; ++i) {
      std::vector<double> unit(4, 0.0);
      unit[i] = 1;
      EXPECT_NEAR(diagonal[i], SolveSquare(a, unit)[i], 1e-6 * diagonal[i]);
    }
  }
}

}  // namespace
}  // namespace fsdp
