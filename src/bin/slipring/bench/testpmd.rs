//! `bench testpmd`: DPDK's own testpmd, one process that only sends and one that only receives, over a wire by its AF_XDP
//! driver under the preload, and over memif, DPDK's shared memory; and the ratio of the two.
//!
//! The processes stay for the whole bench and are told to start and to stop, so that a run is short and its probes are near.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use slipring::config;

use super::{
    Setting,
    report::{Measure, Report, Subject, gather},
};

/// Bytes of a frame, without the checksum that a card would add.
const FRAMES: [u32; 2] = [64, 1518];
const PROGRAM: &str = "dpdk-testpmd";
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), String> {
    let Some(second) = setting.processors.second else { return gather(setting, report, true, Vec::new()) };
    let missing = |driver: &str| !has_driver(driver);
    if Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
        || missing("net_af_xdp")
        || missing("net_memif")
    {
        report.note("not measured: it needs dpdk-testpmd with the drivers net_af_xdp and net_memif (Debian: dpdk librte-net-af-xdp23 librte-net-memif23)");
        return Ok(());
    }
    let folder = Folder::new()?;
    let name = format!("slipring-bench-{}", std::process::id());
    let library = setting.library.path.as_path();
    let socket = folder.0.join("memif");
    let memif = |role: &str| Port {
        device: format!("net_memif0,role={role},socket={},socket-abstract=no", socket.display()),
        preload: None,
    };
    let wire = |end: &str, full: &str| Port {
        device: "net_af_xdp0,iface=port0".to_owned(),
        preload: Some((library, format!("port0=wire:{name}-{full}/{end}?mtu=1504&full={full}"))),
    };
    let links = [
        ("testpmd, memif", memif("server"), memif("client")),
        ("testpmd, wire", wire("b", "drop"), wire("a", "drop")),
        ("testpmd, wire, full=wait", wire("b", "wait"), wire("a", "wait")),
    ];
    let mut pairs = Vec::new();
    for (variant, far, near) in &links {
        let mut receiver = Testpmd::start(far, second, "rxonly")?;
        let mut sender = Testpmd::start(near, setting.processors.first, "txonly")?;
        // The two may take a while to find each other.
        let deadline = Instant::now() + PATIENCE;
        while one_run(setting, &mut sender, &mut receiver, FRAMES[0])? == 0.0 {
            if Instant::now() > deadline {
                return Err(format!("{variant}: nothing is received"));
            }
        }
        pairs.push((*variant, std::cell::RefCell::new((sender, receiver))));
    }
    let mut measures: Vec<Measure<'_>> = Vec::new();
    for frame in FRAMES {
        let rival = measures.len();
        for (variant, pair) in &pairs {
            measures.push(Measure {
                subject: Subject {
                    bench: "testpmd",
                    variant: (*variant).to_owned(),
                    threads: 2,
                    frame: u64::from(frame),
                    metric: "rate",
                    unit: "Mpps",
                },
                run: Box::new(move || {
                    let (sender, receiver) = &mut *pair.borrow_mut();
                    one_run(setting, sender, receiver, frame)
                }),
                rival: (measures.len() != rival).then_some(rival),
            });
        }
    }
    gather(setting, report, true, measures)
}

/// Million frames a second that arrived.
fn one_run(setting: &Setting<'_>, sender: &mut Testpmd, receiver: &mut Testpmd, frame: u32) -> Result<f64, String> {
    // memif's client calls its server again only when somebody asks for its link.
    sender.tell("show port info 0")?;
    sender.tell(&format!("set txpkts {frame}"))?;
    receiver.begin()?;
    sender.begin()?;
    let start = Instant::now();
    std::thread::sleep(setting.time);
    sender.tell("stop")?;
    let seconds = start.elapsed().as_secs_f64();
    sender.ended()?;
    receiver.tell("stop")?;
    Ok(receiver.ended()? as f64 / seconds / 1e6)
}

/// Where Debian has DPDK's drivers.
fn has_driver(name: &str) -> bool {
    let within = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let file = format!("librte_{name}.so");
    within(Path::new("/usr/lib")).flat_map(|triplet| within(&triplet.join("dpdk"))).any(|dir| dir.join(&file).exists())
}

/// A directory of its own for memif's socket. Gone with the value.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, String> {
        let path = env::temp_dir().join(format!("slipring-bench-testpmd-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a testpmd is given as its port.
#[derive(Debug)]
struct Port<'a> {
    device: String,
    /// The library, and the devices on it.
    preload: Option<(&'a Path, String)>,
}

/// A testpmd that waits for commands. Killed with the value.
#[derive(Debug)]
struct Testpmd {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Testpmd {
    fn start(port: &Port<'_>, processor: usize, mode: &str) -> Result<Testpmd, String> {
        // By lines, so that it is heard at once.
        let mut command = Command::new("stdbuf");
        command.args([
            "-oL",
            PROGRAM,
            "--no-huge",
            "-m",
            "128",
            "--no-pci",
            "--no-shconf",
            "--no-telemetry",
            "--lcores",
        ]);
        command.arg(format!("0@{processor},1@{processor}")).args(["--vdev", &port.device, "--", "--interactive"]);
        command.args([&format!("--forward-mode={mode}"), "--total-num-mbufs=16384", "--no-mlockall"]);
        match &port.preload {
            Some((library, devices)) => command.env(config::VARIABLE, devices).env("LD_PRELOAD", library),
            None => command.env_remove(config::VARIABLE),
        };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{PROGRAM}: {e}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Testpmd { child, input: input.expect("piped"), output: BufReader::new(output.expect("piped")) })
    }

    fn tell(&mut self, command: &str) -> Result<(), String> {
        writeln!(self.input, "{command}").map_err(|e| format!("{PROGRAM}: {e}"))
    }

    /// Read lines until `found` makes something of one.
    fn hear<T>(&mut self, mut found: impl FnMut(&str) -> Option<T>) -> Result<T, String> {
        let mut said = String::new();
        loop {
            let at = said.len();
            let n = self.output.read_line(&mut said).map_err(|e| format!("{PROGRAM}: {e}"))?;
            if n == 0 {
                return Err(format!("{PROGRAM} ended by itself; it said:\n{said}"));
            }
            if let Some(what) = found(said[at..].trim()) {
                return Ok(what);
            }
        }
    }

    fn begin(&mut self) -> Result<(), String> {
        self.tell("start")?;
        self.hear(|line| line.contains("packets/burst=").then_some(()))
    }

    /// After `stop`: the frames that were received since the start.
    fn ended(&mut self) -> Result<u64, String> {
        let mut received = 0;
        self.hear(|line| {
            if let Some(rest) = line.strip_prefix("RX-packets:") {
                received = rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0);
            }
            (line == "Done.").then_some(received)
        })
    }
}
