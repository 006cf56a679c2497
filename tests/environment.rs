//! Protects when `SLIPRING_DEVICES` is read, and what its being set means. Alone in its process: the environment is shared.

use slipring::{
    config::{Kind, VARIABLE, engine_first, reload, spec_of},
    errno::Errno,
};

#[test]
fn the_variable_is_read_once_and_again_on_reload() {
    let set = |value: Option<&str>| {
        match value {
            // SAFETY: the only test of this binary, so no other thread uses the environment.
            Some(value) => unsafe { std::env::set_var(VARIABLE, value) },
            // SAFETY: as above.
            None => unsafe { std::env::remove_var(VARIABLE) },
        }
    };
    set(None);
    reload();
    assert!(!engine_first());
    assert_eq!(spec_of("lo"), Ok(None));
    assert_eq!(spec_of("loop?mtu=90").unwrap().unwrap().mtu, 90);
    set(Some("lo=loop"));
    assert_eq!(spec_of("lo"), Ok(None), "not read again");
    reload();
    assert!(engine_first());
    assert_eq!(spec_of("lo").unwrap().unwrap().kind, Kind::Loop);
    assert_eq!(spec_of("wire:x/q"), Err(Errno::EINVAL));
    set(Some(" \t"));
    reload();
    assert!(engine_first());
    assert_eq!(spec_of("lo"), Ok(None));
    set(None);
    reload();
    assert!(!engine_first());
}
