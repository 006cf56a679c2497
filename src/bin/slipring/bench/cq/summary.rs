//! The runs of one variant in one state, put together, and how they are printed.

use super::{
    super::state::median,
    latency::{Latency, bounds, distribution},
    run::Outcome,
};
use crate::json::Json;

/// Several runs. Rate, means and fairness are medians of the runs; percentiles and distributions are of all calls of all runs;
/// maximum and starvation are the worst of all runs; the rest are totals, by the second or by the packet.
#[derive(Clone, Debug)]
pub(super) struct Summary {
    rates: Vec<f64>,
    fairness: Vec<f64>,
    seconds: f64,
    packets: u64,
    lost: u64,
    refused: u64,
    starved_ns: f64,
    pub reserve: Step,
    pub submit: Step,
}

/// One of the two steps.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub all: Latency,
    means: Vec<f64>,
    /// Of a call's time, by the packets of the run.
    means_a_packet: Vec<f64>,
}

impl Step {
    fn new() -> Step {
        Step { all: Latency::new(), means: Vec::new(), means_a_packet: Vec::new() }
    }

    fn add(&mut self, run: &Latency, packets: u64) {
        self.all.add(run);
        if run.calls() != 0 {
            self.means.push(run.mean_ns());
            self.means_a_packet.push(run.total_ns() / packets as f64);
        }
    }

    /// Nanoseconds of a call.
    fn mean_ns(&self) -> f64 {
        median(&mut self.means.clone())
    }

    /// Nanoseconds by the packet.
    pub(super) fn packet_ns(&self) -> f64 {
        median(&mut self.means_a_packet.clone())
    }
}

/// Jain's index: 1 where all have the same, 1/n where one has everything.
fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|n| *n as f64).sum();
    let squares: f64 = shares.iter().map(|n| (*n as f64).powi(2)).sum();
    sum * sum / (shares.len() as f64 * squares)
}

/// The columns of [`Summary::cells`]. Times are nanoseconds unless the name says otherwise.
pub(super) const COLUMNS: [&str; 19] = [
    "variant", "M/s", "reserve", "a packet", "p50", "p99", "p99.9", "max us", "stalls/s", "submit", "a packet", "p50",
    "p99", "p99.9", "max us", "stalls/s", "lost CAS", "refused", "Jain",
];
/// Behind them.
pub(super) const LAST_COLUMN: &str = "starved ms";

impl Summary {
    pub(super) fn new() -> Summary {
        Summary {
            rates: Vec::new(),
            fairness: Vec::new(),
            seconds: 0.0,
            packets: 0,
            lost: 0,
            refused: 0,
            starved_ns: 0.0,
            reserve: Step::new(),
            submit: Step::new(),
        }
    }

    pub(super) fn add(&mut self, run: &Outcome) {
        let packets = run.packets.iter().sum();
        self.rates.push(packets as f64 / run.seconds / 1e6);
        self.fairness.push(jain(&run.packets));
        self.seconds += run.seconds;
        self.packets += packets;
        self.lost += run.lost;
        self.refused += run.refused;
        self.starved_ns = self.starved_ns.max(run.starved_ns);
        self.reserve.add(&run.reserve, packets);
        self.submit.add(&run.submit, packets);
    }

    /// How many.
    pub(super) fn runs(&self) -> usize {
        self.rates.len()
    }

    /// Million packets a second, of each run.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.rates.clone()
    }

    /// The median of [`rates`](Self::rates).
    pub(super) fn rate(&self) -> f64 {
        median(&mut self.rates.clone())
    }

    fn jain(&self) -> f64 {
        median(&mut self.fairness.clone())
    }

    fn a_second(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }

    fn a_packet(&self, count: u64) -> f64 {
        count as f64 / self.packets as f64
    }

    /// A row of the table.
    pub(super) fn cells(&self, variant: String) -> Vec<String> {
        let ns = |x: f64| if x.is_finite() { format!("{x:.0}") } else { "-".to_owned() };
        let small = |x: f64| if x.is_finite() { format!("{x:.4}") } else { "-".to_owned() };
        let mut row = vec![variant, format!("{:.3}", self.rate())];
        for step in [&self.reserve, &self.submit] {
            let all = &step.all;
            row.extend([step.mean_ns(), step.packet_ns()].map(|x| format!("{x:.1}")));
            row.extend([0.5, 0.99, 0.999].map(|part| ns(all.quantile_ns(part))));
            row.extend([ns(all.max_ns() / 1e3), format!("{:.1}", self.a_second(all.stalls()))]);
        }
        row.extend([small(self.a_packet(self.lost)), small(self.a_packet(self.refused)), small(self.jain())]);
        row.push(format!("{:.1}", self.starved_ns / 1e6));
        row
    }

    /// What JSON says beyond the rate.
    pub(super) fn members(&self) -> Vec<(&'static str, Json)> {
        vec![
            ("reserve", self.step(&self.reserve)),
            ("submit", self.step(&self.submit)),
            ("cas_failures", Json::Int(self.lost)),
            ("cas_failures_a_packet", Json::Real(self.a_packet(self.lost))),
            ("refused", Json::Int(self.refused)),
            ("refused_a_packet", Json::Real(self.a_packet(self.refused))),
            ("jain", Json::Real(self.jain())),
            ("starved_ms", Json::Real(self.starved_ns / 1e6)),
            ("packets", Json::Int(self.packets)),
            ("seconds", Json::Real(self.seconds)),
        ]
    }

    fn step(&self, step: &Step) -> Json {
        let all = &step.all;
        let bucket = |(at, count): (usize, &u64)| {
            let (low, high) = bounds(at);
            Json::List([low, high, *count].map(Json::Int).into())
        };
        Json::Object(vec![
            ("calls", Json::Int(all.calls())),
            ("mean_ns", Json::Real(step.mean_ns())),
            ("mean_a_packet_ns", Json::Real(step.packet_ns())),
            ("p50_ns", Json::Real(all.quantile_ns(0.5))),
            ("p99_ns", Json::Real(all.quantile_ns(0.99))),
            ("p999_ns", Json::Real(all.quantile_ns(0.999))),
            ("max_ns", Json::Real(all.max_ns())),
            ("stalls_a_second", Json::Real(self.a_second(all.stalls()))),
            ("histogram_ns", Json::List(all.buckets().iter().enumerate().map(bucket).collect())),
        ])
    }

    /// Both distributions as the tool prints them.
    pub(super) fn distributions(&self, variant: &str) -> String {
        let mut out = String::new();
        for (name, step) in [("reserve", &self.reserve), ("submit", &self.submit)] {
            let all = &step.all;
            out += &format!("\n{variant}: {name}\n{}", distribution(&all.buckets()));
            out += &format!(
                "\navg = {:.0} nsecs, total: {:.0} nsecs, count: {}\n",
                all.mean_ns(),
                all.total_ns(),
                all.calls()
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{super::clock::Clock, *};

    /// Protects the index against its definition.
    #[test]
    fn jains_index_is_one_for_equals_and_falls_with_inequality() {
        assert_eq!(jain(&[5, 5, 5, 5]), 1.0);
        assert_eq!(jain(&[7, 0, 0, 0]), 0.25);
        assert!((jain(&[1, 3]) - 0.8).abs() < 1e-12);
    }

    fn outcome(rate: u64, starved_ns: f64) -> Outcome {
        let mut reserve = Latency::new();
        for ns in [40, 60] {
            reserve.record(&Clock::of_nanoseconds(), 0, ns);
        }
        let submit = reserve.clone();
        Outcome { seconds: 1.0, packets: vec![rate, rate], lost: 1, refused: 3, reserve, submit, starved_ns }
    }

    /// Protects what is a median of runs, what is a total, and what is the worst.
    #[test]
    fn runs_are_put_together() {
        let mut summary = Summary::new();
        for (rate, starved) in [(1_000_000, 5e6), (4_000_000, 9e6), (2_000_000, 1e6)] {
            summary.add(&outcome(rate, starved));
        }
        assert_eq!((summary.runs(), summary.rate()), (3, 4.0));
        let cells = summary.cells("v".into());
        assert_eq!(cells.len(), COLUMNS.len() + 1);
        assert_eq!(cells[..3], ["v", "4.000", "50.0"]);
        assert_eq!(cells.last().unwrap(), "9.0");
        let text = Json::Object(summary.members()).to_string();
        assert!(text.contains(r#""cas_failures":3,"#) && text.contains(r#""refused":9,"#), "{text}");
        assert!(text.contains(r#""histogram_ns":[[0,1,0],[2,3,0],[4,7,0],[8,15,0],[16,31,0],[32,63,6]]"#), "{text}");
        let text = summary.distributions("v");
        assert!(text.contains("        32 -> 63         : 6        |****") && text.contains("count: 6"), "{text}");
    }
}
