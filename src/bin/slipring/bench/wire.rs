//! `bench wire`: one thread sends, another receives, over a lossless wire with both ends in this process; the same with two
//! processes (`pair`); beside them the C yardstick, in the same round, and the ratio to it. Then round trips of two processes.
//! Where root allows, the two processes also run over veth with the kernel's AF_XDP, in the same rounds (`namespace`).

use std::{
    thread,
    time::{Duration, Instant},
};

use slipring::sync::{AtomicBool, Ordering};

use super::{
    Setting,
    client::{Api, CHUNK, RING, Socket, Umem},
    namespace,
    pair::{self, How, Over},
    report::{Measure, Report, Subject, gather},
    state::pin,
    yardstick,
};

const FRAMES: [u32; 4] = [64, 256, 1500, 9000];
/// Frames that also go over veth.
const ON_VETH: [u32; 2] = [64, 1500];
/// Bytes of the frames of round trips.
const TRIP: u32 = 60;
const WITHOUT_VETH: &str = "wire beside veth: skipped";
/// The longest frame that the yardstick and a single chunk take.
const LONGEST: u32 = CHUNK - 256;
/// Chunks of each end's UMEM, as in the yardstick.
pub(super) const CHUNKS: u32 = 2048;

pub(super) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), String> {
    let api = Api::load(&setting.library.path)?;
    if setting.yardsticks.is_none() {
        report.note("no C yardstick: build it with make bench, or name its directory with --yardsticks");
    }
    // A wire is the same in a namespace of its own, so all is measured there, in turns.
    let beside = namespace::inside(|| {
        let trial = pair::throughput(api, setting, 64, How::Calls, Over::Veth);
        if let Err(why) = &trial {
            report.note(&format!("{WITHOUT_VETH}: {why}"));
        }
        gather(setting, report, true, measures(api, setting, trial.is_ok()))
    });
    beside.unwrap_or_else(|why| {
        report.note(&format!("{WITHOUT_VETH}: {why}"));
        gather(setting, report, true, measures(api, setting, false))
    })
}

fn measures<'a>(api: Api, setting: &'a Setting<'_>, veth: bool) -> Vec<Measure<'a>> {
    let yardstick = |name: &str| setting.yardsticks.as_ref().map(|dir| dir.join(name)).filter(|file| file.is_file());
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
        let (mut rivals, mut far_rivals) = (Vec::new(), Vec::new());
        if let Some(program) = yardstick("wire").filter(|_| frame <= LONGEST) {
            rivals.push(measures.len());
            far_rivals.push(measures.len() + 1);
            for (copies, variant) in [("1", "C by hand, one copy"), ("2", "C by hand, two copies")] {
                let (program, processors, time) = (program.clone(), setting.processors, setting.time);
                let run = move || yardstick::wire(&program, copies, frame, time, processors);
                measures.push(Measure::one(subject(variant), run));
            }
        }
        for budget in [32, 64].into_iter().filter(|_| frame <= LONGEST) {
            let run = move || one_run(api, setting, frame, budget);
            measures.push(Measure::one(subject(&format!("wire, {budget} a kick")), run).against(rivals.clone()));
        }
        if veth && ON_VETH.contains(&frame) {
            far_rivals.push(measures.len());
            let run = move || pair::throughput(api, setting, frame, How::Calls, Over::Veth);
            measures.push(Measure::one(subject("two processes over veth"), run));
        }
        for (how, variant) in [(How::Calls, "two processes"), (How::Looks, "two processes, receiver only looks")] {
            let run = move || pair::throughput(api, setting, frame, how, Over::Wire);
            measures.push(Measure::one(subject(variant), run).against(far_rivals.clone()));
        }
    }
    let trips = |variant: &str| -> Vec<Subject> {
        let subject = |metric| {
            let variant = format!("round trip, {variant}, {metric}");
            Subject { bench: "wire", variant, threads: 2, frame: u64::from(TRIP), metric, unit: "us" }
        };
        ["p50", "p99", "p99.9"].map(subject).into()
    };
    let trip = |how, over| move || pair::round_trip(api, setting, TRIP, how, over);
    let mut rivals = Vec::new();
    if let Some(program) = yardstick("roundtrip") {
        rivals.push(measures.len());
        let (processors, time) = (setting.processors, setting.time);
        let run = move || yardstick::round_trip(&program, TRIP, time, processors);
        measures.push(Measure::several(trips("C by hand"), run));
    }
    let on_veth = [(How::Calls, "veth, both awake"), (How::Looks, "veth, both only look")];
    for (how, variant) in on_veth.into_iter().filter(|_| veth) {
        rivals.push(measures.len());
        measures.push(Measure::several(trips(variant), trip(how, Over::Veth)));
    }
    measures.push(Measure::several(trips("both awake"), trip(How::Calls, Over::Wire)).against(rivals));
    let mut rivals = Vec::new();
    if veth {
        rivals.push(measures.len());
        measures.push(Measure::several(trips("veth, both sleep"), trip(How::Sleeps, Over::Veth)));
    }
    measures.push(Measure::several(trips("both sleep"), trip(How::Sleeps, Over::Wire)).against(rivals));
    measures
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
