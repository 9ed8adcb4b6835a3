//! Goal: what each shipped model becomes under each rule, and under each stack, can be read, and any
//! change of it is seen where a reviewer looks for it.
//! Method: one file per rule holds its line for every model, so that a new rule adds one file; one
//! matrix per model and stack holds the best that the stack's rules give, so that it changes only
//! where a rule changes the answer.

#![cfg(feature = "cli")]

use padproof::model::{Model, builtin};
use padproof::plan::{LayerSpec, Parallel, Plan, concerns, layers, plan_layer, plan_sizes};
use padproof::rule::{Rule, Rules, Status};
use padproof::run::{RANKS, lengths};
use padproof::terms::WeightFormat;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Models of whose plans the rules' files hold every shape.
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

fn shape(plan: &Plan, name: &str) -> String {
    let found = plan.tensors.iter().find(|t| t.name == name);
    let sizes = found.map(|t| t.shape.iter().map(u64::to_string).collect::<Vec<_>>());
    sizes.map_or("-".to_owned(), |sizes| sizes.join("x"))
}

/// The verdict with its figures, or with its codes where sizes do not matter.
fn cell(plan: &Plan) -> String {
    let (verdict, width, padded) = (plan.fit.name(), plan.width, plan.width_padded);
    let mut codes: Vec<&str> = plan.violations.iter().map(|v| v.code).collect();
    codes.sort_unstable();
    codes.dedup();
    let mut words = vec![verdict.to_owned()];
    match padded == width {
        true => words.push(width.to_string()),
        false => words.push(format!("{width}->{padded}")),
    }
    if plan.hidden_padded != plan.dims.h {
        words.push(format!("h->{}", plan.hidden_padded));
    }
    if plan.overhead_millionths > 0 {
        let percent = plan.overhead_millionths as f64 / 10_000.0;
        words.push(format!("{percent:.2}%"));
    }
    words.extend(codes.iter().map(|code| (*code).to_owned()));
    words.join(" ")
}

fn row(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn head(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let rule = vec!["---".to_owned(); names.len()];
    row(&names) + &row(&rule)
}

/// A rule's plan in the environment that it is for.
fn at(part: &LayerSpec, rule: &Rule, tp: u64) -> Option<Plan> {
    let ranks = Parallel { tp, ep: 1 };
    let env: Vec<&str> = rule.when.env.as_deref().into_iter().collect();
    concerns(rule, part, ranks, &env).then(|| {
        plan_layer(part, ranks, rule, &env).unwrap_or_else(|e| panic!("{} tp={tp}: {e}", rule.id))
    })
}

/// The parts of a model that a rule covers, in the model's own format if the rule takes it, else in
/// the first that it takes.
fn parts(model: &Model, rule: &Rule) -> Vec<LayerSpec> {
    let covered = |part: &LayerSpec| rule.layers.contains(&part.kind.follows());
    let taken = |part: LayerSpec| LayerSpec {
        weight: match rule.formats.contains(&part.weight) {
            true => part.weight,
            false => rule.formats[0],
        },
        ..part
    };
    let all = layers(model, 1).into_iter();
    all.filter(covered).map(taken).collect()
}

/// A rule's line for every part of every model, and the shapes of some.
fn rule_text(rule: &Rule) -> String {
    let status = match rule.status {
        Status::Current => String::new(),
        other => format!(", {}", other.name()),
    };
    let mut text = format!("`{}` {}{status}\n\n", rule.id, rule.version);
    let ranks: Vec<String> = RANKS.iter().map(|tp| format!("tp {tp}")).collect();
    let mut names = vec!["model", "layer", "format"];
    names.extend(ranks.iter().map(String::as_str));
    text += &head(&names);
    let mut shapes = String::new();
    for model in builtin() {
        for part in parts(model, rule) {
            let (kind, format) = (part.kind.to_string(), part.weight.to_string());
            let plans = RANKS.map(|tp| at(&part, rule, tp));
            if plans.iter().all(Option::is_none) {
                continue;
            }
            let mut cells = vec![model.name.clone(), kind.clone(), format.clone()];
            cells.extend(plans.iter().map(|p| p.as_ref().map_or(String::new(), cell)));
            text += &row(&cells);
            let own = layers(model, 1).contains(&part);
            if !own || !DETAILED.contains(&model.name.as_str()) {
                continue;
            }
            for (tp, plan) in RANKS.iter().zip(plans) {
                let Some(plan) = plan else { continue };
                let tensors = ["w13", "w2", "w13_scale", "w2_scale"];
                let mut cells = vec![model.name.clone(), kind.clone(), tp.to_string()];
                cells.push(lengths(plan.ranks.iter().map(|rank| rank.len)));
                cells.extend(tensors.map(|name| shape(&plan, name)));
                shapes += &row(&cells);
            }
        }
    }
    if !shapes.is_empty() {
        text.push('\n');
        let names = [
            "model",
            "layer",
            "tp",
            "real per rank",
            "w13",
            "w2",
            "w13 scale",
            "w2 scale",
        ];
        text += &head(&names);
        text += &shapes;
    }
    text
}

/// The best that a stack's current rules give for every part, format and number of ranks of a
/// model, with the backend of the first rule that gives it.
fn matrix_text(model: &Model, rules: &[&Rule]) -> String {
    let ranks: Vec<String> = RANKS.iter().map(|tp| format!("tp {tp}")).collect();
    let mut names = vec!["layer", "format"];
    names.extend(ranks.iter().map(String::as_str));
    let mut text = format!("{}\n\n{}", model.name, head(&names));
    for part in layers(model, 1) {
        for &weight in WeightFormat::ALL {
            let own = if weight == part.weight { " (own)" } else { "" };
            let spec = LayerSpec {
                weight,
                ..part.clone()
            };
            let takes = |rule: &&&Rule| {
                rule.formats.contains(&weight) && rule.layers.contains(&part.kind.follows())
            };
            let best = RANKS.map(|tp| {
                let ranks = Parallel { tp, ep: 1 };
                let plans = rules
                    .iter()
                    .filter(takes)
                    .filter(|rule| concerns(rule, &spec, ranks, &[]))
                    .map(|rule| (*rule, plan_sizes(&spec, ranks, rule, &[])));
                let plans = plans.map(|(rule, plan)| match plan {
                    Ok(plan) => (rule, plan),
                    Err(e) => panic!("{} tp={tp}: {e}", rule.id),
                });
                plans.min_by_key(|(_, plan)| (plan.fit, plan.overhead_millionths))
            });
            if best.iter().all(Option::is_none) {
                continue;
            }
            let mut cells = vec![part.kind.to_string(), format!("{weight}{own}")];
            cells.extend(best.iter().map(|best| match best {
                Some((rule, plan)) => format!("{}: {}", rule.backend, cell(plan)),
                None => String::new(),
            }));
            text += &row(&cells);
        }
    }
    text
}

/// Every file by its name.
fn texts(rules: &Rules) -> BTreeMap<String, String> {
    let all: Vec<&Rule> = rules.iter().collect();
    let stacks: BTreeSet<&str> = all.iter().map(|rule| rule.stack.as_str()).collect();
    let of_rules = all.par_iter().map(|rule| {
        let id = &rule.id;
        (format!("rule@{id}"), rule_text(rule))
    });
    let mut texts: BTreeMap<String, String> = of_rules.collect();
    let pairs: Vec<(&Model, &str)> = builtin()
        .iter()
        .flat_map(|model| stacks.iter().map(move |stack| (model, *stack)))
        .collect();
    let matrices = pairs.par_iter().map(|(model, stack)| {
        let current = |rule: &&Rule| rule.stack == *stack && rule.status == Status::Current;
        let rules: Vec<&Rule> = all.iter().copied().filter(current).collect();
        let name = &model.name;
        (format!("matrix@{name}.{stack}"), matrix_text(model, &rules))
    });
    texts.extend(matrices.collect::<Vec<_>>());
    texts
}

#[test]
fn every_rule_has_its_table_and_every_model_its_matrix_for_every_stack() {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../snapshots");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    let texts = texts(Rules::builtin());
    settings.bind(|| {
        for (name, text) in &texts {
            insta::assert_snapshot!(name.as_str(), text);
        }
    });
}

/// The files that differ between the shipped rules and those with one more.
fn changed_by(entry: &str) -> Vec<String> {
    let before = texts(Rules::builtin());
    let more = Rules::parse(entry, "throwaway.toml").unwrap_or_else(|e| panic!("{e}"));
    let after = texts(&Rules::builtin().clone().with(more));
    let changed = after
        .into_iter()
        .filter(|(name, text)| before.get(name) != Some(text));
    changed.map(|(name, _)| name).collect()
}

const THROWAWAY: &str = r#"
[[rule]]
id = "sglang.throwaway.fp8"
stack = "sglang"
version = "0.5.23"
backend = "throwaway"
formats = ["fp8", "bf16"]
source = "facts/none: a rule to count files by"
grade = "derived"
timing = "after-load"
split = "floor"
order = "up-gate"
intermediate = [{ align = 128 }]
"#;

#[test]
fn a_new_rule_adds_one_file_and_changes_none() {
    assert_eq!(changed_by(THROWAWAY), ["rule@sglang.throwaway.fp8"]);
}

/// A rule that takes any width where the stack's others pad or refuse.
#[test]
fn a_rule_that_changes_the_answer_shows_in_the_matrices_of_those_models_alone() {
    let entry = THROWAWAY.replace("\"fp8\", \"bf16\"", "\"nvfp4\"");
    let better = entry.replace("align = 128", "align = 16");
    let changed = changed_by(&better);
    let matrix = |name: &&String| name.starts_with("matrix@") && name.ends_with(".sglang");
    assert_eq!(changed.iter().filter(matrix).count() + 1, changed.len());
    assert!(
        changed
            .iter()
            .any(|name| name == "matrix@Gemma-4-26B-A4B.sglang")
    );
    assert!(
        !changed
            .iter()
            .any(|name| name == "matrix@Mixtral-8x7B-v0.1.sglang")
    );
}
