//! `slipring doctor`: which provider something gets, and why.

use std::{
    ffi::{CString, OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use slipring::{
    config::{self, Devices, KINDS, Kind, Origin, Pattern, Spec},
    direct::survey::{self, Standing, State},
    errno::Errno,
    sys,
};

use crate::{
    json::Json,
    library::{self, Library},
    machine::{self, Machine},
    program,
    table::Table,
};

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code: 0 everything asked about works, 1 something does not, 2 wrong usage.")]
pub(crate) struct Arguments {
    /// Device specifications (null?gen=64), entries (eth0=loop), interface names or programs.
    #[arg(value_name = "SPEC|IFNAME|PROGRAM")]
    subjects: Vec<OsString>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// The library's file, if not the one found by itself (also: SLIPRING_LIBRARY).
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
}

/// The answer for one subject.
#[derive(Debug)]
struct Answer {
    name: String,
    /// `device`, `interface`, `program`.
    kind: &'static str,
    /// `engine`, `direct`; `None`: neither.
    provider: Option<&'static str>,
    ok: bool,
    /// Why: one sentence a line.
    why: Vec<String>,
}

impl Answer {
    fn json(&self) -> Json {
        Json::Object(vec![
            ("name", Json::text(&self.name)),
            ("kind", Json::text(self.kind)),
            ("provider", self.provider.map_or(Json::Null, Json::text)),
            ("ok", Json::Bool(self.ok)),
            ("why", Json::List(self.why.iter().map(Json::text).collect())),
        ])
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let machine = machine::look();
    let devices = config::devices();
    let library = library::find(arguments.library.as_deref());
    let found = library.as_ref().ok();
    let listed: Vec<Answer> = devices.entries.iter().enumerate().map(|(i, _)| entry(&devices, i, &machine)).collect();
    let asked: Vec<Answer> = arguments.subjects.iter().map(|s| answer(s, &devices, &machine, found)).collect();
    let library_text = match &library {
        Ok(library) => library.path.display().to_string(),
        Err(why) => why.to_string(),
    };
    let programs = default_programs(&asked);
    if arguments.json {
        let answers = |list: &[Answer]| Json::List(list.iter().map(Answer::json).collect());
        let object = Json::Object(vec![
            ("version", Json::text(env!("CARGO_PKG_VERSION"))),
            ("machine", Json::List(machine.checks.iter().map(machine::Check::json).collect())),
            ("direct", Json::Bool(machine.direct_refused.is_none())),
            ("library", library.as_ref().map_or(Json::Null, |l| Json::text(l.path.display().to_string()))),
            ("devices_set", Json::Bool(devices.is_set)),
            ("devices", answers(&listed)),
            ("asked", answers(&asked)),
            ("programs", Json::List(programs.iter().map(program_json).collect())),
        ]);
        println!("{object}");
    } else {
        if asked.is_empty() {
            print_machine(&machine, &devices, &listed, &library_text);
        }
        print_answers(&asked);
        print_programs(&programs, asked.is_empty());
    }
    let failed = if asked.is_empty() { listed.iter().any(|a| !a.ok) } else { asked.iter().any(|a| !a.ok) };
    ExitCode::from(u8::from(failed))
}

fn print_machine(machine: &Machine, devices: &Devices, listed: &[Answer], library: &str) {
    println!("This machine");
    let mut table = Table::new();
    for check in &machine.checks {
        table.row([check.title, check.found.as_str()]);
    }
    table.row(["library", library]);
    table.print("  ");
    println!("\nProviders");
    let mut table = Table::new();
    table.row(["engine", "works: it needs no permission and nothing of the kernel's"]);
    let direct = match &machine.direct_refused {
        None => "works".to_owned(),
        Some(why) => format!("does not fully work here for this user: {why}"),
    };
    table.row(["direct", direct.as_str()]);
    table.print("  ");
    let kinds: Vec<&str> = KINDS.iter().map(|k| k.form).collect();
    println!("\nDevices of this version: {}", kinds.join(", "));
    let state = match (devices.is_set, listed.is_empty()) {
        (false, _) => "not set: every interface is the kernel's",
        (true, true) => "set, without an entry: interfaces are the kernel's unless their name is a device",
        (true, false) => "",
    };
    println!("{}: {state}", config::VARIABLE);
    print_answers(listed);
}

/// A default program on an interface, or why the interface cannot be looked at.
type OnInterface = (String, Result<Standing, Errno>);

/// The default programs on the interfaces asked about; on every one if nothing was asked.
fn default_programs(asked: &[Answer]) -> Vec<OnInterface> {
    if asked.is_empty() {
        return survey::all().unwrap_or_else(|error| vec![("*".to_owned(), Err(error))]);
    }
    let interfaces = asked.iter().filter(|a| a.kind == "interface" && a.provider == Some("direct") && a.ok);
    interfaces.filter_map(|a| Some((a.name.clone(), survey::on(&a.name).transpose()?))).collect()
}

fn program_json((interface, found): &OnInterface) -> Json {
    let interface = ("interface", Json::text(interface));
    match found {
        Err(error) => Json::Object(vec![interface, ("error", Json::text(error.to_string()))]),
        Ok(found) => {
            let number = |n: i32| Json::Int(u64::try_from(n).unwrap_or(0));
            Json::Object(vec![
                interface,
                ("program", Json::Int(u64::from(found.program))),
                ("mode", Json::text(found.mode)),
                ("dispatcher", found.dispatcher.map_or(Json::Null, |id| Json::Int(u64::from(id)))),
                ("references", found.references.map_or(Json::Null, number)),
                ("live", Json::List(found.live.iter().map(|pid| Json::Int(u64::from(*pid))).collect())),
                ("dead", number(found.dead)),
                ("sockets", found.sockets.map_or(Json::Null, Json::Bool)),
                ("state", Json::text(found.state.name())),
                ("why", Json::text(&found.why)),
                ("remove", Json::text(&found.removal)),
            ])
        }
    }
}

/// `stale_only`: nobody asked about them, so only what a person may want to remove.
fn print_programs(programs: &[OnInterface], stale_only: bool) {
    for (interface, found) in programs {
        match found {
            Err(error) => println!("XDP program on {interface}: cannot be looked at: {error}"),
            Ok(found) if stale_only && found.state == State::Used => {}
            Ok(found) => {
                let behind = found.dispatcher.map_or(String::new(), |id| format!(", behind dispatcher {id}"));
                println!(
                    "default program {} on {interface} ({} mode{behind}): {}: {}",
                    found.program,
                    found.mode,
                    found.state.name(),
                    found.why
                );
                if found.state != State::Used {
                    println!("  to take it off: {}", found.removal);
                }
            }
        }
    }
}

fn print_answers(answers: &[Answer]) {
    for answer in answers {
        let provider = answer.provider.unwrap_or("none");
        println!("{} {}: {}{}", answer.kind, answer.name, provider, if answer.ok { "" } else { " (does not work)" });
        for why in &answer.why {
            println!("  {why}");
        }
    }
}

/// An entry of the variable, and whether it is ever used.
fn entry(devices: &Devices, index: usize, machine: &Machine) -> Answer {
    let (name, looked_up) = match &devices.entries[index].pattern {
        Pattern::Name(name) => (name.clone(), name.clone()),
        Pattern::Any => ("*".to_owned(), "*".to_owned()),
        Pattern::Unknown => (format!("in entry {}", index + 1), String::new()),
    };
    let mut answer = match &devices.entries[index].spec {
        Ok(spec) => device(name, "interface", spec, machine),
        Err(error) => bad(name, "interface", error.to_string()),
    };
    let first = match &devices.entries[index].pattern {
        Pattern::Any => devices.entries.iter().position(|e| e.pattern == Pattern::Any),
        Pattern::Name(_) | Pattern::Unknown => match devices.look_up(&looked_up).0 {
            Origin::Entry(i) => Some(i),
            Origin::Name | Origin::Default => None,
        },
    };
    if let Some(first) = first.filter(|i| *i != index && answer.ok) {
        let reason = match devices.entries[first].pattern {
            Pattern::Unknown => "cannot be read, and fails every look-up",
            Pattern::Name(_) | Pattern::Any => "comes first",
        };
        answer.why.push(format!("never used: entry {} {reason}", first + 1));
    }
    answer
}

fn bad(name: String, kind: &'static str, error: String) -> Answer {
    Answer { name, kind, provider: None, ok: false, why: vec![error] }
}

/// What a device specification gets.
fn device(name: String, kind: &'static str, spec: &Spec, machine: &Machine) -> Answer {
    if spec.kind == Kind::Direct {
        return direct(name, kind, "by the device direct".to_owned(), machine);
    }
    let row = KINDS.iter().find(|k| k.name == spec.kind.name());
    let mut why = vec![format!("{spec}: {}", row.map_or("", |k| k.meaning))];
    why.push(format!("queues {}, MTU {}", spec.queues, spec.mtu));
    Answer { name, kind, provider: Some("engine"), ok: true, why }
}

fn direct(name: String, kind: &'static str, reason: String, machine: &Machine) -> Answer {
    let mut why = vec![reason];
    if let Some(refused) = &machine.direct_refused {
        why.push(format!("here {refused}"));
        why.push(
            "the engine works without: give the interface a device, as in slipring run --dev IFNAME=loop".to_owned(),
        );
    }
    Answer { name, kind, provider: Some("direct"), ok: machine.direct_refused.is_none(), why }
}

/// Tell what the text is, and answer.
fn answer(subject: &OsStr, devices: &Devices, machine: &Machine, library: Option<&Library>) -> Answer {
    let Some(text) = subject.to_str() else { return of_program(subject, library) };
    let is_interface = number(text).is_some();
    let word = text.split([':', '?']).next().unwrap_or("");
    let is_kind = Spec::is_spec(text) || KINDS.iter().any(|k| k.name == word);
    let (origin, _) = devices.look_up(text);
    if is_interface
        || matches!(origin, Origin::Entry(i) if devices.entries[i].pattern == Pattern::Name(text.to_owned()))
    {
        return of_interface(text, devices, machine);
    }
    if is_kind {
        return match Spec::parse(text) {
            Ok(spec) => device(text.to_owned(), "device", &spec, machine),
            Err(error) => bad(text.to_owned(), "device", error.to_string()),
        };
    }
    if text.contains('=') && !Path::new(text).exists() {
        let given = Devices::parse(text.as_bytes());
        return match given.entries.len() {
            1 => entry(&given, 0, machine),
            _ => bad(text.to_owned(), "interface", "one IFNAME=SPEC is wanted; a blank is written %20".to_owned()),
        };
    }
    if program::find(subject).is_some() || text.contains('/') {
        return of_program(subject, library);
    }
    of_interface(text, devices, machine)
}

fn of_interface(name: &str, devices: &Devices, machine: &Machine) -> Answer {
    let (origin, spec) = devices.look_up(name);
    let kind = "interface";
    let spec = match spec {
        Ok(spec) => spec,
        Err(error) => return bad(name.to_owned(), kind, error.to_string()),
    };
    let source = match origin {
        Origin::Entry(i) => format!("by entry {} of {}", i + 1, config::VARIABLE),
        Origin::Name => "by its own name".to_owned(),
        Origin::Default if devices.is_set => format!("no entry of {} is for it", config::VARIABLE),
        Origin::Default => format!("{} is not set", config::VARIABLE),
    };
    if let Some(spec) = spec.filter(|s| s.kind != Kind::Direct) {
        let mut answer = device(name.to_owned(), kind, &spec, machine);
        answer.why.insert(0, source);
        return answer;
    }
    let mut answer = direct(name.to_owned(), kind, source, machine);
    match facts(name) {
        Some(facts) => answer.why.push(facts),
        None => {
            answer.ok = false;
            let why = "the kernel has no interface of this name in this network namespace (nor has PATH a program)";
            answer.why.push(why.to_owned());
        }
    }
    answer
}

/// The number of an interface of this network namespace.
fn number(name: &str) -> Option<u32> {
    sys::interface_index(&CString::new(name).ok()?).ok()
}

/// What the kernel says about an interface: `None` if there is none.
fn facts(name: &str) -> Option<String> {
    let number = number(name)?;
    let dir = Path::new("/sys/class/net").join(name);
    let read = |file: &str| fs::read_to_string(dir.join(file)).map(|t| t.trim().to_owned());
    // /sys shows the namespace in which it was mounted, which may have another interface of this name.
    if read("ifindex").ok().as_deref() != Some(&number.to_string()) {
        return Some(format!("interface number {number}; /sys is another network namespace's, so no more is known"));
    }
    let mtu = read("mtu").unwrap_or_default();
    let queues = |prefix: &str| {
        let names = fs::read_dir(dir.join("queues")).into_iter().flatten().flatten().map(|e| e.file_name());
        names.filter(|n| n.to_string_lossy().starts_with(prefix)).count()
    };
    let driver = fs::read_link(dir.join("device/driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name).map_or("none", |n| n.to_str().unwrap_or("none"));
    Some(format!(
        "link {}, MTU {mtu}, RX queues {}, TX queues {}, driver {driver}",
        read("operstate").unwrap_or_else(|_| "unknown".to_owned()),
        queues("rx-"),
        queues("tx-")
    ))
}

fn of_program(name: &OsStr, library: Option<&Library>) -> Answer {
    let looked = program::inspect(name, library);
    let shown = looked.path.display().to_string();
    let kind = "program";
    let through: Vec<String> = looked.through.iter().map(|p| format!("a script, run by {}", p.display())).collect();
    let mut answer = Answer { name: shown, kind, provider: None, ok: looked.obstacle.is_none(), why: through };
    if let Some(obstacle) = &looked.obstacle {
        answer.why.push(obstacle.to_string());
        answer.why.push(format!("what to do: {}", obstacle.advice()));
        return answer;
    }
    answer.provider = Some("by interface");
    answer.why.push("a preload works; each interface it opens has the provider of its name".to_owned());
    let needed = looked.elf.map(|e| e.needed).unwrap_or_default();
    let xdp: Vec<&str> = needed.iter().map(String::as_str).filter(|n| is_xdp(n)).collect();
    answer.why.push(match xdp.as_slice() {
        [] => "it names no AF_XDP library: it may open one later, or speak to the kernel itself".to_owned(),
        names => format!("it names {}", names.join(", ")),
    });
    answer
}

fn is_xdp(library: &str) -> bool {
    ["libxdp.so", "libbpf.so", "libslipring.so"].iter().any(|n| library.starts_with(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(subject: &str, devices: &str, refused: Option<&str>) -> Answer {
        let machine = Machine { checks: Vec::new(), direct_refused: refused.map(str::to_owned) };
        let devices = if devices.is_empty() { Devices::default() } else { Devices::parse(devices.as_bytes()) };
        answer(OsStr::new(subject), &devices, &machine, None)
    }

    /// Protects the choice of the provider, by each of the ways in which it is made.
    #[test]
    fn the_provider_is_that_of_the_library() {
        for (subject, devices, kind, provider) in [
            ("null?gen=64", "", "device", Some("engine")),
            ("wire:lab/a", "", "device", Some("engine")),
            ("direct", "", "device", Some("direct")),
            ("loop", "", "device", Some("engine")),
            ("eth9=loop", "", "interface", Some("engine")),
            ("lo", "", "interface", Some("direct")),
            ("lo", "lo=loop", "interface", Some("engine")),
            ("lo", "*=null lo=direct", "interface", Some("direct")),
            ("ring0", "ring0=loop", "interface", Some("engine")),
            ("packet:eth0", "", "device", None),
            ("null?gne=1", "", "device", None),
        ] {
            let answer = ask(subject, devices, None);
            assert_eq!((answer.kind, answer.provider), (kind, provider), "{subject} {devices} {:?}", answer.why);
            assert_eq!(answer.ok, provider.is_some(), "{subject}");
        }
    }

    /// Protects the exit code: what the kernel refuses does not work, what needs no kernel does.
    #[test]
    fn direct_does_not_work_where_the_kernel_refuses() {
        assert!(!ask("direct", "", Some("AF_XDP socket: EPERM")).ok);
        assert!(!ask("lo", "", Some("AF_XDP socket: EPERM")).ok);
        assert!(ask("lo", "lo=loop", Some("AF_XDP socket: EPERM")).ok);
        assert!(!ask("nosuchif0", "", None).ok);
    }

    #[test]
    fn an_entry_that_is_hidden_by_an_earlier_one_is_told() {
        let machine = Machine { checks: Vec::new(), direct_refused: None };
        let devices = Devices::parse(b"a=loop a=null *=null *=loop");
        let told: Vec<bool> =
            (0..4).map(|i| entry(&devices, i, &machine).why.join(" ").contains("never used")).collect();
        assert_eq!(told, [false, true, false, true]);
    }

    #[test]
    fn a_program_is_found_by_path_and_by_name() {
        let answer = ask("/bin/sh", "", None);
        assert_eq!((answer.kind, answer.ok), ("program", true));
        assert_eq!(ask("sh", "", None).kind, "program");
        assert!(!ask("/no/such/program", "", None).ok);
    }
}
