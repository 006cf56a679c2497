//! `bench create`: how long making and deleting takes, as programs that open and close sockets notice it: on the engine, and
//! on the kernel's AF_XDP beside libxdp, with the system calls counted.

use std::time::Instant;

use super::{
    Setting,
    client::{Api, Socket, Umem},
    namespace::{NEAR, QUEUES},
    report::{Measure, Report, Subject, gather},
    rivals::{Case, Counted, Figure, compare},
};

const CHUNKS: u32 = 64;
/// What is made in one run.
const TIMES: u32 = 50;
/// The same on veth, where the kernel takes its time.
const TURNS: u32 = 24;

const FIGURES: &[Figure] = &[
    Figure { key: "create", what: "made", metric: "time", unit: "us" },
    Figure { key: "delete", what: "deleted", metric: "time", unit: "us" },
    Figure { key: "cpu", what: "processor time of both", metric: "time", unit: "us" },
];

pub(super) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), String> {
    let api = Api::load(&setting.library.path)?;
    let subject = |variant: &str| Subject {
        bench: "create",
        variant: variant.to_owned(),
        threads: 1,
        frame: 0,
        metric: "time",
        unit: "us",
    };
    let measures = vec![
        Measure::one(subject("UMEM and socket on null, made and deleted"), move || {
            timed(|| {
                let umem = Umem::new(api, CHUNKS)?;
                drop(Socket::new(&umem, "null?", true)?);
                Ok(())
            })
        }),
        Measure::one(subject("another socket on the same UMEM and queue"), move || {
            let umem = Umem::new(api, CHUNKS)?;
            let first = Socket::new(&umem, "null?", true)?;
            let time = timed(|| Socket::new(&umem, "null?", true).map(drop));
            drop(first);
            time
        }),
    ];
    gather(setting, report, false, measures)?;
    compare(setting, report, "create", &on_veth())
}

fn on_veth() -> Vec<Case> {
    let kinds = [
        ("inhibit", "no default program"),
        ("first", "default program, bare interface"),
        ("join", "default program, joined"),
    ];
    let case = |(kind, variant): (&str, &str)| {
        let arguments =
            |turns: u32| ["create", kind, NEAR, &turns.to_string(), &QUEUES.to_string()].map(str::to_owned).to_vec();
        Case {
            variant: format!("UMEM and socket, {variant}"),
            frame: 0,
            arguments: arguments(TURNS),
            figures: FIGURES,
            // The dispatcher is tried when a program is brought.
            without_dispatcher: kind == "first",
            counted: Some(Counted { short: arguments(1), long: arguments(1 + TURNS), turns: f64::from(TURNS) }),
        }
    };
    kinds.map(case).into()
}

/// Microseconds of one turn.
fn timed(mut turn: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let start = Instant::now();
    for _ in 0..TIMES {
        turn()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES))
}
