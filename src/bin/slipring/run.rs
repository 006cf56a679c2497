//! `slipring run`: set the environment, check that it will have an effect, become the program.

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::PathBuf,
    process::{Command, ExitCode},
};

use slipring::config::{self, Devices};

use crate::{
    library::{self, Library},
    program,
};

/// Exit codes as those of env(1) and nohup(1).
const FAILED: u8 = 125;
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Devices given here come before those already in SLIPRING_DEVICES; the first that fits a name counts. \
                        Without any, SLIPRING_DEVICES is set all the same, and names such as null?gen=64 or wire:lab/a \
                        work where the program takes them for an interface."
)]
pub(crate) struct Arguments {
    /// Give the interface name IFNAME (or * for every name) the device SPEC. May be repeated.
    #[arg(long = "dev", value_name = "IFNAME=SPEC")]
    devices: Vec<String>,
    /// The library's file, if not the one found by itself (also: SLIPRING_LIBRARY).
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROG")]
    program: Vec<OsString>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let fail = |code: u8, message: String| {
        eprintln!("slipring run: {message}");
        ExitCode::from(code)
    };
    let prepared = devices(&arguments.devices, env::var_os(config::VARIABLE).as_deref())
        .and_then(|devices| Ok((devices, preload(arguments)?)));
    let (devices, (library, preload)) = match prepared {
        Ok(prepared) => prepared,
        Err(message) => return fail(FAILED, message),
    };
    let Some((name, rest)) = arguments.program.split_first() else {
        return fail(FAILED, "no program is given".to_owned());
    };
    let looked = program::inspect(name, Some(&library));
    if let Some(obstacle) = &looked.obstacle {
        let what = looked.through.last().unwrap_or(&looked.path).display();
        let code = match obstacle {
            program::Obstacle::NotFound => NOT_FOUND,
            _ => CANNOT_EXECUTE,
        };
        let effect = if obstacle.is_fatal() { "" } else { "the library would have no effect: " };
        return fail(code, format!("{what}: {effect}{obstacle}. What to do: {}", obstacle.advice()));
    }
    let error = Command::new(name).args(rest).env(config::VARIABLE, devices).env("LD_PRELOAD", preload).exec();
    let code = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_EXECUTE };
    fail(code, format!("{}: {error}", looked.path.display()))
}

/// The new value of SLIPRING_DEVICES; an error if any entry, given or found there, is bad.
fn devices(given: &[String], present: Option<&OsStr>) -> Result<String, String> {
    let present = match present.map(OsStr::to_str) {
        None => "",
        Some(Some(text)) => text,
        Some(None) => return Err(format!("{} is not UTF-8; write odd bytes as %XX", config::VARIABLE)),
    };
    let mut all = Vec::new();
    for entry in given {
        let parsed = Devices::parse(entry.as_bytes()).entries;
        if parsed.len() != 1 || entry.trim() != entry {
            return Err(format!(
                "--dev \"{}\": one IFNAME=SPEC is wanted; a blank is written %20",
                entry.escape_debug()
            ));
        }
        if let Err(error) = &parsed[0].spec {
            return Err(format!("--dev {error}"));
        }
        all.push(entry.as_str());
    }
    for (i, entry) in Devices::parse(present.as_bytes()).entries.iter().enumerate() {
        if let Err(error) = &entry.spec {
            return Err(format!("{}, entry {}: {error}", config::VARIABLE, i + 1));
        }
    }
    if !present.is_empty() {
        all.push(present);
    }
    Ok(all.join(" "))
}

/// The library, and the new value of LD_PRELOAD.
fn preload(arguments: &Arguments) -> Result<(Library, OsString), String> {
    let library = library::find(arguments.library.as_deref()).map_err(|e| e.to_string())?;
    if let Some(obstacle) = library.preload_obstacle() {
        return Err(obstacle);
    }
    let preload = before(library.path.as_os_str(), env::var_os("LD_PRELOAD").as_deref().unwrap_or_default());
    Ok((library, preload))
}

/// `first` in front of what LD_PRELOAD holds, without naming it twice (a run inside a run).
fn before(first: &OsStr, present: &OsStr) -> OsString {
    let mut all = first.to_owned();
    let words = present.as_bytes().split(|b| matches!(b, b' ' | b':')).filter(|w| !w.is_empty());
    for word in words.filter(|w| *w != first.as_bytes()) {
        all.push(":");
        all.push(OsStr::from_bytes(word));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(given: &[&str], present: Option<&str>) -> Result<String, String> {
        let given: Vec<String> = given.iter().map(|s| (*s).to_owned()).collect();
        devices(&given, present.map(OsStr::new))
    }

    /// Protects that what is said on the command line comes first, and so counts.
    #[test]
    fn given_devices_come_before_those_of_the_environment() {
        assert_eq!(with(&["eth0=loop", "*=null"], Some("eth0=null")).unwrap(), "eth0=loop *=null eth0=null");
        assert_eq!(with(&[], None).unwrap(), "");
        assert_eq!(with(&[], Some(" ")).unwrap(), " ");
    }

    #[test]
    fn the_preload_stands_first_and_once() {
        let before = |present: &str| before(OsStr::new("/l.so"), OsStr::new(present));
        assert_eq!(before(""), "/l.so");
        assert_eq!(before("/a.so /b.so"), "/l.so:/a.so:/b.so");
        assert_eq!(before("/l.so:/a.so"), "/l.so:/a.so");
    }

    /// Protects that a bad device stops the program from starting at all.
    #[test]
    fn a_bad_device_is_an_error_wherever_it_stands() {
        for bad in ["loop", "eth0=lop", "eth0=loop eth1=loop", "", " eth0=loop", "eth0=wire:w"] {
            assert!(with(&[bad], None).is_err(), "{bad:?}");
        }
        let error = with(&["eth0=loop"], Some("eth1=loop eth2=nul")).unwrap_err();
        assert!(error.starts_with("SLIPRING_DEVICES, entry 2: \"eth2=nul\" at character 6"), "{error}");
    }
}
