//! `bench tx`: N sockets on one UMEM and one queue send into `null` from one thread.

use std::time::Instant;

use super::{
    Setting,
    client::{Api, BATCH, CHUNK, Socket, Umem},
    report::{Measure, Report, Subject, gather},
};

/// Sockets, bytes of a frame, frames a kick.
const VARIANTS: [(usize, u32, u32); 5] = [(1, 64, 32), (1, 64, 64), (4, 64, 64), (1, 1500, 64), (4, 1500, 64)];
/// Chunks of the UMEM.
const CHUNKS: u32 = 2048;

pub(super) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), String> {
    let api = Api::load(&setting.library.path)?;
    let measures = VARIANTS.map(|(sockets, frame, budget)| Measure {
        subject: Subject {
            bench: "tx",
            variant: format!("null, {sockets} socket{}, {budget} a kick", if sockets == 1 { "" } else { "s" }),
            threads: 1,
            frame: u64::from(frame),
            metric: "rate",
            unit: "Mpps",
        },
        run: Box::new(move || one_run(api, setting, sockets, frame, budget)),
        rival: None,
    });
    gather(setting, report, false, measures.into())
}

fn one_run(api: Api, setting: &Setting<'_>, sockets: usize, frame: u32, budget: u32) -> Result<f64, String> {
    let mut umem = Umem::new(api, CHUNKS)?;
    let device = format!("null?budget={budget}");
    let mut all = (0..sockets).map(|_| Socket::new(&umem, &device, false)).collect::<Result<Vec<_>, _>>()?;
    let mut free: Vec<u64> = (0..u64::from(CHUNKS)).map(|i| i * u64::from(CHUNK)).collect();
    let mut turn = |n: u32| {
        let mut completed = 0u64;
        for _ in 0..n {
            for socket in &mut all {
                socket.send(frame, &mut free);
                socket.kick();
                completed += u64::from(umem.reclaim(&mut free));
            }
        }
        completed
    };
    // Caches, page tables and branch predictors.
    turn(2000);
    let start = Instant::now();
    let mut completed = 0;
    while start.elapsed() < setting.time {
        completed += turn(256);
    }
    let seconds = start.elapsed().as_secs_f64();
    if completed < u64::from(BATCH) {
        return Err("nothing was sent".to_owned());
    }
    Ok(completed as f64 / seconds / 1e6)
}
