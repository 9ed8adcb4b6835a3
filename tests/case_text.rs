//! Old case lines keep their meaning.

use padproof::case::Case;

const FROZEN: &str = include_str!("data/case_lines.txt");

#[test]
fn old_lines_still_mean_what_they_meant() {
    let mut seen = 0;
    for line in FROZEN
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        let (old, canonical) = line.split_once(' ').expect("a line, a space, its meaning");
        let case: Case = old.parse().unwrap_or_else(|e| panic!("{old}: {e}"));
        assert_eq!(format!("{case:#}"), canonical, "{old}");
        assert_eq!(canonical.parse::<Case>().as_ref(), Ok(&case), "{canonical}");
        assert_eq!(
            case.to_string().parse::<Case>().as_ref(),
            Ok(&case),
            "{old}"
        );
        seen += 1;
    }
    assert!(seen >= 12, "only {seen} frozen lines");
}
