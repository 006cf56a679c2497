//! The command line: start programs on the engine, look at the machine, at running processes and at the speed.
//!
//! One file a command. Single-threaded but for the benches. What a command prints on stdout is its result; messages go to
//! stderr.

mod bench;
mod doctor;
mod elf;
mod json;
mod library;
mod machine;
mod program;
mod run;
mod stat;
mod table;
mod wires;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// AF_XDP sockets for C programs, over the kernel or over Rust rings in user space.
#[derive(Debug, Parser)]
#[command(name = "slipring", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program with the library preloaded and devices assigned to interface names.
    Run(run::Arguments),
    /// Say what this machine can do, and which provider a device, an interface or a program gets, and why.
    Doctor(doctor::Arguments),
    /// Show the devices, sockets, rings and counters of a running process.
    Stat(stat::Arguments),
    /// Show the wires of this user, and who has their ends.
    Wires(wires::Arguments),
    /// Plug the cable of a wire in or out.
    Link(wires::LinkArguments),
    /// Measure.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    // A reader that went away (`| head`) ends us as it ends other programs. The runtime had set it to be ignored.
    // SAFETY: no handler is installed, the default action is restored before any thread exists.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Stat(arguments) => stat::run(&arguments),
        Command::Wires(arguments) => wires::run(&arguments),
        Command::Link(arguments) => wires::link(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    }
}
