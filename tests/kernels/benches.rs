//! The two benches for devices time the same problems.

use padproof::case::Case;
use padproof::plan::plan;

/// Problem, experts, top-k, hidden, width bare and padded, gated: a row of `PROBLEMS` in `benches/triton_moe.py`.
type Row = (String, [u64; 5], bool);

/// The text between two marks, quotes and brackets gone.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let from = text.split_once(start).expect("it starts").1;
    from.split_once(end).expect("it ends").0
}

fn of_python() -> Vec<Row> {
    let text = include_str!("../../benches/triton_moe.py");
    let rows = between(text, "PROBLEMS = [", "\n]").lines();
    let rows = rows.filter_map(|line| line.trim().strip_prefix("(\"")?.split_once('"'));
    rows.map(|(name, rest)| {
        let words: Vec<&str> = rest
            .split([',', ')', ' '])
            .filter(|word| !word.is_empty())
            .collect();
        let number = |n: usize| words[n].parse().expect("a number");
        (
            name.to_owned(),
            [0, 1, 2, 3, 4].map(number),
            words[5] == "True",
        )
    })
    .collect()
}

/// Those of the other bench with weights in bfloat16.
fn of_rust() -> Vec<Row> {
    let text = include_str!("../../benches/device.rs");
    let list = between(text, "const PROBLEMS", "\n];");
    let strings: Vec<&str> = list.split('"').skip(1).step_by(2).collect();
    let rows = strings.chunks(2).filter(|row| row[0].ends_with("bf16"));
    rows.map(|row| {
        let case: Case = row[1].parse().expect("a case line");
        let plan = plan(&case).expect("it is planned");
        (
            row[0].to_owned(),
            [case.e, case.k, case.h, case.i, plan.width_padded],
            case.act.gated(),
        )
    })
    .collect()
}

#[test]
fn the_bench_of_triton_has_the_sizes_of_the_bench_of_the_kernels() {
    let rows = of_rust();
    assert!(rows.len() >= 5, "{rows:?}");
    assert_eq!(of_python(), rows);
    assert!(rows.iter().all(|(_, n, _)| n[4] > n[3]), "each pads");
}
