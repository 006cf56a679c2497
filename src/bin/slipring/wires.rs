//! `slipring wires` and `slipring link`: the wires of this user, from outside, by asking the processes that have their ends.

use std::process::ExitCode;

use slipring::{
    config::{self, End, Kind},
    device::{self, EndState, WireState},
    errno::Errno,
};

use crate::{json::Json, table::Table};

/// Arguments of `wires`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code: 0 there are wires, 1 none, 2 wrong usage. A wire with both ends in one process shows that \
                        process twice."
)]
pub(crate) struct Arguments {
    /// Print one JSON object a wire.
    #[arg(long)]
    json: bool,
}

/// Arguments of `link`.
#[derive(Debug, clap::Args)]
pub(crate) struct LinkArguments {
    /// An end as wire:NAME/END, or an interface name of SLIPRING_DEVICES that stands for one.
    #[arg(value_name = "DEVICE")]
    device: String,
    /// What the cable is to be there.
    state: LinkState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LinkState {
    /// Plugged in.
    Up,
    /// Pulled out.
    Down,
}

/// What an end says that is shown, in this order.
const SHOWN: [&str; 8] = ["queues", "mtu", "link", "peer", "sent", "bytes", "dropped", "received"];

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let (directory, wires) = match device::wires_directory().and_then(|d| Ok((d, device::wires()?))) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("slipring wires: {error}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.json {
        wires.iter().for_each(|wire| println!("{}", json(wire)));
    } else if wires.is_empty() {
        eprintln!("slipring wires: this user has no wire with an end open in {directory}");
    } else {
        println!("directory {directory}");
        table(&wires).print("");
    }
    ExitCode::from(u8::from(wires.is_empty()))
}

/// The ends of a wire that somebody has.
fn ends(wire: &WireState) -> impl Iterator<Item = (&'static str, &EndState)> {
    [End::A, End::B].into_iter().zip(&wire.ends).filter_map(|(end, state)| Some((end.name(), state.as_ref()?)))
}

fn table(wires: &[WireState]) -> Table {
    let mut table = Table::new().right(&[2, 3, 4, 6, 7, 8, 9, 10]);
    table.row(["wire", "end", "process"].into_iter().chain(SHOWN));
    for wire in wires {
        for (end, state) in ends(wire) {
            let mut row = vec![wire.name.clone(), end.to_owned(), state.pid.to_string()];
            match &state.says {
                Some(_) => row.extend(SHOWN.map(|name| state.get(name).unwrap_or("-").to_owned())),
                None => row.push("does not answer".to_owned()),
            }
            if state.get("faulty").is_some() {
                row.push("the far end is not to be believed".to_owned());
            }
            table.row(row);
        }
    }
    table
}

fn json(wire: &WireState) -> Json {
    let ends = ends(wire).map(|(end, state)| {
        let number = |name: &str| state.get(name).and_then(|v| v.parse().ok()).map_or(Json::Null, Json::Int);
        let mut members = vec![("end", Json::text(end)), ("pid", Json::Int(state.pid.into()))];
        members.extend(SHOWN.map(|name| {
            let value = if name == "link" { state.get(name).map_or(Json::Null, Json::text) } else { number(name) };
            (name, value)
        }));
        members.push(("faulty", Json::Bool(state.get("faulty").is_some())));
        Json::Object(members)
    });
    Json::Object(vec![("wire", Json::text(&wire.name)), ("ends", Json::List(ends.collect()))])
}

pub(crate) fn link(arguments: &LinkArguments) -> ExitCode {
    let device = &arguments.device;
    let fail = |why: String| {
        eprintln!("slipring link: {device}: {why}");
        ExitCode::FAILURE
    };
    let spec = match config::devices().look_up(device).1 {
        Ok(spec) => spec,
        Err(error) => return fail(error.to_string()),
    };
    let Some(Kind::Wire(name, end)) = spec.map(|spec| spec.kind) else {
        return fail(
            "is no end of a wire; write wire:NAME/a or wire:NAME/b, or an interface that stands for one".to_owned(),
        );
    };
    match device::set_link(&name, end, arguments.state == LinkState::Up) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Errno::ENOENT) => {
            fail("no process of this user has that end open; slipring wires shows who has what".to_owned())
        }
        Err(Errno::ETIMEDOUT) => fail("its process does not answer; is it stopped?".to_owned()),
        Err(error) => fail(error.to_string()),
    }
}
