//! Protects the grammar of device specifications and of `SLIPRING_DEVICES`.

use proptest::prelude::*;

use super::{devices::is_news, *};

fn fault(text: &str) -> String {
    Spec::parse(text).expect_err("a bad specification").to_string()
}

#[test]
fn every_kind_parses_with_its_defaults() {
    for (text, kind) in [
        ("direct", Kind::Direct),
        ("loop", Kind::Loop),
        ("null", Kind::Null),
        ("wire:lab/a", Kind::Wire("lab".into(), End::A)),
        ("wire:lab/b", Kind::Wire("lab".into(), End::B)),
        ("wire:a%20b%3F/b", Kind::Wire("a b?".into(), End::B)),
    ] {
        let spec = Spec::parse(text).unwrap();
        assert_eq!(spec.kind, kind);
        assert_eq!((spec.queues, spec.mtu, spec.budget, spec.rxwake), (1, 1500, 32, false));
        assert_eq!((spec.full, spec.gen_len), (Full::Drop, None));
        assert_eq!(spec.text, text);
    }
}

#[test]
fn options_reach_their_fields() {
    let spec = Spec::parse("wire:w/a?queues=8&mtu=9000&budget=64&rxwake=1&full=wait").unwrap();
    assert_eq!((spec.queues, spec.mtu, spec.budget, spec.rxwake, spec.full), (8, 9000, 64, true, Full::Wait));
    let spec = Spec::parse("null?gen=9014&mtu=9000").unwrap();
    assert_eq!(spec.gen_len, Some(9014));
    assert_eq!(Spec::parse("null?").unwrap().gen_len, None, "an interface name for a plain null");
}

/// A message says what, where and what is allowed; the texts are what a person sees, so they are held in full.
#[test]
fn a_bad_specification_says_what_where_and_what_is_allowed() {
    let kinds = "allowed: direct, loop, wire:NAME/END, null";
    for (text, message) in [
        ("", format!("\"\" at character 1: \"\" is no kind of device; {kinds}")),
        ("nul", format!("\"nul\" at character 1: \"nul\" is no kind of device; {kinds}")),
        ("packet:eth0", format!("\"packet:eth0\" at character 1: \"packet\" is not in this version; {kinds}")),
        ("loop:x", "\"loop:x\" at character 5: loop takes nothing after \":\"".into()),
        ("wire", "\"wire\" at character 5: a wire is written wire:NAME/a or wire:NAME/b".into()),
        ("wire:w", "\"wire:w\" at character 7: a wire is written wire:NAME/a or wire:NAME/b".into()),
        (
            "wire:w/c",
            "\"wire:w/c\" at character 8: \"c\" is no end of a wire; a wire is written wire:NAME/a or wire:NAME/b".into(),
        ),
        (
            "null?gne=64",
            "\"null?gne=64\" at character 6: \"gne\" is no option; allowed for null: queues, mtu, budget, rxwake, gen".into(),
        ),
        (
            "loop?mtu=90&gen=64",
            "\"loop?mtu=90&gen=64\" at character 13: \"gen\" is no option of loop; allowed for loop: queues, mtu, budget, \
             rxwake"
                .into(),
        ),
        (
            "loop?loss=1",
            "\"loop?loss=1\" at character 6: \"loss\" is not in this version; allowed for loop: queues, mtu, budget, rxwake"
                .into(),
        ),
        (
            "direct?mtu=90",
            "\"direct?mtu=90\" at character 8: \"mtu\" is no option of direct; allowed for direct: none".into(),
        ),
        ("loop?queues=65", "\"loop?queues=65\" at character 13: queues cannot be \"65\"; allowed: 1 to 64".into()),
        ("loop?rxwake=yes", "\"loop?rxwake=yes\" at character 13: rxwake cannot be \"yes\"; allowed: 0 or 1".into()),
        ("wire:w/a?full=", "\"wire:w/a?full=\" at character 15: full cannot be \"\"; allowed: drop or wait".into()),
        ("loop?mtu=90&mtu=90", "\"loop?mtu=90&mtu=90\" at character 13: mtu is given twice; allowed: once".into()),
        ("null?gen=1515", "\"null?gen=1515\" at character 10: gen is more than mtu + 14; allowed: 14 to 1514".into()),
        ("loop?mtu", "\"loop?mtu\" at character 6: \"mtu\" is not OPTION=VALUE".into()),
        ("loop?mtu=90&", "\"loop?mtu=90&\" at character 13: \"\" is not OPTION=VALUE".into()),
        (
            "wire:%4/a",
            "\"wire:%4/a\" at character 6: \"%\" needs two hexadecimal digits; a percent sign itself is %25".into(),
        ),
        ("loop?mtu=%FF", "\"loop?mtu=%FF\" at character 10: is not UTF-8 once %XX is decoded".into()),
    ] {
        assert_eq!(fault(text), message);
    }
}

#[test]
fn numbers_are_plain_decimal_digits() {
    for value in ["+2", "-1", " 2", "0x2", "2.", "", "4294967298", "99999999999999999999"] {
        assert!(Spec::parse(&format!("loop?queues={value}")).is_err(), "{value:?}");
    }
    assert_eq!(Spec::parse("loop?queues=08").unwrap().queues, 8);
}

/// A wire's name becomes a file name: nothing that leaves its directory may pass, however it is encoded.
#[test]
fn a_wire_name_cannot_leave_its_directory() {
    let long = "w".repeat(WIRE_NAME_MAX + 1);
    for name in ["", ".", "..", "%2E%2E", "a%2Fb", "a%00b", "a%0Ab", ".hidden", &long] {
        assert!(Spec::parse(&format!("wire:{name}/a")).is_err(), "{name:?}");
    }
    assert!(Spec::parse(&format!("wire:{}/a", &long[1..])).is_ok());
    assert!(Spec::parse("wire:a/b/a").is_err());
}

#[test]
fn a_message_shows_control_characters_escaped_and_ends() {
    let text = fault(&format!("\x1b[31m{}", "x".repeat(10_000)));
    assert!(!text.contains('\x1b') && text.len() < 600, "{text}");
}

#[test]
fn a_name_is_a_specification_only_behind_a_known_kind() {
    for name in ["wire:lab/a", "null?gen=64", "loop?", "packet:eth0", "wire:"] {
        assert!(Spec::is_spec(name), "{name}");
    }
    for name in ["null", "eth0", "eth0:1", "wires:a/b", "?", ":", "", "loop1?"] {
        assert!(!Spec::is_spec(name), "{name}");
    }
}

#[test]
fn the_first_exact_entry_wins_then_the_name_then_the_star() {
    let devices = Devices::parse(b" *=loop\teth0=null\n\x0beth0=direct wire:w/a=direct *=null ");
    let text = |name: &str| devices.look_up(name).1.unwrap().unwrap().text;
    assert_eq!(text("eth0"), "null");
    assert_eq!(text("eth1"), "loop");
    assert_eq!(text("wire:w/b"), "wire:w/b");
    assert_eq!(text("wire:w/a"), "direct");
    assert_eq!(devices.look_up("eth0").0, Origin::Entry(1));
    assert_eq!(devices.look_up("wire:w/b").0, Origin::Name);
    assert_eq!(Devices::parse(b"eth0=null").look_up("eth1"), (Origin::Default, Ok(None)));
    assert_eq!(Devices::default().look_up("eth1"), (Origin::Default, Ok(None)));
}

#[test]
fn names_in_the_variable_are_percent_encoded() {
    let devices = Devices::parse(b"a%20b=loop %2A=null x%3Dy=direct");
    assert_eq!(devices.look_up("a b").0, Origin::Entry(0));
    assert_eq!(devices.look_up("*").0, Origin::Entry(1));
    assert_eq!(devices.look_up("x=y").0, Origin::Entry(2));
    assert_eq!(devices.look_up("z").0, Origin::Default);
}

/// A bad specification fails the interface that it is for; a bad name may be meant for any and fails all.
#[test]
fn a_bad_entry_is_never_skipped() {
    let devices = Devices::parse(b"eth0=nul wire0=loop");
    let error = devices.look_up("eth0").1.unwrap_err();
    assert!(error.to_string().starts_with("\"eth0=nul\" at character 6: \"nul\" is no kind"), "{error}");
    assert!(devices.look_up("wire0").1.unwrap().is_some());
    for text in [&b"loop wire0=loop"[..], b"=loop wire0=loop", b"wire0=loop \xff=loop", b"wire0=loop %zz=loop"] {
        assert!(Devices::parse(text).look_up("wire0").1.is_err(), "{text:?}");
    }
}

/// The tables and the parser agree: every option is taken by exactly the kinds that the table names.
#[test]
fn the_option_table_is_what_the_parser_takes() {
    for kind in KINDS {
        let head = kind.form.replace("NAME/END", "w/a");
        for option in OPTIONS {
            let taken = Spec::parse(&format!("{head}?{}={}", option.name, sample(option))).is_ok();
            assert_eq!(taken, option.kinds.contains(&kind.name), "{} {}", kind.name, option.name);
            assert!(!LATER_OPTIONS.contains(&option.name));
        }
        assert!(!LATER_KINDS.contains(&kind.name));
    }
}

fn sample(option: &OptionRow) -> String {
    match option.value {
        Value::Number(least, ..) => least.to_string(),
        Value::Word(words) => words[0].0.to_owned(),
    }
}

/// The README's tables are those of this file.
#[test]
fn the_readme_lists_every_kind_and_option() {
    let readme = include_str!("../../README.md");
    let cell = |text: &str| text.replace('|', "\\|");
    for kind in KINDS {
        let row = format!("| `{}` | {} |", kind.form, cell(kind.meaning));
        assert!(readme.contains(&row), "README.md lacks: {row}");
    }
    for option in OPTIONS {
        let kinds = option.kinds.join(", ");
        let row = format!(
            "| `{}=` | {kinds} | {} | {} | {} |",
            option.name,
            option.values(),
            option.default,
            cell(option.meaning)
        );
        assert!(readme.contains(&row), "README.md lacks: {row}");
    }
}

#[test]
fn a_bad_text_is_told_once() {
    assert!(is_news("told once: x"));
    assert!(!is_news("told once: x"));
    assert!(is_news("told once: y"));
}

fn any_spec() -> impl Strategy<Value = Spec> {
    let name = "[^/\\x00-\\x1f\\x7f-\\u{9f}.]{1,16}".prop_filter("bytes", |n| n.len() <= WIRE_NAME_MAX);
    let kind = prop_oneof![
        Just(Kind::Loop),
        Just(Kind::Null),
        (name, any::<bool>()).prop_map(|(n, b)| Kind::Wire(n, if b { End::A } else { End::B })),
    ];
    let wire = (any::<bool>(), 1..=4096u32, any::<bool>());
    (kind, 1..=64u32, 68..=65535u32, 1..=65536u32, any::<bool>(), wire, proptest::option::of(14..=82u32)).prop_map(
        |(kind, queues, mtu, budget, rxwake, (wait, depth, symmetric), gen_len)| Spec {
            text: String::new(),
            full: if wait && matches!(kind, Kind::Wire(..)) { Full::Wait } else { Full::Drop },
            depth: if matches!(kind, Kind::Wire(..)) { depth } else { DEPTH },
            symmetric: symmetric && matches!(kind, Kind::Wire(..)),
            gen_len: gen_len.filter(|_| kind == Kind::Null),
            kind,
            queues,
            mtu,
            budget,
            rxwake,
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(text: Vec<u8>, name: String) {
        let devices = Devices::parse(&text);
        let (_, found) = devices.look_up(&name);
        if let Err(error) = found {
            prop_assert!(!error.to_string().is_empty());
        }
        let _ = Spec::parse(&name).map_err(|e| e.to_string());
    }

    /// Texts near the grammar go deeper than random bytes.
    #[test]
    fn any_near_text_is_read_without_a_panic(
        text in "(\\*|[a-z%=]{0,3})=?(wire|null|loop|direct)[:?/]?[ab%/é]{0,3}[/?&]?(mtu|gen|full|queues)?[=&%0-9a-fé]{0,8}"
    ) {
        let devices = Devices::parse(text.as_bytes());
        for entry in &devices.entries {
            if let Err(error) = &entry.spec {
                prop_assert!(error.text.is_char_boundary(error.at), "{error:?}");
                prop_assert!(error.to_string().contains("at character"));
            }
        }
    }

    #[test]
    fn a_specification_survives_its_text(spec in any_spec()) {
        let text = spec.to_string();
        let back = Spec::parse(&text).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(Spec { text: String::new(), ..back }, spec);
    }

    #[test]
    fn a_name_survives_the_variable(name in "\\PC{1,20}") {
        let devices = Devices::parse(format!("{}=loop", encode(&name)).as_bytes());
        prop_assert_eq!(&devices.entries[0].pattern, &Pattern::Name(name));
    }
}
