//! `bench passthrough`: what the library adds to a call on a descriptor that is not its own.
//!
//! The same C program runs with and without the library preloaded. Once the real calls stand behind it, where a fraction of
//! a nanosecond drowns in the system call; once functions that return at once, where the difference shows.

use std::{ffi::OsString, path::Path, process::Command};

use slipring::config;

use super::{
    Setting,
    report::{Report, Subject},
    state::State,
    yardstick,
};

/// A function and its nanoseconds a call.
type Times = Vec<(String, f64)>;

pub(super) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), String> {
    let Some(dir) = &setting.yardsticks else {
        return Err(
            "its C programs are not built: run make bench, or name their directory with --yardsticks".to_owned()
        );
    };
    let stub = dir.join("next_stub.so");
    let library = setting.library.path.as_path();
    if let Some(obstacle) = setting.library.preload_obstacle() {
        return Err(obstacle);
    }
    let time = |preload: &[&Path]| one_run(&dir.join("passthrough"), preload, setting.processors.first);
    let mut added = Gathered::default();
    let mut stub_alone = Gathered::default();
    let mut plain = Gathered::default();
    let mut through = Gathered::default();
    for _ in 0..setting.runs {
        let without = time(&[&stub])?;
        let with = time(&[library, &stub])?;
        for ((name, with), (_, without)) in with.iter().zip(&without) {
            added.push(name, with - without);
            stub_alone.push(name, *without);
        }
        for (name, ns) in time(&[])? {
            plain.push(&name, ns);
        }
        for (name, ns) in time(&[library])? {
            through.push(&name, ns);
        }
    }
    for (figures, metric, what) in [
        (added, "added", "added by the library"),
        (stub_alone, "call", "a function that returns at once"),
        (plain, "call", "the call without the library"),
        (through, "call", "the call through the library"),
    ] {
        for (name, runs) in figures.0 {
            let variant = format!("{name}, {what}");
            let subject = Subject { bench: "passthrough", variant, threads: 1, frame: 0, metric, unit: "ns" };
            report.line(&subject, State::OneCore, runs);
        }
    }
    report.end(0);
    Ok(())
}

/// Figures by function, in the program's order.
#[derive(Debug, Default)]
struct Gathered(Vec<(String, Vec<f64>)>);

impl Gathered {
    fn push(&mut self, name: &str, ns: f64) {
        match self.0.iter_mut().find(|(n, _)| n == name) {
            Some((_, runs)) => runs.push(ns),
            None => self.0.push((name.to_owned(), vec![ns])),
        }
    }
}

fn one_run(program: &Path, preload: &[&Path], cpu: usize) -> Result<Times, String> {
    let mut list = OsString::new();
    for path in preload {
        list.push(if list.is_empty() { "" } else { ":" });
        list.push(path);
    }
    let mut command = Command::new(program);
    command.arg(cpu.to_string()).env(config::VARIABLE, "").env_remove("LD_PRELOAD");
    if !list.is_empty() {
        command.env("LD_PRELOAD", list);
    }
    let text = yardstick::output(&mut command)?;
    let line = |line: &str| {
        let (name, ns) = line.split_once(' ')?;
        Some((name.to_owned(), ns.parse().ok()?))
    };
    text.lines().map(|l| line(l).ok_or_else(|| format!("unexpected output {l:?}"))).collect()
}
