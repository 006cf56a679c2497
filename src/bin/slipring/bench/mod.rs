//! `slipring bench`: figures, with the state of the machine in which they were taken.
//!
//! The library is loaded from its file, as a C program gets it (`client`); `state` says whether the two processors were near
//! or far, `report` gathers runs by state and prints them. `rivals` runs a C program with libxdp and with ours, in a namespace
//! of its own (`namespace`). One file a bench.

mod client;
mod cq;
mod create;
mod direct;
mod namespace;
mod pair;
mod passthrough;
mod report;
mod rivals;
mod state;
mod tx;
mod wire;
mod yardstick;

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use slipring::config;

use crate::{
    library::{self, Library},
    table::Table,
};
use report::Report;
use state::Processors;

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Benches that use two processors need both near and far ones for a full answer (a cache line takes under \
                        80 ns between them, or more); which it is changes by itself on a virtual machine. A state that does \
                        not come within --limit is reported as not seen. Runs during which the state changed are thrown away."
)]
pub(crate) struct Arguments {
    /// What to measure; without a name: say what there is.
    #[arg(value_enum)]
    names: Vec<Name>,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
    /// Runs in each state.
    #[arg(long, overrides_with = "runs", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Seconds to wait for the runs of all states, for each bench.
    #[arg(long, overrides_with = "limit", default_value_t = 60, value_name = "SECONDS")]
    limit: u64,
    /// Milliseconds of one run.
    #[arg(long, overrides_with = "time", default_value_t = 200, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    time: u64,
    /// The two processors to use, as in 0,1; otherwise the first two that are allowed.
    #[arg(long, value_name = "A,B")]
    cpus: Option<String>,
    /// The library's file, if not the one found by itself (also: SLIPRING_LIBRARY).
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Directory of the C yardsticks that make bench builds; otherwise build/bench of the build tree.
    #[arg(long, value_name = "DIR")]
    yardsticks: Option<PathBuf>,
    #[command(flatten)]
    cq: cq::Options,
}

/// The benches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Sending into the device null: the transmit path alone, on one processor.
    Tx,
    /// From one thread to another, and from one process to another, over a wire, beside a C program that does the same by hand.
    Wire,
    /// What an interposed call on a descriptor that is not ours costs.
    Passthrough,
    /// The completion queue that several senders share: ways to reserve and to submit, and where their words stand.
    Cq,
    /// Making and deleting UMEMs and sockets, on the engine and, beside libxdp, on the kernel's AF_XDP.
    Create,
    /// Traffic on the kernel's AF_XDP over veth, beside libxdp.
    Direct,
}

/// What every bench is given.
#[derive(Debug)]
pub(super) struct Setting<'a> {
    pub library: &'a Library,
    pub processors: Processors,
    pub yardsticks: Option<PathBuf>,
    /// Length of one run.
    pub time: Duration,
    pub runs: usize,
    limit: Duration,
}

impl Setting<'_> {
    /// When a bench that begins now gives up waiting for a state.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.names.is_empty() {
        let mut table = Table::new();
        for name in Name::value_variants() {
            let value = name.to_possible_value().expect("no variant is hidden");
            table.row([value.get_name().to_owned(), value.get_help().map(ToString::to_string).unwrap_or_default()]);
        }
        table.print("");
        return ExitCode::SUCCESS;
    }
    match measure(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("slipring bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> Result<(), String> {
    let library = library::find(arguments.library.as_deref()).map_err(|e| e.to_string())?;
    // UMEMs begin on the engine: every device of the benches is named by its specification.
    // SAFETY: no other thread exists yet.
    unsafe { std::env::set_var(config::VARIABLE, "") };
    let setting = Setting {
        processors: Processors::choose(arguments.cpus.as_deref())?,
        yardsticks: yardstick::directory(arguments.yardsticks.as_deref()),
        time: Duration::from_millis(arguments.time),
        runs: usize::try_from(arguments.runs).unwrap_or(usize::MAX),
        limit: Duration::from_secs(arguments.limit),
        library: &library,
    };
    let mut report = Report::new(arguments.json, &library.path);
    for name in &arguments.names {
        match name {
            Name::Tx => tx::run(&setting, &mut report),
            Name::Wire => wire::run(&setting, &mut report),
            Name::Passthrough => passthrough::run(&setting, &mut report),
            Name::Cq => cq::run(&setting, &mut report, &arguments.cq),
            Name::Create => create::run(&setting, &mut report),
            Name::Direct => direct::run(&setting, &mut report),
        }
        .map_err(|e| format!("{}: {e}", format!("{name:?}").to_lowercase()))?;
    }
    Ok(())
}
