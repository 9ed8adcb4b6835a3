//! Reads the environment, in this one place.
//!
//! It must not act on it. Layer 11.

use super::args::Color;
use super::output::complain;
use crate::rule::{Rule, Rules};
use crate::terms::did_you_mean;

/// Variables of padproof's own that arguments read (style.md C.2).
const OWN: &[&str] = &[
    "PADPROOF_CASES",
    "PADPROOF_FILTER",
    "PADPROOF_FORMAT",
    "PADPROOF_JOBS",
    "PADPROOF_MAX_FAIL",
    "PADPROOF_NVRTC",
    "PADPROOF_PROGRESS",
    "PADPROOF_PROPERTY",
    "PADPROOF_SEED",
    "PADPROOF_SUBJECT",
    "PADPROOF_TIER",
    "PADPROOF_TIME",
    "PADPROOF_TIMEOUT",
    "PADPROOF_START_TIMEOUT",
    "PADPROOF_REVEAL",
];

/// Variables that the tests read, and that a developer may have set.
const TESTS: &[&str] = &[
    "PADPROOF_DEVICE_SHARE",
    "PADPROOF_KERNELS_ASAN",
    "PADPROOF_KERNELS_TSAN",
    "PADPROOF_PYTHON",
    "PADPROOF_Z3",
];

/// What the environment says.
pub(super) struct Environment {
    /// What is odd about it, one sentence each.
    pub(super) notes: Vec<String>,
    /// What CARGO_TERM_COLOR says.
    pub(super) color: Option<Color>,
    /// Width of the terminal that standard output is; none when it is no terminal.
    pub(super) columns: Option<usize>,
    /// Whether this is a CI job, where failures say how to keep their case.
    pub(super) ci: bool,
    /// Where and how the hub is asked.
    #[cfg(feature = "hub")]
    pub(super) hub: HubSettings,
}

/// The Hugging Face variables that concern fetching, as its Python package reads them.
#[cfg(feature = "hub")]
pub(super) struct HubSettings {
    /// HF_HUB_CACHE, else `hub` in HF_HOME; none for the home directory's.
    pub(super) cache: Option<std::path::PathBuf>,
    /// HF_ENDPOINT, without a slash at its end.
    pub(super) endpoint: Option<String>,
    /// HF_TOKEN; none for the token file of a login.
    pub(super) token: Option<String>,
    /// HF_HUB_OFFLINE.
    pub(super) offline: bool,
}

#[cfg(feature = "hub")]
impl HubSettings {
    fn read() -> Self {
        let value = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let path = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
        let home = || path("HF_HOME").map(|home| std::path::Path::new(&home).join("hub"));
        HubSettings {
            cache: path("HF_HUB_CACHE").map(Into::into).or_else(home),
            endpoint: value("HF_ENDPOINT").map(|e| e.trim_end_matches('/').to_owned()),
            token: value("HF_TOKEN"),
            offline: value("HF_HUB_OFFLINE")
                .is_some_and(|v| matches!(&*v.to_ascii_uppercase(), "1" | "ON" | "YES" | "TRUE")),
        }
    }
}

impl Environment {
    /// Reads everything there is.
    pub(super) fn read() -> Self {
        let value = |name: &str| std::env::var(name).ok();
        let mut unknown: Vec<String> = std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .filter(|name| name.starts_with("PADPROOF_"))
            .filter(|name| !OWN.contains(&name.as_str()) && !TESTS.contains(&name.as_str()))
            .collect();
        unknown.sort_unstable();
        #[cfg(feature = "cuda")]
        if let Some(folder) = std::env::var_os("PADPROOF_NVRTC").filter(|v| !v.is_empty()) {
            crate::subject::seek_nvrtc(std::path::Path::new(&folder));
        }
        Environment {
            notes: unknown.iter().map(|name| unknown_note(name)).collect(),
            columns: terminal_size::terminal_size_of(std::io::stdout())
                .map(|(terminal_size::Width(columns), _)| usize::from(columns)),
            #[cfg(feature = "hub")]
            hub: HubSettings::read(),
            ci: value("CI").is_some_and(|v| !v.is_empty() && v != "false" && v != "0"),
            color: match value("CARGO_TERM_COLOR").as_deref() {
                Some("always") => Some(Color::Always),
                Some("never") => Some(Color::Never),
                _ => None,
            },
        }
    }
}

/// Those variables that the rules name and that are set to a true value.
pub(super) fn rule_switches(rules: &Rules) -> Vec<&str> {
    let value = |name: &str| std::env::var(name).ok();
    let truth =
        |name: &&str| value(name).is_some_and(|v| v == "1" || v.eq_ignore_ascii_case("true"));
    let named = switch_names(rules);
    for name in &named {
        let said = value(name).unwrap_or_default();
        let known = ["", "0", "1", "true", "false"];
        if !known.contains(&&*said.to_ascii_lowercase()) {
            let why = format!("{name}={said} is neither 1 or true nor 0 or false: read as off");
            complain("warning", &why);
        }
    }
    named.into_iter().filter(truth).collect()
}

/// Every environment variable that rules read, by name.
pub(super) fn switch_names(rules: &Rules) -> Vec<&str> {
    let mut named: Vec<&str> = rules.iter().flat_map(Rule::variables).collect();
    named.sort_unstable();
    named.dedup();
    named
}

fn unknown_note(name: &str) -> String {
    let hint = did_you_mean(name, OWN);
    format!("unknown environment variable {name} is ignored{hint}")
}
