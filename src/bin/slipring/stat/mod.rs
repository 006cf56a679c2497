//! `slipring stat`: the engine's sockets of running processes, from outside and without their help.
//!
//! Each socket has a memory file `slipring` among its process's descriptors, whose first page says what the socket is and
//! counts (`slipring::engine::stat`). It is read, never mapped: a process that cuts its file short cannot hurt us.

mod page;

use std::{
    fs::{self, File},
    io,
    path::Path,
    process::ExitCode,
};

use slipring::{engine::stat::VERSION, uapi::Ring};

use crate::{json::Json, table::Table};
use page::{Fault, Snapshot};

/// Arguments of `stat`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 sockets were found, 1 none, 2 wrong usage. Sockets of the device direct are the kernel's: \
                        ss --xdp shows those."
)]
pub(crate) struct Arguments {
    /// Processes; without any: all that this user may look at.
    #[arg(value_name = "PID")]
    pids: Vec<u32>,
    /// All processes that this user may look at.
    #[arg(long, conflicts_with = "pids")]
    all: bool,
    /// Print one JSON object a process.
    #[arg(long)]
    json: bool,
}

/// A process with sockets.
#[derive(Debug)]
struct Process {
    pid: u32,
    command: String,
    sockets: Vec<Snapshot>,
    /// Sockets of another version of the library.
    foreign: usize,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let every = arguments.pids.is_empty();
    let pids = if every { all_pids() } else { arguments.pids.clone() };
    let mut found = false;
    let mut refused = 0;
    for pid in pids {
        match look(pid) {
            Ok(process) if process.sockets.is_empty() && process.foreign == 0 => {
                if !every {
                    eprintln!("slipring stat: process {pid} ({}) has no socket on the engine", process.command);
                }
            }
            Ok(process) => {
                if !arguments.json && found {
                    println!();
                }
                found = true;
                if arguments.json { println!("{}", process.json()) } else { process.print() }
            }
            Err(e) if every && e.kind() == io::ErrorKind::PermissionDenied => refused += 1,
            // It ended while we looked.
            Err(_) if every => {}
            Err(e) => eprintln!("slipring stat: process {pid}: {}", reason(&e)),
        }
    }
    if every && !found {
        eprintln!("slipring stat: no process with a socket on the engine");
    }
    if refused > 0 {
        eprintln!("slipring stat: {refused} processes of other users were not looked at");
    }
    ExitCode::from(u8::from(!found))
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such process".to_owned(),
        io::ErrorKind::PermissionDenied => "not permitted: run as its user or as root".to_owned(),
        _ => error.to_string(),
    }
}

fn all_pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Read what a process shows.
fn look(pid: u32) -> io::Result<Process> {
    let dir = Path::new("/proc").join(pid.to_string());
    let command = fs::read_to_string(dir.join("comm"))?.trim().to_owned();
    let numbers = own_numbers(&dir);
    let mut process = Process { pid, command, sockets: Vec::new(), foreign: 0 };
    for entry in fs::read_dir(dir.join("fd"))?.flatten() {
        let path = entry.path();
        let Ok(target) = fs::read_link(&path) else { continue };
        if target.as_os_str() != "/memfd:slipring (deleted)" {
            continue;
        }
        match File::open(&path).map_err(Fault::from).and_then(|file| Snapshot::read(&file)) {
            // A forked child holds its parent's files too; they are the parent's to show.
            Ok(socket) if numbers.contains(&socket.pid) => process.sockets.push(socket),
            Ok(_) | Err(Fault::Other) => {}
            Err(Fault::Version) => process.foreign += 1,
        }
    }
    process.sockets.sort_by_key(|s| (s.ifindex, s.queue, s.fd));
    Ok(process)
}

/// The process's number in every namespace in which it has one: it wrote down the one that it knows.
fn own_numbers(dir: &Path) -> Vec<u32> {
    let status = fs::read_to_string(dir.join("status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
    let line = line.or_else(|| status.lines().find_map(|l| l.strip_prefix("Pid:")));
    line.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

impl Process {
    fn print(&self) {
        println!("process {} ({})", self.pid, self.command);
        if self.foreign > 0 {
            println!("  {} sockets of another version of the library (this one reads {VERSION})", self.foreign);
        }
        let mut device = None;
        for socket in &self.sockets {
            let number = socket.ifindex;
            if device != Some(number) {
                device = Some(number);
                print!("{}", self.interface(socket));
            }
            print!("{}", socket.text());
        }
    }

    /// The line of a socket's interface. The device's counters are those of the sender that wrote them down last.
    fn interface(&self, first: &Snapshot) -> String {
        if !first.is_bound() {
            return "  no interface yet\n".to_owned();
        }
        let of_device = |name: &str| {
            let siblings = self.sockets.iter().filter(|s| s.ifindex == first.ifindex);
            siblings.map(|s| s.counter(name)).max().unwrap_or(0)
        };
        format!(
            "  interface {} (number {}): {}\n    the device took {} frames, {} bytes; lost {}\n",
            first.name,
            first.ifindex,
            first.spec,
            of_device("device_tx_frames"),
            of_device("device_tx_bytes"),
            of_device("device_tx_dropped")
        )
    }

    fn json(&self) -> Json {
        Json::Object(vec![
            ("pid", Json::Int(self.pid.into())),
            ("command", Json::text(&self.command)),
            ("sockets", Json::List(self.sockets.iter().map(Snapshot::json).collect())),
            ("other_version", Json::Int(self.foreign as u64)),
        ])
    }
}

impl Snapshot {
    /// A socket for people: what it is, its rings, its counters.
    fn text(&self) -> String {
        let queue = if self.is_bound() { format!("queue {}, ", self.queue) } else { String::new() };
        let mut out = format!("    socket {}: {queue}{}\n", self.fd, self.state_name());
        let [chunk, head_room, flags, bind_flags] = self.geometry;
        let [address, bytes] = self.umem;
        if bytes > 0 {
            out += &format!(
                "      UMEM at {address:#x}: {bytes} bytes, chunks of {chunk}, head room {head_room}, flags {flags:#x}; \
                 bind flags {bind_flags:#x}\n"
            );
        }
        let mut rings = Table::new().right(&[1, 2, 3, 4]);
        rings.row(["ring", "entries", "producer", "consumer", "waiting"]);
        for (ring, state) in self.rings() {
            rings.row([
                ring.name().to_owned(),
                state.entries.to_string(),
                state.producer.to_string(),
                state.consumer.to_string(),
                state.waiting(),
            ]);
        }
        if self.rings().next().is_some() {
            out += &rings.lines("      ");
        }
        let get = |name: &str| self.counter(name);
        let mut counters = Table::new();
        counters.row([
            "received".to_owned(),
            format!("{} frames, {} bytes", get("rx_frames"), get("rx_bytes")),
            format!(
                "dropped {}, RX ring full {}, fill ring empty {}, bad fill entries {}",
                get("rx_dropped"),
                get("rx_ring_full"),
                get("rx_fill_ring_empty_descs"),
                get("rx_bad_fill_entries")
            ),
        ]);
        counters.row([
            "sent".to_owned(),
            format!("{} frames, {} bytes", get("tx_frames"), get("tx_bytes")),
            format!(
                "invalid descriptors {}, too short or long {}, TX ring empty {}, kicks {} (with more left {})",
                get("tx_invalid_descs"),
                get("tx_dropped"),
                get("tx_ring_empty_descs"),
                get("tx_kicks"),
                get("tx_kicks_again")
            ),
        ]);
        out + &counters.lines("      ")
    }

    fn json(&self) -> Json {
        let number = |n: u32| Json::Int(n.into());
        let rings = self.rings().map(|(ring, state)| {
            Json::Object(vec![
                ("ring", Json::text(ring.name())),
                ("entries", number(state.entries)),
                ("producer", number(state.producer)),
                ("consumer", number(state.consumer)),
            ])
        });
        Json::Object(vec![
            ("fd", number(self.fd)),
            ("state", Json::text(self.state_name())),
            ("interface", Json::text(&self.name)),
            ("ifindex", number(self.ifindex)),
            ("queue", number(self.queue)),
            ("device", Json::text(&self.spec)),
            ("umem_address", Json::Int(self.umem[0])),
            ("umem_bytes", Json::Int(self.umem[1])),
            ("chunk_size", number(self.geometry[0])),
            ("headroom", number(self.geometry[1])),
            ("umem_flags", number(self.geometry[2])),
            ("bind_flags", number(self.geometry[3])),
            ("rings", Json::List(rings.collect())),
            ("counters", Json::Object(self.counters.iter().map(|(name, n)| (*name, Json::Int(*n))).collect())),
        ])
    }

    fn rings(&self) -> impl Iterator<Item = (Ring, &page::RingState)> {
        Ring::ALL.into_iter().zip(&self.rings).filter_map(|(ring, state)| Some((ring, state.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects the reading of a real process: this one, which has no socket, and one that is not there.
    #[test]
    fn a_process_without_sockets_and_none_at_all_are_told_apart() {
        let me = look(std::process::id()).unwrap();
        assert!(!me.command.is_empty());
        assert!(own_numbers(Path::new("/proc/self")).contains(&std::process::id()));
        assert_eq!(reason(&look(u32::MAX).unwrap_err()), "there is no such process");
        assert!(all_pids().contains(&std::process::id()));
    }
}
