//! `bench direct`: traffic on the kernel's AF_XDP over veth, ours against libxdp: the rings are the kernel's and the calls
//! are the same, so every ratio should be 1.
//!
//! One thread does all, so the time of the processor that a frame takes is the process's, whatever else runs.

use super::{
    Setting,
    namespace::{FAR, NEAR},
    report::Report,
    rivals::{Case, Figure, compare},
};

const TRAFFIC: &[Figure] = &[
    Figure { key: "rate", what: "rate", metric: "rate", unit: "Mpps" },
    Figure { key: "cpu", what: "processor time of a frame", metric: "time", unit: "ns" },
];
const KICK: &[Figure] = &[Figure { key: "call", what: "one call", metric: "call", unit: "ns" }];

pub(super) fn run(setting: &Setting<'_>, report: &mut Report) -> Result<(), String> {
    let cpu = setting.processors.first.to_string();
    let seconds = setting.time.as_secs_f64().to_string();
    let mut cases = Vec::new();
    for (mode, variant) in [("tx", "send"), ("rx", "send and receive")] {
        for frame in [64u32, 1500] {
            let size = frame.to_string();
            cases.push(Case {
                variant: variant.to_owned(),
                frame: frame.into(),
                arguments: [mode, NEAR, FAR, &size, &seconds, &cpu].map(str::to_owned).into(),
                figures: TRAFFIC,
                without_dispatcher: false,
                counted: None,
            });
        }
    }
    cases.push(Case {
        variant: "sendto with nothing to send".to_owned(),
        frame: 0,
        arguments: ["kick", NEAR, &cpu].map(str::to_owned).into(),
        figures: KICK,
        without_dispatcher: false,
        counted: None,
    });
    compare(setting, report, "direct", &cases)
}
