//! Protects what a person or a script sees of the `slipring` program: environment that `run` hands on, exit codes, and what
//! `stat` shows of a living socket (this process's own).

use std::{
    path::PathBuf,
    process::{Command, Output},
    sync::{Mutex, PoisonError},
};

use slipring::{
    engine,
    ring::layout,
    uapi::{Desc, Ring, SockaddrXdp, UmemReg},
};

/// Held by tests that make sockets: `stat` shows those of the whole process.
static SOCKETS: Mutex<()> = Mutex::new(());

/// The program, with an environment of its own.
fn slipring(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipring"));
    command.args(arguments).env_remove("SLIPRING_DEVICES").env_remove("LD_PRELOAD").env("SLIPRING_LIBRARY", library());
    command
}

/// Any shared library that every program can load does for `run`: the C library, which is in every process already.
fn library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line =
        maps.lines().find(|l| l.contains("/libc.so") || l.contains("/libc-")).expect("a dynamic program has libc");
    PathBuf::from(line.split_whitespace().last().unwrap())
}

fn text(output: &Output) -> (String, String) {
    (String::from_utf8(output.stdout.clone()).unwrap(), String::from_utf8(output.stderr.clone()).unwrap())
}

#[test]
fn run_hands_on_devices_preload_arguments_and_the_exit_code() {
    let script = "echo \"$SLIPRING_DEVICES|$LD_PRELOAD|$1\"; exit 7";
    let mut command =
        slipring(&["run", "--dev", "eth0=loop", "--dev", "*=null", "--", "sh", "-c", script, "sh", "--dev"]);
    let output = command.env("SLIPRING_DEVICES", "eth0=null").output().unwrap();
    let preload = library().canonicalize().unwrap();
    assert_eq!(text(&output).0, format!("eth0=loop *=null eth0=null|{}|--dev\n", preload.display()));
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn run_refuses_what_would_have_no_effect_with_the_codes_of_env() {
    for (arguments, code, message) in [
        (&["run", "--dev", "eth0=lop", "--", "true"][..], 125, "\"lop\" is no kind of device"),
        (&["run", "--", "/no/such/program"], 127, "there is no such program"),
        (&["run", "--", "/"], 126, "may not be executed"),
        (&["run", "--library", "/no/such.so", "--", "true"], 125, "/no/such.so"),
        (&["run"], 2, "PROG"),
    ] {
        let output = slipring(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(text(&output).1.contains(message), "{arguments:?}: {}", text(&output).1);
    }
}

#[test]
fn doctor_exits_with_1_when_something_asked_about_does_not_work() {
    for (subject, code) in [("loop", 0), ("null?gen=64", 0), ("x0=wire:lab/a", 0), ("packet:eth0", 1), ("nosuchif0", 1)]
    {
        let output = slipring(&["doctor", subject]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{subject}: {}", text(&output).0);
    }
    let output = slipring(&["doctor", "--json", "loop"]).output().unwrap();
    let json = text(&output).0;
    assert!(json.starts_with('{') && json.trim_end().ends_with('}') && json.lines().count() == 1, "{json}");
    assert!(json.contains(r#""name":"loop","kind":"device","provider":"engine","ok":true"#), "{json}");
    let output = slipring(&["doctor"]).env("SLIPRING_DEVICES", "eth0=lop").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn stat_shows_the_sockets_of_a_living_process() {
    let _alone = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id().to_string();
    let output = slipring(&["stat", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output).0);

    let socket = engine::provider().socket().unwrap();
    let mut area = vec![0u8; 5 * 4096];
    let start = area.as_mut_ptr().addr().next_multiple_of(4096) as u64;
    let reg = UmemReg { addr: start, len: 16384, chunk_size: 2048, headroom: 64, ..UmemReg::default() };
    socket.register_umem(&reg).unwrap();
    socket.set_ring_size(Ring::Fill, 64).unwrap();
    socket.set_ring_size(Ring::Tx, 32).unwrap();

    let output = slipring(&["stat", "--json", &pid]).output().unwrap();
    let json = text(&output).0;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output).1);
    for part in [
        format!("{{\"pid\":{pid},"),
        format!("\"fd\":{},\"state\":\"not bound\"", socket.fd()),
        "\"umem_bytes\":16384,\"chunk_size\":2048,\"headroom\":64".to_owned(),
        "{\"ring\":\"TX\",\"entries\":32,\"producer\":0,\"consumer\":0}".to_owned(),
        "{\"ring\":\"fill\",\"entries\":64,\"producer\":0,\"consumer\":0}".to_owned(),
        "\"tx_frames\":0".to_owned(),
    ] {
        assert!(json.contains(&part), "{part} is not in {json}");
    }
    let output = slipring(&["stat", &pid]).output().unwrap();
    assert!(text(&output).0.contains(&format!("socket {}: not bound", socket.fd())), "{}", text(&output).0);

    socket.close();
    drop(socket);
    let output = slipring(&["stat", &pid]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "nothing is left of a closed socket: {}", text(&output).0);
}

/// What a wire itself loses is in no socket's statistics, so here is the only place to see it: two frames to nobody.
#[test]
fn stat_shows_what_a_device_lost() {
    let _alone = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    let interface = engine::interface_named(c"wire:stat-shows/a").unwrap().unwrap();
    let socket = engine::provider().socket().unwrap();
    let mut area = vec![0u8; 5 * 4096];
    let start = area.as_mut_ptr().addr().next_multiple_of(4096) as u64;
    let reg = UmemReg { addr: start, len: 16384, chunk_size: 2048, ..UmemReg::default() };
    socket.register_umem(&reg).unwrap();
    for ring in [Ring::Fill, Ring::Completion, Ring::Tx] {
        socket.set_ring_size(ring, 8).unwrap();
    }
    let mapping = socket.map_ring(Ring::Tx, layout::bytes(8, Ring::Tx.entry_size())).unwrap();
    let address = SockaddrXdp { family: 44, ifindex: interface.ifindex, ..SockaddrXdp::default() };
    socket.bind(&address).unwrap();
    for i in 0..2u64 {
        let offset = layout::ENTRIES + size_of::<Desc>() * usize::try_from(i).expect("a few frames");
        let slot = mapping.base().as_ptr().wrapping_add(offset).cast::<Desc>();
        // SAFETY: an entry of the mapped ring, which has eight.
        unsafe { slot.write(Desc { addr: i * 2048, len: 64, options: 0 }) };
    }
    let producer = mapping.base().as_ptr().wrapping_add(layout::PRODUCER).cast::<u32>();
    // SAFETY: the producer word of the mapped ring, which nobody else writes.
    unsafe { producer.write_volatile(2) };
    socket.kick_tx(libc::MSG_DONTWAIT).unwrap();

    let output = slipring(&["stat", &std::process::id().to_string()]).output().unwrap();
    let shown = text(&output).0;
    assert!(shown.contains(": wire:stat-shows/a\n    the device took 0 frames, 0 bytes; lost 2\n"), "{shown}");
    assert!(shown.contains("queue 0, bound"), "{shown}");
    socket.close();
}

/// Protects that a machine where libxdp cannot be compared with says so and is no failure of the bench.
#[test]
fn bench_of_the_kernels_path_is_skipped_with_a_reason() {
    let output = slipring(&["bench", "direct", "--yardsticks", "/no/such/directory"]).output().unwrap();
    let (out, err) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("direct on veth: skipped: its C program is not built"), "{out}");
}

/// Protects the laboratory's output: a line for each variant, number of threads and state, with the members that all benches
/// have; a picture; and a reason for what cannot be measured.
#[test]
fn bench_of_the_completion_queue_prints_each_variant() {
    let plot = std::env::temp_dir().join(format!("slipring-plot-{}.svg", std::process::id()));
    let short = ["bench", "cq", "--limit", "9", "--limit", "0", "--time", "10", "--threads", "1,3"];
    let picture = ["--plot", plot.to_str().unwrap()];
    let variants = ["--variants", "cas/marks,batch/lock-batch/packed"];
    let output = slipring(&[&short[..], &variants, &picture, &["--json"]].concat()).output().unwrap();
    let (out, err) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    for threads in [1, 3] {
        for variant in ["cas/marks", "batch/lock-batch/packed"] {
            let head = format!(r#"{{"bench":"cq","variant":"{variant}","threads":{threads},"frame":0,"metric":"rate""#);
            assert!(out.lines().any(|line| line.starts_with(&head) && line.ends_with('}')), "{head}: {out}");
        }
    }
    let svg = std::fs::read_to_string(&plot).unwrap();
    std::fs::remove_file(&plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("3 threads, "), "{svg}");

    for (wrong, why) in [
        (["--variants", "pool-lock/marks"], "cq: --variants pool-lock/marks: marks are the library's own queue"),
        (["--variants", "Nonsense"], "cq: --variants Nonsense: reserve, submit, layout or RESERVE/SUBMIT[/LAYOUT]"),
        (["--plot", "/No/such/directory"], "cq: --plot /No/such/directory: No such file"),
    ] {
        let output = slipring(&[&short[..], &wrong].concat()).output().unwrap();
        let (_, err) = text(&output);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(err.contains(why), "{err}");
    }
}
