//! The clock that times single calls: the processor's time stamp counter where it is usable, else the system's.
//!
//! Usable means that it runs at one speed and does not stop (`constant_tsc`, `nonstop_tsc`). Each reading is fenced, so that
//! what is timed is neither begun before it nor finished after it. What a pair of readings costs by itself is measured once
//! and subtracted from each time.

use std::{
    fmt,
    time::{Duration, Instant},
};

/// How long the counter is compared with the system's clock to learn its speed.
const CALIBRATION: Duration = Duration::from_millis(20);
/// Pairs of readings of which the cheapest is taken for the cost of one.
const PAIRS: u32 = 50_000;

/// What a reading is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    #[cfg(target_arch = "x86_64")]
    Counter,
    System(Instant),
}

/// Reads ticks; any thread may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    source: Source,
    ns_per_tick: f64,
    /// Ticks that a pair of readings costs.
    overhead: u64,
}

impl Clock {
    /// The best clock of this machine.
    pub(super) fn new() -> Clock {
        let source = Source::choose();
        let mut clock = Clock { source, ns_per_tick: 1.0, overhead: 0 };
        if !matches!(source, Source::System(_)) {
            clock.ns_per_tick = clock.measure_tick();
        }
        let pair = |_| {
            let start = clock.start();
            clock.stop().saturating_sub(start)
        };
        clock.overhead = (0..PAIRS).map(pair).min().unwrap_or(0);
        clock
    }

    /// A tick is a nanosecond, and reading costs nothing.
    #[cfg(test)]
    pub(super) fn of_nanoseconds() -> Clock {
        Clock { source: Source::System(Instant::now()), ns_per_tick: 1.0, overhead: 0 }
    }

    /// Ticks before what is timed.
    #[inline]
    pub(super) fn start(&self) -> u64 {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Counter => counter::start(),
            Source::System(origin) => nanoseconds(origin),
        }
    }

    /// Ticks after what is timed.
    #[inline]
    pub(super) fn stop(&self) -> u64 {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Counter => counter::stop(),
            Source::System(origin) => nanoseconds(origin),
        }
    }

    /// Ticks from `start` to `stop`, without those of the two readings.
    #[inline]
    pub(super) fn between(&self, start: u64, stop: u64) -> u64 {
        stop.saturating_sub(start).saturating_sub(self.overhead)
    }

    /// Nanoseconds of so many ticks.
    #[inline]
    pub(super) fn ns(&self, ticks: u64) -> f64 {
        ticks as f64 * self.ns_per_tick
    }

    /// Nanoseconds that were subtracted from each time.
    pub(super) fn overhead_ns(&self) -> f64 {
        self.ns(self.overhead)
    }

    /// As JSON names it.
    pub(super) fn name(&self) -> &'static str {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Counter => "tsc",
            Source::System(_) => "clock_gettime",
        }
    }

    fn measure_tick(&self) -> f64 {
        let (began, first) = (Instant::now(), self.start());
        while began.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (last, elapsed) = (self.stop(), began.elapsed());
        elapsed.as_nanos() as f64 / last.saturating_sub(first).max(1) as f64
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            #[cfg(target_arch = "x86_64")]
            Source::Counter => write!(f, "the time stamp counter ({:.2} GHz)", 1.0 / self.ns_per_tick)?,
            Source::System(_) => f.write_str("clock_gettime (no constant time stamp counter here)")?,
        }
        write!(f, ", {:.1} ns for its two readings subtracted", self.overhead_ns())
    }
}

impl Source {
    fn choose() -> Source {
        #[cfg(target_arch = "x86_64")]
        if std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| is_steady(&text)) {
            return Source::Counter;
        }
        Source::System(Instant::now())
    }
}

#[inline]
fn nanoseconds(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the text of /proc/cpuinfo promises, for each processor, a counter of one speed that does not stop.
#[cfg(any(target_arch = "x86_64", test))]
fn is_steady(cpuinfo: &str) -> bool {
    let mut flags = cpuinfo.lines().filter(|line| line.starts_with("flags")).peekable();
    let steady =
        |line: &str| ["constant_tsc", "nonstop_tsc", "rdtscp"].iter().all(|f| line.split(' ').any(|w| w == *f));
    flags.peek().is_some() && flags.all(steady)
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use core::arch::x86_64::{__rdtscp, _mm_lfence, _rdtsc};

    #[inline]
    pub(super) fn start() -> u64 {
        // SAFETY: every x86-64 has the instruction.
        unsafe { _mm_lfence() };
        // SAFETY: as above; the kernel lets user space read the counter.
        let ticks = unsafe { _rdtsc() };
        // SAFETY: as above.
        unsafe { _mm_lfence() };
        ticks
    }

    #[inline]
    pub(super) fn stop() -> u64 {
        let mut processor = 0;
        // SAFETY: /proc/cpuinfo said that the processor has it; writes to a live variable.
        let ticks = unsafe { __rdtscp(&raw mut processor) };
        // SAFETY: every x86-64 has the instruction.
        unsafe { _mm_lfence() };
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects against timing with a counter that stops or changes its speed, on one processor of many.
    #[test]
    fn a_counter_that_is_not_steady_everywhere_is_not_used() {
        let good = "flags\t\t: fpu constant_tsc rdtscp nonstop_tsc sse\n";
        let bad = "flags\t\t: fpu constant_tsc rdtscp sse\n";
        assert!(is_steady(good) && is_steady(&format!("processor : 0\n{good}processor : 1\n{good}")));
        assert!(!is_steady(bad) && !is_steady(&format!("{good}{bad}")) && !is_steady(""));
    }

    /// Protects the scale: ten milliseconds are at least ten milliseconds, and no time goes below nothing.
    #[test]
    fn both_clocks_count_nanoseconds() {
        for clock in [Clock::new(), Clock::of_nanoseconds()] {
            let start = clock.start();
            std::thread::sleep(Duration::from_millis(10));
            let ns = clock.ns(clock.between(start, clock.stop()));
            assert!((9e6..5e9).contains(&ns), "{clock:?}: {ns}");
            assert_eq!(clock.between(5, 5), 0);
        }
    }
}
