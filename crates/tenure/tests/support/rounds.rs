//! How often the cases of the tests run.

/// How often a case runs: `few` in `make test`, `full` in `make soak`, and n
/// times where the variable ROUNDS is n.
pub(crate) fn rounds(few: u32, full: u32) -> u32 {
    match std::env::var("ROUNDS").as_deref() {
        Err(_) | Ok("") => few,
        Ok("full") => full,
        Ok(count) => count
            .parse()
            .unwrap_or_else(|_| panic!("ROUNDS is \"{count}\": it may be a number or the word full")),
    }
}
