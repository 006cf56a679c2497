//! The same C program on the kernel's AF_XDP, with the system's libxdp and with this library.
//!
//! The contestants take turns, so that what else goes on meets all of them, and each is compared with libxdp's run of the
//! same round.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use slipring::config;

use super::{
    Setting, namespace,
    report::{Report, Subject},
    state::State,
    yardstick,
};

/// A figure that the program prints.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figure {
    /// First word of its line.
    pub key: &'static str,
    /// What it is, for the reader.
    pub what: &'static str,
    pub metric: &'static str,
    pub unit: &'static str,
}

/// A way to run the program.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub variant: String,
    /// Bytes of a frame; 0 where there are none.
    pub frame: u64,
    pub arguments: Vec<String>,
    pub figures: &'static [Figure],
    /// Also with libxdp told to do without its dispatcher, which costs it time even where the kernel refuses it.
    pub without_dispatcher: bool,
    /// Count the system calls of one turn.
    pub counted: Option<Counted>,
}

/// Two runs that differ by a number of turns.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub short: Vec<String>,
    pub long: Vec<String>,
    pub turns: f64,
}

/// A library to run the program with.
#[derive(Clone, Debug)]
struct Contestant {
    name: &'static str,
    program: PathBuf,
    environment: Vec<(&'static str, OsString)>,
    /// The file that the program must say it uses; `None`: any libxdp.
    library: Option<PathBuf>,
}

/// libxdp, with which the others are compared; the same without its dispatcher if wanted; this library preloaded and, where
/// it lies under its soname, linked.
fn contestants(setting: &Setting<'_>, dir: &Path, without_dispatcher: bool) -> Vec<Contestant> {
    let path = &setting.library.path;
    let system = Contestant { name: "libxdp", program: dir.join("direct"), environment: Vec::new(), library: None };
    let mut all = vec![system.clone()];
    if without_dispatcher {
        let environment = vec![("LIBXDP_SKIP_DISPATCHER", "1".into())];
        all.push(Contestant { name: "libxdp without dispatcher", environment, ..system.clone() });
    }
    let environment = vec![("LD_PRELOAD", path.into())];
    all.push(Contestant { name: "preloaded", environment, library: Some(path.clone()), ..system });
    let program = dir.join("direct-linked");
    if let Some(home) = path.parent().filter(|home| home.join("libslipring.so.0").is_file())
        && program.is_file()
    {
        let environment = vec![("LD_LIBRARY_PATH", home.into())];
        all.push(Contestant { name: "linked", program, environment, library: Some(path.clone()) });
    }
    all
}

impl Contestant {
    /// Whether this is the library that it is to run with.
    fn uses(&self, library: &Path) -> bool {
        match &self.library {
            Some(ours) => library == ours,
            None => library.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libxdp.so")),
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Set, even to nothing, it would let a UMEM begin on the engine.
        command.env_remove(config::VARIABLE).env_remove("LD_PRELOAD");
        command
    }

    /// Run the program and read its figures, in the case's order.
    fn figures(&self, case: &Case) -> Result<Vec<f64>, String> {
        let mut command = self.command(&self.program);
        let text = yardstick::output(command.args(&case.arguments).envs(self.environment.iter().cloned()))?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        let library = Path::new(value("library").unwrap_or_default());
        if !self.uses(library) {
            return Err(format!("{}: the program used {}", self.name, library.display()));
        }
        let figures: Option<Vec<f64>> = case.figures.iter().map(|f| value(f.key)?.parse().ok()).collect();
        figures.ok_or_else(|| format!("{}: unexpected output {text:?}", self.name))
    }

    /// System calls of a run, without those that only sleep.
    fn calls(&self, arguments: &[String]) -> Result<f64, String> {
        let mut command = self.command(Path::new("strace"));
        command.args(["-f", "-c", "-U", "calls,name", "-e", "trace=!nanosleep,clock_nanosleep"]);
        for (name, value) in &self.environment {
            let mut pair = OsString::from(format!("{name}="));
            pair.push(value);
            command.arg("-E").arg(pair);
        }
        let output = command.arg(&self.program).args(arguments).output().map_err(|e| format!("strace: {e}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{} under strace: {}: {}", self.name, output.status, text.trim()));
        }
        total(&text).ok_or_else(|| "strace printed no total".to_owned())
    }
}

/// The number of calls in strace's summary, which comes after what the program itself has written.
fn total(text: &str) -> Option<f64> {
    text.lines().rev().find_map(|line| line.trim().strip_suffix(" total")?.trim().parse().ok())
}

/// What came out for one contestant in one case.
#[derive(Clone, Debug)]
struct Entry {
    contestant: Contestant,
    /// For each figure of the case: its runs.
    figures: Vec<Vec<f64>>,
    calls: Option<f64>,
}

/// Run every case with every contestant, round after round; report the medians, and the ratios to libxdp. Where that cannot
/// be done a line says why, and that is no failure.
pub(super) fn compare(
    setting: &Setting<'_>,
    report: &mut Report,
    bench: &'static str,
    cases: &[Case],
) -> Result<(), String> {
    let built = setting.yardsticks.as_deref().filter(|dir| dir.join("direct").is_file());
    let done = match built {
        None => Err("its C program is not built: run make bench, or name its directory with --yardsticks".to_owned()),
        Some(dir) => libxdp_is_there(setting, dir).and_then(|()| namespace::inside(|| rounds(setting, cases, dir))),
    };
    let (entries, notes) = match done {
        Ok(done) => done?,
        Err(why) => {
            report.note(&format!("{bench} on veth: skipped: {why}"));
            return Ok(());
        }
    };
    for (case, entries) in cases.iter().zip(&entries) {
        let subject = |variant: String, metric, unit| Subject {
            bench,
            variant: format!("{}, {variant}", case.variant),
            threads: 1,
            frame: case.frame,
            metric,
            unit,
        };
        for (at, figure) in case.figures.iter().enumerate() {
            let Figure { what, metric, unit, .. } = figure;
            for Entry { contestant, figures, .. } in entries {
                let variant = format!("{what}, {}", contestant.name);
                report.line(&subject(variant, metric, unit), State::OneCore, figures[at].clone());
            }
            for Entry { contestant, figures, .. } in &entries[1..] {
                let variant = format!("{what}, {} / libxdp", contestant.name);
                let pairs = figures[at].iter().zip(&entries[0].figures[at]);
                report.line(&subject(variant, "ratio", "x"), State::OneCore, pairs.map(|(a, b)| a / b).collect());
            }
        }
        for Entry { contestant, calls, .. } in entries {
            let Some(calls) = calls else { continue };
            let variant = format!("system calls, {}", contestant.name);
            report.line(&subject(variant, "calls", "calls"), State::OneCore, vec![*calls]);
        }
    }
    report.end(0);
    for note in notes {
        report.note(&note);
    }
    Ok(())
}

/// Whether the program finds a libxdp; the error says why not.
fn libxdp_is_there(setting: &Setting<'_>, dir: &Path) -> Result<(), String> {
    let [libxdp, ..] = &contestants(setting, dir, false)[..] else { return Ok(()) };
    let only_look = Case {
        variant: String::new(),
        frame: 0,
        arguments: vec!["library".to_owned()],
        figures: &[],
        without_dispatcher: false,
        counted: None,
    };
    libxdp.figures(&only_look).map(drop).map_err(|why| format!("no libxdp to compare with: {why}"))
}

/// The contestants of each case with their runs, and what a reader should know of them.
fn rounds(setting: &Setting<'_>, cases: &[Case], dir: &Path) -> Result<(Vec<Vec<Entry>>, Vec<String>), String> {
    let enter = |case: &Case| {
        let figures = vec![Vec::new(); case.figures.len()];
        let entry = |contestant| Entry { contestant, figures: figures.clone(), calls: None };
        contestants(setting, dir, case.without_dispatcher).into_iter().map(entry).collect()
    };
    let mut all: Vec<Vec<Entry>> = cases.iter().map(enter).collect();
    let deadline = setting.deadline();
    for round in 0..setting.runs {
        for (case, entries) in cases.iter().zip(&mut all) {
            let n = entries.len();
            for at in 0..n {
                // Nobody always comes first.
                let entry = &mut entries[(at + round) % n];
                for (runs, figure) in entry.figures.iter_mut().zip(entry.contestant.figures(case)?) {
                    runs.push(figure);
                }
            }
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    let mut notes = Vec::new();
    for (case, entries) in cases.iter().zip(&mut all) {
        let Some(Counted { short, long, turns }) = &case.counted else { continue };
        for Entry { contestant, calls, .. } in entries {
            match contestant.calls(short).and_then(|short| Ok(contestant.calls(long)? - short)) {
                Ok(difference) => *calls = Some(difference / turns),
                Err(why) => notes.push(format!("system calls were not counted: {why}")),
            }
        }
    }
    notes.dedup();
    Ok((all, notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects against comparing a library with itself, as a preload that did not take would do.
    #[test]
    fn each_contestant_accepts_its_own_library_only() {
        let libxdp = Path::new("/usr/lib/libxdp.so.1.3.0");
        let ours = Path::new("/x/libslipring.so.0.1.0");
        let contestant = |library: Option<&Path>| Contestant {
            name: "one",
            program: PathBuf::new(),
            environment: Vec::new(),
            library: library.map(Path::to_owned),
        };
        assert!(contestant(None).uses(libxdp) && !contestant(None).uses(ours) && !contestant(None).uses(Path::new("")));
        assert!(contestant(Some(ours)).uses(ours) && !contestant(Some(ours)).uses(libxdp));
    }

    #[test]
    fn the_total_of_calls_is_the_last_one() {
        let text = "9 total\nlibrary said something\n    calls syscall\n------- -----\n      3 mmap\n      110 total\n";
        assert_eq!(total(text), Some(110.0));
        assert_eq!(total("strace: not allowed\n"), None);
    }
}
