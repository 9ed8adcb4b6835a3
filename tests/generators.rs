//! What is drawn can be written down and read back.

use padproof::case::Case;
use padproof::r#gen::{Domain, strategy};
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn read(text: &str) -> Option<Case> {
    text.parse().ok()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_case_survives_its_minimal_and_canonical_text(case in strategy(Domain::FULL)) {
        prop_assert_eq!(read(&case.to_string()), Some(case.clone()));
        prop_assert_eq!(read(&format!("{case:#}")), Some(case.clone()));
        let shuffled: Vec<String> = format!("{case:#}").split(',').rev().map(str::to_owned).collect();
        prop_assert_eq!(read(&shuffled.join(",")), Some(case.clone()));
        prop_assert_eq!(format!("{case:?}"), format!("\"{case}\""));
    }

    #[test]
    fn damaged_text_is_refused_or_read_but_never_panics(
        case in strategy(Domain::FULL),
        at in any::<prop::sample::Index>(),
        damage in any::<char>(),
    ) {
        let mut text: Vec<char> = case.to_string().chars().collect();
        let at = at.index(text.len());
        text[at] = damage;
        let text: String = text.into_iter().collect();
        if let Ok(read) = text.parse::<Case>() {
            prop_assert_eq!(read.to_string().parse::<Case>(), Ok(read));
        }
    }

    #[test]
    fn any_text_is_refused_or_read_but_never_panics(text in "\\PC*") {
        let _ = text.parse::<Case>();
    }
}
