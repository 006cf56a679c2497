//! How long calls took: mean, percentiles, maximum, stalls, and the counts by powers of two.

use hdrhistogram::Histogram;

use super::clock::Clock;

/// The longest time that is told from longer ones by the percentiles; the maximum has no bound.
const LONGEST_NS: u64 = 60_000_000_000;
/// Digits of the percentiles: better than one in a hundred, in tables small enough not to push what is measured out of the cache.
const DIGITS: u8 = 2;
/// From this on a call has stalled.
const STALL_NS: f64 = 1e6;

/// Times of calls.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    histogram: Histogram<u64>,
    total_ns: f64,
    max_ns: f64,
    stalls: u64,
}

impl Latency {
    pub(super) fn new() -> Latency {
        let histogram =
            Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds and digits are allowed ones");
        Latency { histogram, total_ns: 0.0, max_ns: 0.0, stalls: 0 }
    }

    /// One call from `start` to `stop`.
    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and `as` saturates")]
    pub(super) fn record(&mut self, clock: &Clock, start: u64, stop: u64) {
        let ns = clock.ns(clock.between(start, stop));
        self.histogram.saturating_record(ns as u64);
        self.total_ns += ns;
        self.max_ns = self.max_ns.max(ns);
        self.stalls += u64::from(ns >= STALL_NS);
    }

    pub(super) fn add(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
        self.total_ns += other.total_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.stalls += other.stalls;
    }

    pub(super) fn calls(&self) -> u64 {
        self.histogram.len()
    }

    /// NaN without a call, as the others.
    pub(super) fn mean_ns(&self) -> f64 {
        self.total_ns / self.calls() as f64
    }

    pub(super) fn total_ns(&self) -> f64 {
        self.total_ns
    }

    /// What this part of the calls, 0 to 1, do not exceed.
    pub(super) fn quantile_ns(&self, part: f64) -> f64 {
        if self.calls() == 0 { f64::NAN } else { self.histogram.value_at_quantile(part) as f64 }
    }

    pub(super) fn max_ns(&self) -> f64 {
        if self.calls() == 0 { f64::NAN } else { self.max_ns }
    }

    /// Calls of a millisecond and more.
    pub(super) fn stalls(&self) -> u64 {
        self.stalls
    }

    /// How many calls took 0 to 1 ns, 2 to 3, 4 to 7, ...; up to the last that is not 0.
    pub(super) fn buckets(&self) -> Vec<u64> {
        let mut buckets = Vec::new();
        for step in self.histogram.iter_recorded() {
            // The tables' own steps begin and end at powers of two, so none lies in two buckets.
            let at = step.value_iterated_to().max(1).ilog2() as usize;
            if buckets.len() <= at {
                buckets.resize(at + 1, 0);
            }
            buckets[at] += step.count_since_last_iteration();
        }
        buckets
    }
}

/// The first and the last value of a bucket.
pub(super) fn bounds(bucket: usize) -> (u64, u64) {
    (if bucket == 0 { 0 } else { 1 << bucket }, (2 << bucket) - 1)
}

/// Width of the longest bar of a printed distribution.
const STARS: usize = 40;

/// The counts in the form in which the bcc tool `funclatency` prints them.
pub(super) fn distribution(buckets: &[u64]) -> String {
    let most = buckets.iter().copied().max().unwrap_or(0).max(1);
    let mut out = format!("     {:<19} : count     distribution\n", "nsecs");
    for (bucket, count) in buckets.iter().enumerate() {
        let (low, high) = bounds(bucket);
        let stars = usize::try_from(u128::from(*count) * STARS as u128 / u128::from(most)).unwrap_or(STARS);
        let bar = "*".repeat(stars);
        out += &format!("{low:>10} -> {high:<10} : {count:<8} |{bar:<STARS$}|\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>) -> Latency {
        let clock = Clock::of_nanoseconds();
        let mut latency = Latency::new();
        times.into_iter().for_each(|ns| latency.record(&clock, 0, ns));
        latency
    }

    /// Protects every figure against its definition, and that adding two is the same as recording all in one.
    #[test]
    fn figures_are_those_of_the_times() {
        let mut latency = of(1..=500);
        latency.add(&of((501..=999).chain([2_000_000])));
        assert_eq!((latency.calls(), latency.stalls()), (1000, 1));
        assert!((latency.mean_ns() - 2499.5).abs() < 0.01, "{}", latency.mean_ns());
        assert_eq!(latency.max_ns(), 2e6);
        for (part, ns) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let got = latency.quantile_ns(part);
            assert!((got / ns - 1.0).abs() < 0.01, "{part}: {got}");
        }
    }

    /// Protects the counts by powers of two: a time is in the bucket whose bounds hold it, whatever the tables round.
    #[test]
    fn buckets_are_powers_of_two() {
        for bucket in 0..34 {
            let (low, high) = bounds(bucket);
            let buckets = of([low, high]).buckets();
            assert_eq!((buckets.len(), buckets[bucket]), (bucket + 1, 2));
        }
        assert!(Latency::new().buckets().is_empty());
        assert!(Latency::new().max_ns().is_nan() && Latency::new().quantile_ns(0.5).is_nan());
    }

    /// Protects the form that people know from the tool.
    #[test]
    fn distributions_look_as_the_tool_prints_them() {
        let text = distribution(&[0, 1, 2]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "     nsecs               : count     distribution");
        assert_eq!(lines[1], "         0 -> 1          : 0        |                                        |");
        assert_eq!(lines[2], "         2 -> 3          : 1        |********************                    |");
        assert_eq!(lines[3], "         4 -> 7          : 2        |****************************************|");
    }
}
