//! Which processors are used, and how far apart they are.
//!
//! A virtual machine's processors are moved about by its host, and everything that crosses between two of them changes with
//! it two to ten times. So each run stands between two probes, and a run is worth something only if both say the same.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crossbeam_utils::CachePadded;
use slipring::sync::{AtomicU32, Ordering};

/// How far apart the two processors are, or that only one is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    OneCore,
    Near,
    Far,
    /// The state changed during the run.
    Mixed,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            State::OneCore => "one-core",
            State::Near => "near",
            State::Far => "far",
            State::Mixed => "mixed",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Below this many nanoseconds one way the processors are near.
const NEAR_NS: f64 = 80.0;
/// How long a probe takes.
const PROBE: Duration = Duration::from_millis(10);
/// Round trips between two looks at the clock.
const TRIPS: u32 = 200;

/// Processors that the benches run on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processors {
    pub first: usize,
    /// `None`: only one may be used.
    pub second: Option<usize>,
}

impl Processors {
    /// Those that the user names, or the first two on which this process may run.
    pub(crate) fn choose(named: Option<&str>) -> Result<Processors, String> {
        let allowed = allowed();
        let Some(text) = named else {
            let first = *allowed.first().ok_or("no processor may be used")?;
            return Ok(Processors { first, second: allowed.get(1).copied() });
        };
        let numbers: Vec<usize> = text.split(',').filter_map(|n| n.trim().parse().ok()).collect();
        match numbers[..] {
            [first, second] if first != second && allowed.contains(&first) && allowed.contains(&second) => {
                Ok(Processors { first, second: Some(second) })
            }
            _ => Err(format!("--cpus {text}: two different ones of {allowed:?} are wanted, as in 0,1")),
        }
    }

    /// The first, and the second where there is one.
    pub(super) fn all(self) -> impl Iterator<Item = usize> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Do `run` between two probes and say in which state it was.
    pub(crate) fn probed<T>(self, run: impl FnOnce() -> T) -> (State, T) {
        let before = self.probe();
        let result = run();
        let after = self.probe();
        (if before == after { before } else { State::Mixed }, result)
    }

    /// Bounce one cache line between the two processors for a while.
    fn probe(self) -> State {
        let Some(second) = self.second else { return State::OneCore };
        let line = CachePadded::new(AtomicU32::new(0));
        let stop = u32::MAX;
        let one_way = std::thread::scope(|scope| {
            scope.spawn(|| {
                pin(second);
                let mut next = 1;
                loop {
                    let now = line.load(Ordering::Acquire);
                    if now == stop {
                        return;
                    }
                    if now == next {
                        line.store(next + 1, Ordering::Release);
                        next += 2;
                    }
                }
            });
            pin(self.first);
            // The fastest turn: load slows others, and nothing makes a distant line arrive sooner.
            let mut fastest = f64::INFINITY;
            let mut value = 1;
            let end = Instant::now() + PROBE;
            while Instant::now() < end {
                let start = Instant::now();
                for _ in 0..TRIPS {
                    line.store(value, Ordering::Release);
                    while line.load(Ordering::Acquire) != value + 1 {}
                    value += 2;
                }
                fastest = fastest.min(start.elapsed().as_nanos() as f64 / f64::from(2 * TRIPS));
            }
            line.store(stop, Ordering::Release);
            fastest
        });
        if one_way < NEAR_NS { State::Near } else { State::Far }
    }
}

/// The middle value; the upper one of two.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Processors on which this process may run.
fn allowed() -> Vec<usize> {
    let set = affinity();
    let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: the index is below the size of the set.
    (0..most).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

fn affinity() -> libc::cpu_set_t {
    // SAFETY: an array of integers, for which 0 is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the C library writes at most the size of a live struct. On failure the set stays empty.
    unsafe { libc::sched_getaffinity(0, std::mem::size_of_val(&set), &raw mut set) };
    set
}

/// Keep the calling thread on one processor.
pub(super) fn pin(cpu: usize) {
    pin_to_any([cpu]);
}

/// Keep the calling thread on these processors.
pub(super) fn pin_to_any(cpus: impl IntoIterator<Item = usize>) {
    // SAFETY: an array of integers, for which 0 is a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: `cpu` came from `allowed`, so it is below the size of the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: a live set of the given size. A failure leaves the thread where the kernel likes: slower, not wrong.
    unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(&set), &raw const set) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the choice of processors: never the same one twice, never one that may not be used.
    #[test]
    fn processors_are_two_different_allowed_ones() {
        let allowed = allowed();
        let chosen = Processors::choose(None).unwrap();
        assert_eq!((chosen.first, chosen.second), (allowed[0], allowed.get(1).copied()));
        let first = allowed[0];
        for bad in [format!("{first},{first}"), format!("{first},9999"), "x".into(), String::new(), first.to_string()] {
            assert!(Processors::choose(Some(&bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_probe_ends_and_one_processor_has_one_state() {
        let one = Processors { first: allowed()[0], second: None };
        assert_eq!(one.probed(|| 5), (State::OneCore, 5));
        let set = affinity();
        let (state, ()) = Processors::choose(None).unwrap().probed(|| ());
        assert!(allowed().len() == 1 || state != State::OneCore);
        // SAFETY: gives the thread back the set that it had.
        unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(&set), &raw const set) };
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert!(median(&mut []).is_nan());
    }
}
