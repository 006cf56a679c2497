//! The variants by name: `RESERVE/SUBMIT`, and `/packed` behind it for the original's layout.

use std::{fmt, str::FromStr};

use clap::ValueEnum;

/// How places are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Reserve {
    PoolLock,
    QueueLock,
    YieldLock,
    Cas,
    Batch,
}

/// How completions are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Submit {
    Lock,
    SharedLock,
    YieldLock,
    Marks,
    Wait,
    List,
}

/// Where the words stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Layout {
    Packed,
    Separated,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub reserve: Reserve,
    pub submit: Submit,
    /// Submit once for all places of a reservation instead of once for each.
    pub at_once: bool,
    pub layout: Layout,
}

/// What is measured unless something is asked for, by the question that it answers. A name may stand in several.
const GROUPS: [(&str, &[&str]); 3] = [
    (
        "reserve",
        &["pool-lock/lock/packed", "pool-lock/lock", "queue-lock/lock", "yield-lock/lock", "cas/lock", "batch/lock"],
    ),
    (
        "submit",
        &[
            "cas/lock",
            "cas/shared-lock",
            "cas/yield-lock",
            "yield-lock/yield-lock",
            "cas/marks",
            "cas/wait",
            "cas/list",
            "batch/lock-batch",
            "batch/marks",
            "batch/marks-batch",
            "batch/list-batch",
        ],
    ),
    (
        "layout",
        &[
            "pool-lock/lock/packed",
            "pool-lock/lock",
            "queue-lock/lock/packed",
            "queue-lock/lock",
            "cas/lock/packed",
            "cas/lock",
        ],
    ),
];

/// Behind the name of a way to submit: once for a batch.
const AT_ONCE: &str = "-batch";

/// The variants that `names` ask for, each once, in the order in which they are first named; all without a name.
pub(super) fn select(names: &[String]) -> Result<Vec<Variant>, String> {
    let group = |name: &str| GROUPS.iter().find(|(group, _)| *group == name).map(|(_, members)| members.to_vec());
    let every = || GROUPS.iter().flat_map(|(_, members)| members.iter().copied()).collect();
    let mut chosen = Vec::new();
    let mut choose = |text: &str| -> Result<(), String> {
        let variant = text.parse()?;
        if !chosen.contains(&variant) {
            chosen.push(variant);
        }
        Ok(())
    };
    if names.is_empty() {
        let every: Vec<&str> = every();
        every.into_iter().try_for_each(&mut choose)?;
    }
    for name in names {
        group(name).unwrap_or_else(|| vec![name.as_str()]).into_iter().try_for_each(&mut choose)?;
    }
    Ok(chosen)
}

impl Variant {
    /// Whether several places are reserved by one call.
    pub(super) fn is_batched(self) -> bool {
        self.reserve == Reserve::Batch
    }

    /// The part of the name that says how it submits.
    pub(super) fn submit_name(self) -> String {
        format!("{}{}", name(self.submit), if self.at_once { AT_ONCE } else { "" })
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Variant, String> {
        let wrong = |why: &str| format!("--variants {text}: {why}");
        let mut parts = text.split('/');
        let (reserve, mut submit) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let at_once = submit.strip_suffix(AT_ONCE);
        submit = at_once.unwrap_or(submit);
        let variant = Variant {
            reserve: parse(reserve).map_err(|names| {
                wrong(&format!("reserve, submit, layout or RESERVE/SUBMIT[/LAYOUT] is wanted, RESERVE one of {names}"))
            })?,
            submit: parse(submit).map_err(|names| wrong(&format!("SUBMIT is one of {names}")))?,
            at_once: at_once.is_some(),
            layout: parts
                .next()
                .map_or(Ok(Layout::Separated), parse)
                .map_err(|names| wrong(&format!("LAYOUT is {names}")))?,
        };
        if parts.next().is_some() {
            return Err(wrong("three parts at most"));
        }
        if variant.at_once && !variant.is_batched() {
            return Err(wrong("only who reserves a batch can submit it at once"));
        }
        let library = variant.submit == Submit::Marks;
        if library && !matches!(variant.reserve, Reserve::Cas | Reserve::Batch) {
            return Err(wrong("marks are the library's own queue, which reserves by cas or batch"));
        }
        if library && variant.layout != Layout::Separated {
            return Err(wrong("marks are the library's own queue, which is separated"));
        }
        Ok(variant)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", name(self.reserve), self.submit_name())?;
        if self.layout == Layout::Packed { f.write_str("/packed") } else { Ok(()) }
    }
}

/// The word on the command line for a value.
pub(super) fn name<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

/// The value of a word; the error is the list of words.
fn parse<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| T::value_variants().iter().cloned().map(name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Protects that each name of a group is a variant, is printed as it was given, and is measured once.
    #[test]
    fn names_of_the_groups_are_variants() {
        let all = select(&[]).unwrap();
        for (group, members) in GROUPS {
            let chosen = select(&[group.to_owned()]).unwrap();
            assert_eq!(chosen.iter().map(ToString::to_string).collect::<Vec<_>>(), members);
            assert!(chosen.iter().all(|variant| all.iter().filter(|v| *v == variant).count() == 1));
        }
        let twice = ["cas/lock", "cas/lock/separated", "layout"].map(str::to_owned);
        assert_eq!(select(&twice).unwrap().len(), GROUPS[2].1.len());
    }

    /// Protects against a figure under a name that it is not of.
    #[test]
    fn what_cannot_be_measured_is_refused_with_a_reason() {
        for (text, why) in [
            ("nonsense", "pool-lock, queue-lock, yield-lock, cas, batch"),
            ("cas/nonsense", "lock, shared-lock, yield-lock, marks, wait, list"),
            ("cas/lock/nonsense", "packed, separated"),
            ("cas/lock/packed/more", "three parts"),
            ("cas/lock-batch", "reserves a batch"),
            ("pool-lock/marks", "cas or batch"),
            ("cas/marks/packed", "separated"),
        ] {
            let message = select(&[text.to_owned()]).unwrap_err();
            assert!(message.contains(why) && message.contains(text), "{message}");
        }
    }
}
