//! `bench cq`: the completion queue that several senders share, in every way that was thought of.
//!
//! N senders reserve, work and submit on one queue, as the transmit path does for N sockets of one pool; one consumer drains it.
//! A variant is a way to reserve (`reserve`), one to submit (`submit`) and a place for the words (`layout`), under a name
//! (`variant`); ready marks with helping are the library's own queue, `slipring::ring`, compiled into this program. Senders
//! are spread over the two processors. Each run checks that every packet came once and in its sender's order; one that does
//! not ends the bench.

mod clock;
mod latency;
mod layout;
mod lock;
mod plot;
mod queue;
mod reserve;
mod run;
mod submit;
mod summary;
#[cfg(test)]
mod tests;
mod variant;

use std::{fs::File, io::Write as _, path::PathBuf, time::Instant};

use super::{
    Setting,
    report::{Report, Subject},
    state::{State, pin},
};
use crate::{json::Json, table::Table};
use clock::Clock;
use plot::Panel;
use queue::Size;
use run::{Plan, Work};
use summary::{COLUMNS, LAST_COLUMN, Summary};
use variant::Variant;

/// Arguments of this bench alone.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of cq")]
pub(super) struct Options {
    /// Numbers of senders, 1 to 64.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,4,8", overrides_with = "threads",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// Places that the batched variants reserve at a time.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    /// Nanoseconds of work on a packet, between reserve and submit.
    #[arg(long, value_name = "NS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    work: u32,
    /// What to compare: reserve, submit, layout, or RESERVE/SUBMIT[/LAYOUT]; otherwise all. A wrong name lists the right ones.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    variants: Vec<String>,
    /// Print the distributions too, as the bcc tool funclatency does. JSON always has them.
    #[arg(long)]
    histograms: bool,
    /// Draw the results into this file (SVG).
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Entries of the completion ring.
const ENTRIES: u32 = 16384;

/// A variant with a number of senders.
#[derive(Debug)]
struct Case {
    senders: u32,
    variant: Variant,
    /// By state, in the order of [`Bench::states`].
    runs: Vec<Summary>,
}

/// What all runs have in common.
#[derive(Debug)]
struct Bench<'a> {
    setting: &'a Setting<'a>,
    options: &'a Options,
    clock: Clock,
    work: Work,
    states: &'static [State],
}

pub(super) fn run(setting: &Setting<'_>, report: &mut Report, options: &Options) -> Result<(), String> {
    let variants = variant::select(&options.variants)?;
    let picture = options.plot.as_ref().map(|path| {
        // Before the measuring: a place where nothing can be written is found out at once.
        let failed = move |e| format!("--plot {}: {e}", path.display());
        File::create(path).map(|file| (file, failed)).map_err(failed)
    });
    let picture = picture.transpose()?;
    pin(setting.processors.first);
    let states: &[State] =
        if setting.processors.second.is_some() { &[State::Near, State::Far] } else { &[State::OneCore] };
    let bench = Bench { setting, options, clock: Clock::new(), work: Work::of(options.work), states };
    let case = |(senders, variant)| Case { senders, variant, runs: vec![Summary::new(); states.len()] };
    let each = options.threads.iter().flat_map(|senders| variants.iter().map(|variant| (*senders, *variant)));
    let mut cases: Vec<Case> = each.map(case).collect();
    let thrown_away = bench.gather(&mut cases)?;
    bench.report(report, &cases);
    if options.threads.iter().any(|senders| *senders as usize > setting.processors.all().count()) {
        report.note(
            "where senders outnumber processors a call may be preempted in any variant: times and stalls include that",
        );
    }
    report.end(thrown_away);
    if let Some((mut file, failed)) = picture {
        file.write_all(bench.plot(&cases).as_bytes()).map_err(failed)?;
    }
    Ok(())
}

impl Bench<'_> {
    /// Do every case in turn, round after round, until each state has its runs or the time is over; the first round is finished
    /// in any case. Returns how many runs counted for nothing.
    fn gather(&self, cases: &mut [Case]) -> Result<u64, String> {
        let deadline = self.setting.deadline();
        let mut thrown_away = 0;
        for round in 0.. {
            for case in &mut *cases {
                if round > 0 && Instant::now() >= deadline {
                    return Ok(thrown_away);
                }
                pin(self.setting.processors.first);
                let (state, outcome) = self.setting.processors.probed(|| self.one_run(case));
                let outcome = outcome.map_err(|e| format!("{}, {} senders: {e}", case.variant, case.senders))?;
                match self.states.iter().position(|s| *s == state) {
                    Some(at) => case.runs[at].add(&outcome),
                    None => thrown_away += 1,
                }
            }
            if cases.iter().flat_map(|case| &case.runs).all(|summary| summary.runs() >= self.setting.runs) {
                break;
            }
        }
        Ok(thrown_away)
    }

    fn one_run(&self, case: &Case) -> Result<run::Outcome, String> {
        let size = Size { senders: case.senders, entries: ENTRIES, start: 0 };
        let plan = Plan {
            clock: &self.clock,
            processors: self.setting.processors,
            size,
            batch: if case.variant.is_batched() { self.options.batch } else { 1 },
            at_once: case.variant.at_once,
            work: self.work,
            time: self.setting.time,
            packets: u64::MAX,
        };
        run::run(&*queue::make(case.variant, size)?, &plan)
    }

    /// One line on how the figures were taken.
    fn heading(&self) -> String {
        let Options { batch, work, .. } = self.options;
        format!("work {work} ns a packet, batches of {batch}, a ring of {ENTRIES}; times by {}", self.clock)
    }

    /// The cases by number of senders and state: title, and those of them that have runs.
    fn panels<'a>(&self, cases: &'a [Case]) -> Vec<Panel<'a>> {
        let mut panels = Vec::new();
        for same in cases.chunk_by(|a, b| a.senders == b.senders) {
            for (at, state) in self.states.iter().enumerate() {
                let with_runs = same.iter().filter(|case| case.runs[at].runs() > 0);
                let rows: Vec<_> = with_runs.map(|case| (case.variant.to_string(), &case.runs[at])).collect();
                let runs = rows.iter().map(|(_, summary)| summary.runs()).min();
                let runs = runs.map_or_else(|| "not seen".to_owned(), |runs| format!("at least {runs} runs"));
                panels.push(Panel { title: format!("{} threads, {state}, {runs}", same[0].senders), rows });
            }
        }
        panels
    }

    fn report(&self, report: &Report, cases: &[Case]) {
        if report.is_json() {
            for case in cases {
                for (state, summary) in self.states.iter().zip(&case.runs) {
                    self.line(report, case, *state, summary);
                }
            }
            return;
        }
        println!("cq: {}", self.heading());
        for Panel { title, rows } in self.panels(cases) {
            println!("\n{title}");
            if rows.is_empty() {
                continue;
            }
            let right: Vec<usize> = (1..=COLUMNS.len()).collect();
            let mut table = Table::new().right(&right);
            table.row(COLUMNS.iter().copied().chain([LAST_COLUMN]));
            for (variant, summary) in &rows {
                table.row(summary.cells(variant.clone()));
            }
            table.print("");
            if self.options.histograms {
                for (variant, summary) in &rows {
                    print!("{}", summary.distributions(&format!("{title}, {variant}")));
                }
            }
        }
    }

    /// A JSON object: the members that all benches have, for the rate, and the rest behind them.
    fn line(&self, report: &Report, case: &Case, state: State, summary: &Summary) {
        let subject = Subject {
            bench: "cq",
            variant: case.variant.to_string(),
            threads: u64::from(case.senders),
            frame: 0,
            metric: "rate",
            unit: "M/s",
        };
        let mut members = vec![
            ("reserve_by", Json::text(variant::name(case.variant.reserve))),
            ("submit_by", Json::text(case.variant.submit_name())),
            ("layout", Json::text(variant::name(case.variant.layout))),
            ("batch", Json::Int(u64::from(self.options.batch))),
            ("work_ns", Json::Int(u64::from(self.options.work))),
            ("clock", Json::text(self.clock.name())),
            ("clock_overhead_ns", Json::Real(self.clock.overhead_ns())),
        ];
        if summary.runs() > 0 {
            members.extend(summary.members());
        }
        report.line_with(&subject, state, summary.rates(), members);
    }

    fn plot(&self, cases: &[Case]) -> String {
        plot::svg(&format!("slipring bench cq: {}", self.heading()), &self.panels(cases))
    }
}
