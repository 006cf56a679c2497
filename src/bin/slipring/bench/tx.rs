//! `bench tx`: N sockets on one UMEM and one queue send into `null` from one thread.
//!
//! All the work is that thread's, so the rate is taken per second of processor time, of the whole process: on a quiet machine
//! that is the time on the clock, and on a busy one other programs are left out.

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
    let measures = VARIANTS.map(|(sockets, frame, budget)| {
        let subject = Subject {
            bench: "tx",
            variant: format!("null, {sockets} socket{}, {budget} a kick", if sockets == 1 { "" } else { "s" }),
            threads: 1,
            frame: u64::from(frame),
            metric: "rate",
            unit: "Mpps",
        };
        Measure::one(subject, move || one_run(api, setting, sockets, frame, budget))
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
    let start = processor_time();
    let mut completed = 0;
    let mut seconds = 0.0;
    while seconds < setting.time.as_secs_f64() {
        completed += turn(256);
        seconds = processor_time() - start;
    }
    if completed < u64::from(BATCH) {
        return Err("nothing was sent".to_owned());
    }
    Ok(completed as f64 / seconds / 1e6)
}

/// Seconds that all threads of this process have run.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the C library fills one live struct; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
