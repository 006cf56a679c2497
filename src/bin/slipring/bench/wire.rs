//! `bench wire`: one thread sends, another receives, over a lossless wire with both ends in this process; the same with two
//! processes (`pair`); beside them the C yardstick, in the same round, and the ratio to it. Then round trips of two processes.

use std::{
    thread,
    time::{Duration, Instant},
};

use slipring::sync::{AtomicBool, Ordering};

use super::{
    Setting,
    client::{Api, CHUNK, RING, Socket, Umem},
    pair::{self, How},
    report::{Measure, Report, Subject, gather},
    state::pin,
    yardstick,
};

const FRAMES: [u32; 4] = [64, 256, 1500, 9000];
/// The longest frame that the yardstick and a single chunk take.
const LONGEST: u32 = CHUNK - 256;
/// Chunks of each end's UMEM, as in the yardstick.
pub(super) const CHUNKS: u32 = 2048;

pub(super) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), String> {
    let api = Api::load(&setting.library.path)?;
    let yardstick = setting.yardsticks.as_ref().map(|dir| dir.join("wire"));
    if yardstick.is_none() {
        report.note("no C yardstick: build it with make bench, or name its directory with --yardsticks");
    }
    let mut measures: Vec<Measure<'_>> = Vec::new();
    for frame in FRAMES {
        let subject = |variant: &str| Subject {
            bench: "wire",
            variant: variant.to_owned(),
            threads: 2,
            frame: u64::from(frame),
            metric: "rate",
            unit: "Mpps",
        };
        let mut rival = None;
        let mut far_rival = None;
        if let Some(program) = yardstick.as_ref().filter(|_| frame <= LONGEST) {
            rival = Some(measures.len());
            far_rival = Some(measures.len() + 1);
            for (copies, variant) in [("1", "C by hand, one copy"), ("2", "C by hand, two copies")] {
                let (program, processors, time) = (program.clone(), setting.processors, setting.time);
                measures.push(Measure {
                    subject: subject(variant),
                    run: Box::new(move || yardstick::wire(&program, copies, frame, time, processors)),
                    rival: None,
                });
            }
        }
        for budget in [32, 64].into_iter().filter(|_| frame <= LONGEST) {
            measures.push(Measure {
                subject: subject(&format!("wire, {budget} a kick")),
                run: Box::new(move || one_run(api, setting, frame, budget)),
                rival,
            });
        }
        for (how, variant) in [(How::Calls, "two processes"), (How::Looks, "two processes, receiver only looks")] {
            measures.push(Measure {
                subject: subject(variant),
                run: Box::new(move || pair::throughput(api, setting, frame, how)),
                rival: far_rival,
            });
        }
    }
    for (how, variant) in [(How::Calls, "round trip, both awake"), (How::Sleeps, "round trip, both sleep")] {
        for (part, metric) in [(500, "p50"), (990, "p99"), (999, "p99.9")] {
            let variant = format!("{variant}, {metric}");
            let subject = Subject { bench: "wire", variant, threads: 2, frame: 60, metric, unit: "us" };
            let run = Box::new(move || pair::round_trip(api, setting, 60, how, part));
            measures.push(Measure { subject, run, rival: None });
        }
    }
    gather(setting, report, true, measures)
}

fn one_run(api: Api, setting: &Setting<'_>, frame: u32, budget: u32) -> Result<f64, String> {
    let second = setting.processors.second.ok_or("two processors are needed")?;
    let device = |end: &str| format!("wire:slipring-bench-{}/{end}?full=wait&budget={budget}", std::process::id());
    let mut far_umem = Umem::new(api, CHUNKS)?;
    far_umem.offer(RING);
    let mut receiver = Socket::new(&far_umem, &device("b"), true)?;
    let mut umem = Umem::new(api, CHUNKS)?;
    let mut sender = Socket::new(&umem, &device("a"), false)?;
    let stop = AtomicBool::new(false);
    let ready = AtomicBool::new(false);
    let (received, seconds) = thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            pin(second);
            ready.store(true, Ordering::Release);
            let mut received = 0u64;
            let mut sum = 0;
            while !stop.load(Ordering::Relaxed) {
                let n = far_umem.receive(&mut receiver.rx, &mut sum);
                if n == 0 {
                    std::hint::spin_loop();
                }
                received += u64::from(n);
            }
            std::hint::black_box(sum);
            received
        });
        while !ready.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        send(&mut umem, &mut sender, frame, setting.time);
        let seconds = start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        (receiving.join(), seconds)
    });
    let received = received.map_err(|_| "the receiving thread failed".to_owned())?;
    // Sockets before their UMEMs.
    drop((sender, receiver));
    if received == 0 {
        return Err("nothing was received".to_owned());
    }
    Ok(received as f64 / seconds / 1e6)
}

pub(super) fn send(umem: &mut Umem, socket: &mut Socket, frame: u32, time: Duration) {
    let mut free = chunks(0);
    let start = Instant::now();
    while start.elapsed() < time {
        for _ in 0..128 {
            socket.send(frame, &mut free);
            socket.kick();
            umem.reclaim(&mut free);
        }
    }
}

/// Addresses of the chunks from a number on.
pub(super) fn chunks(first: u32) -> Vec<u64> {
    (first..CHUNKS).map(|i| u64::from(i) * u64::from(CHUNK)).collect()
}
