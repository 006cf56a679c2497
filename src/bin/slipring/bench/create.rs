//! `bench create`: how long making and deleting takes, as programs that open and close sockets notice it.

use std::time::Instant;

use super::{
    Setting,
    client::{Api, Socket, Umem},
    report::{Measure, Report, Subject, gather},
};

const CHUNKS: u32 = 64;
/// What is made in one run.
const TIMES: u32 = 50;

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
        Measure {
            subject: subject("UMEM and socket on null, made and deleted"),
            run: Box::new(move || {
                timed(|| {
                    let umem = Umem::new(api, CHUNKS)?;
                    drop(Socket::new(&umem, "null?", true)?);
                    Ok(())
                })
            }),
            rival: None,
        },
        Measure {
            subject: subject("another socket on the same UMEM and queue"),
            run: Box::new(move || {
                let umem = Umem::new(api, CHUNKS)?;
                let first = Socket::new(&umem, "null?", true)?;
                let time = timed(|| Socket::new(&umem, "null?", true).map(drop));
                drop(first);
                time
            }),
            rival: None,
        },
    ];
    gather(setting, report, false, measures)
}

/// Microseconds of one turn.
fn timed(mut turn: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let start = Instant::now();
    for _ in 0..TIMES {
        turn()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES))
}
