// SPDX-License-Identifier: GPL-3.0-or-later
#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ecfs::bench {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Moments {
  double mean = 0, variance = 0;  // the variance as estimated from a sample; 0 of one value
};

Moments log_moments(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Moments m;
  for (const double v : values) m.mean += std::log(v) / n;
  for (const double v : values) m.variance += std::pow(std::log(v) - m.mean, 2);
  m.variance = values.size() > 1 ? m.variance / (n - 1) : 0;
  return m;
}

// The regularized incomplete beta function by its continued fraction (modified Lentz), for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto not_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / not_zero(1 - (a + b) * x / (a + 1)), result = d;
  for (int m = 1; m < 500; ++m) {
    for (const double term : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 / not_zero(1 + term * d);
      c = not_zero(1 + term / c);
      result *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-14) break;
  }
  return result * std::exp(a * std::log(x) + b * std::log1p(-x) - std::lgamma(a) - std::lgamma(b) + std::lgamma(a + b)) / a;
}

double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  return x < (a + 1) / (a + b + 2) ? beta_fraction(a, b, x) : 1 - beta_fraction(b, a, 1 - x);
}

}  // namespace

double median(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double student_t(double degrees) {
  // P(|T| > t) = I(degrees / (degrees + t²); degrees / 2, 1/2) falls as t grows: bisection.
  double low = 0, high = 1e6;
  while (high - low > 1e-10 * high) {
    const double t = (low + high) / 2;
    (incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) > 0.05 ? low : high) = t;
  }
  return high;
}

Spread spread_of(std::span<const double> values) {
  Spread s;
  s.n = values.size(), s.median = median(values), s.min = std::ranges::min(values), s.max = std::ranges::max(values);
  const Moments m = log_moments(values);
  s.mean = std::exp(m.mean);
  if (s.n < 2) {
    s.interval = {0, kInfinity};
    return s;
  }
  const auto n = static_cast<double>(s.n);
  const double half = student_t(n - 1) * std::sqrt(m.variance / n);
  s.interval = {std::exp(m.mean - half), std::exp(m.mean + half)};
  return s;
}

Change change_between(std::span<const double> earlier, std::span<const double> later) {
  const Moments a = log_moments(earlier), b = log_moments(later);
  const auto na = static_cast<double>(earlier.size()), nb = static_cast<double>(later.size());
  Change change{std::exp(b.mean - a.mean), {0, kInfinity}};
  if (earlier.size() < 2 || later.size() < 2) return change;
  const double ea = a.variance / na, eb = b.variance / nb;
  if (ea + eb == 0) {
    change.interval = {change.factor, change.factor};
    return change;
  }
  const double degrees = (ea + eb) * (ea + eb) / (ea * ea / (na - 1) + eb * eb / (nb - 1));
  const double half = student_t(degrees) * std::sqrt(ea + eb);
  change.interval = {std::exp(b.mean - a.mean - half), std::exp(b.mean - a.mean + half)};
  return change;
}

}  // namespace ecfs::bench
