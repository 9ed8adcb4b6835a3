//! Carries the shipped suites inside the program.
//!
//! It must not parse them. Layer 8.

/// The shipped suites, as name and text.
pub const BUILTIN: &[(&str, &str)] = &[
    ("smoke", include_str!("../../tests/suites/smoke.toml")),
    ("boundary", include_str!("../../tests/suites/boundary.toml")),
    ("models", include_str!("../../tests/suites/models.toml")),
    ("reports", include_str!("../../tests/suites/reports.toml")),
    (
        "regressions",
        include_str!("../../tests/suites/regressions.toml"),
    ),
];

/// The text of a shipped suite.
pub fn builtin(name: &str) -> Option<&'static str> {
    BUILTIN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}
