//! Goal: what each shipped model becomes under each rule can be read, and any change of it is seen.
//! Method: one matrix per model and stack, a line per rule, in `snapshots/`; for the models that
//! the project began with also every shape, a line per rule and number of ranks.

#![cfg(feature = "cli")]

use padproof::model::{Model, builtin};
use padproof::plan::{LayerSpec, Parallel, Plan, concerns, layers, plan_layer};
use padproof::report::table_markdown;
use padproof::rule::{Rule, Rules, Status};
use padproof::run::{Query, RANKS, Table};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Models whose tables hold every shape.
const DETAILED: [&str; 12] = [
    "NemotronH-default",
    "Nemotron-3-Nano-30B-A3B",
    "Nemotron-3-Super-120B-A12B",
    "Nemotron-3-Ultra-550B-A55B",
    "Qwen3-235B-A22B",
    "Qwen3-30B-A3B",
    "GLM-4.7",
    "DeepSeek-V3",
    "gpt-oss-20b",
    "gpt-oss-120b",
    "Gemma-4-26B-A4B",
    "Mixtral-8x7B-v0.1",
];

/// One rank.
const ONE: Parallel = Parallel { tp: 1, ep: 1 };

fn shape(plan: &Plan, name: &str) -> String {
    match plan.tensors.iter().find(|t| t.name == name) {
        None => "-".to_owned(),
        Some(t) => t
            .shape
            .iter()
            .map(u64::to_string)
            .collect::<Vec<_>>()
            .join("x"),
    }
}

/// Ranks' real lengths with repeats counted: `256*6 0*2`.
fn lengths(plan: &Plan) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for rank in &plan.ranks {
        match runs.last_mut() {
            Some((len, times)) if *len == rank.len => *times += 1,
            _ => runs.push((rank.len, 1)),
        }
    }
    let run = |(len, times): &(u64, u64)| format!("{len}*{times}");
    runs.iter().map(run).collect::<Vec<_>>().join(" ")
}

fn codes(plan: &Plan) -> String {
    let mut codes: Vec<&str> = plan.violations.iter().map(|v| v.code).collect();
    codes.sort_unstable();
    codes.dedup();
    if codes.is_empty() {
        "-".to_owned()
    } else {
        codes.join(" ")
    }
}

fn row(rule: &Rule, part: &LayerSpec, tp: u64) -> Vec<String> {
    let plan = plan_layer(part, Parallel { tp, ep: 1 }, rule, &[])
        .unwrap_or_else(|e| panic!("{} tp={tp}: {e}", rule.id));
    let id = match rule.status {
        Status::Current => rule.id.clone(),
        Status::Historical | Status::Proposed => format!("({})", rule.id),
    };
    let overhead = plan.overhead_millionths as f64 / 10_000.0;
    vec![
        id,
        part.kind.to_string(),
        part.weight.to_string(),
        tp.to_string(),
        plan.fit.name().to_owned(),
        format!("{}->{}", plan.width, plan.width_padded),
        lengths(&plan),
        format!("{overhead:.2}%"),
        shape(&plan, "w13"),
        shape(&plan, "w2"),
        shape(&plan, "w13_scale"),
        shape(&plan, "w2_scale"),
        codes(&plan),
    ]
}

fn table(model: &Model) -> String {
    const HEAD: [&str; 13] = [
        "rule",
        "layer",
        "format",
        "tp",
        "verdict",
        "width",
        "real per rank",
        "extra",
        "w13",
        "w2",
        "w13 scale",
        "w2 scale",
        "codes",
    ];
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for rule in Rules::builtin().iter() {
        for part in layers(model, 1) {
            if !rule.layers.contains(&part.kind.follows()) {
                continue;
            }
            // What the matrices show too is left out, unless the model is stored so.
            if !rule.formats.contains(&part.weight) || !concerns(rule, &part, ONE) {
                continue;
            }
            rows.extend(RANKS.map(|tp| row(rule, &part, tp)));
        }
    }
    let wide = |n: usize| rows.iter().map(|r| r[n].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(wide).collect();
    let mut text = format!(
        "{}: {} x {}, {} experts, {} of them per token, {}; historical rules in brackets\n",
        model.name, model.hidden, model.intermediate, model.experts, model.top_k, model.activation
    );
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:<width$}  ").expect("a string takes all");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn snapshot(name: String, text: String) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn the_first_models_have_their_tables() {
    let detailed = |model: &&Model| DETAILED.contains(&model.name.as_str());
    let models: Vec<&Model> = builtin().iter().filter(detailed).collect();
    assert_eq!(models.len(), DETAILED.len());
    for model in models {
        let text = table(model);
        let lines = text.lines().count();
        assert!(lines > 50, "{}: {lines} lines", model.name);
        let name = format!("plan-tables@{}", model.name);
        snapshot(name, text);
    }
}

/// Markdown, since its cells are not aligned: a new rule adds a line and changes no other.
#[test]
fn every_model_has_a_matrix_for_every_stack() {
    let rules = Rules::builtin();
    let stacks: BTreeSet<&str> = rules.iter().map(|rule| rule.stack.as_str()).collect();
    for model in builtin() {
        for stack in &stacks {
            let pattern = format!("{stack}.*");
            let query = Query {
                rule: Some(&pattern),
                all: false,
                ..Query::of(Parallel { tp: 1, ep: 1 })
            };
            let table = Table::all(std::slice::from_ref(model), rules, &query, &RANKS);
            let table = table.unwrap_or_else(|e| panic!("{} {stack}: {e}", model.name));
            let mut text = Vec::new();
            table_markdown(&table, &mut text).expect("a vector takes all");
            let text = String::from_utf8(text).expect("text");
            let name = format!("matrix@{}.{stack}", model.name);
            snapshot(name, text);
        }
    }
}
