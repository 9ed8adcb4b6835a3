//! Suite files are read strictly: what is written is what runs, or an error names the place.

use padproof::plan::Fit;
use padproof::suite::{BUILTIN, Expect, PlanModel, PlanRules, Suite, builtin, parse};

fn suite(text: &str) -> Suite {
    parse(text, "s.toml").unwrap_or_else(|error| panic!("{error}"))
}

fn message(entries: &str) -> String {
    match parse(&format!("[suite]\nname = \"s\"\n{entries}"), "s.toml") {
        Ok(suite) => panic!("read: {suite:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_shipped_suite_reads() {
    for (name, text) in BUILTIN {
        let suite = parse(text, name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(suite.name, *name);
    }
    assert!(suite(builtin("smoke").expect("shipped")).cases.len() > 100);
    assert!(suite(builtin("boundary").expect("shipped")).cases.len() > 500);
    assert!(builtin("nothing").is_none());
}

/// The lists of `models` name each shipped model twice: in every format, and in its own.
#[test]
fn the_models_suite_plans_every_shipped_model() {
    let models = suite(builtin("models").expect("shipped"));
    for name in ["routed", "own-format"] {
        let entries = models.plans.iter().filter(|p| p.name.contains(name));
        let planned: Vec<&PlanModel> = entries.map(|p| &p.model).collect();
        for model in padproof::model::builtin() {
            let named = PlanModel::Named(model.name.clone());
            assert!(planned.contains(&&named), "{} is not in {name}", model.name);
        }
    }
}

#[test]
fn the_example_of_the_style_guide_reads() {
    let suite = suite(
        r#"# Sizes around every block and shard boundary of the 32-wide formats.
[suite]
name = "boundary"
properties = ["pad-identity", "pack-round-trip"]
[suite.coverage]          # shares below these give exit 3
padded = 0.8

[[case]]
name = "one-past-block"
line = "t=3,e=4,k=2,h=64,i=33,w=mxfp4,pad=i32"

[[sweep]]                 # expands to a product, each with its own name
name = "remainders"
line = "t=5,e=4,k=2,h=64,w=mxfp4,pad=i32"
i = ["31..=33", "63..=65", 96]
tp = [1, 2, 4]

[[case]]
name = "minus-zero-fill"
line = "t=1,e=1,k=1,h=32,i=1,w=mxfp4,seed=7"
expect = "fail"           # asserted: a pass turns this red
why = "padding wrote 0x8 (minus zero); see issue 12"
"#,
    );
    assert_eq!(suite.properties, ["pad-identity", "pack-round-trip"]);
    assert_eq!(suite.coverage["padded"], 0.8);
    assert_eq!(suite.cases.len(), 1 + 7 * 3 + 1);
    assert_eq!(suite.cases[0].name, "boundary/one-past-block");
    assert_eq!(suite.cases[0].line, 8);
    let swept = suite
        .cases
        .iter()
        .find(|c| c.name == "boundary/remainders/i=33,tp=2");
    let swept = swept.expect("expanded");
    assert_eq!(swept.case.to_string(), "t=5,i=33,tp=2,w=mxfp4,pad=i32");
    assert_eq!(swept.line, 12);
    let last = suite.cases.last().expect("three entries");
    assert_eq!(last.expect, Expect::Fail);
    assert!(
        last.why
            .as_deref()
            .is_some_and(|why| why.contains("minus zero"))
    );
}

#[test]
fn plans_carry_what_they_expect() {
    let suite = suite(
        r#"[suite]
name = "plans"
[[plan]]
name = "nemotronh"
model = "nemotronh"
tp = 8
rule = "sglang.flashinfer_cutlass.fp8"
expect = { verdict = "padded", width = 961, width_padded = 976, w13_rows = 976 }
[[plan]]
name = "every"
model = ["a", "b"]
tp = [1, 2]
[[plan]]
name = "odd"
model = { hidden = 64, intermediate = 100, experts = 4, top_k = 2, gated = true, format = "mxfp4" }
tp = 4
ep = 2
layer = "shared"
[plan.expect]
verdict = ["refused", "wrong"]
ranks = [[0, 50], [50, 50]]
codes = ["PP101"]
"#,
    );
    let names: Vec<&str> = suite.plans.iter().map(|plan| plan.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "plans/nemotronh",
            "plans/every/model=a,tp=1",
            "plans/every/model=a,tp=2",
            "plans/every/model=b,tp=1",
            "plans/every/model=b,tp=2",
            "plans/odd"
        ]
    );
    assert_eq!(suite.plans[0].expect.width_padded, Some(976));
    let odd = &suite.plans[5];
    assert_eq!(odd.expect.verdicts, [Fit::Refused, Fit::Wrong]);
    assert_eq!(odd.expect.ranks, Some(vec![(0, 50), (50, 50)]));
    assert!(matches!(&odd.model, PlanModel::Sizes(s) if s.intermediate == Some(100)));
    assert_eq!(odd.line, 13);
}

#[test]
fn a_plan_names_shipped_rules_its_own_or_a_scheme() {
    let suite = suite(
        r#"[suite]
name = "s"
[[rule]]
id = "mine.kernel.bf16"
stack = "mine"
version = "1"
backend = "kernel"
formats = ["bf16"]
source = "here"
grade = "issue"
timing = "never"
split = "floor"
order = "gate-up"
[[plan]]
name = "own"
model = "m"
rule = "mine.kernel.bf16"
[[plan]]
name = "shipped"
model = "m"
rule = "sglang.*"
format = ["bf16", "fp8"]
[[plan]]
name = "spelled"
model = "m"
scheme = "pad=i64,split=floor"
refine = false
expect = { overhead = 1.56, shapes = { w13 = [1, 2, 3] }, aligned_tp = [1], says = ["x"] }
"#,
    );
    let patterns: Vec<_> = suite.plans.iter().map(|p| p.rules.pattern()).collect();
    assert_eq!(
        patterns,
        ["mine.kernel.bf16", "sglang.*", "sglang.*", "spelled"]
    );
    assert!(matches!(suite.plans[0].rules, PlanRules::Own(_)));
    assert!(matches!(suite.plans[1].rules, PlanRules::Named(_)));
    assert_eq!(suite.plans[2].name, "s/shipped/format=fp8");
    assert!(matches!(
        &suite.plans[3].rules,
        PlanRules::Spelled(spec, Some(false)) if spec.intermediate == 64
    ));
    assert_eq!(suite.plans[3].expect.shapes["w13"], [1, 2, 3]);
}

#[test]
fn each_fault_is_named_with_its_place() {
    for (entries, wanted) in [
        (
            "[[case]]\nname = \"a\"\nline = \"t=1\"\nlin = 2",
            "s.toml:6: unknown field `lin`",
        ),
        ("colour = 1", "s.toml:3: unknown field `colour`"),
        ("[[cases]]\nname = \"a\"", "s.toml:3: unknown field `cases`"),
        ("[[case]]\nname = \"a\"", "s.toml:3: missing field `line`"),
        (
            "[[case]]\nname = \"a\"\nline = \"i=0\"",
            "s.toml:3: entry `s/a`: i=0: must be at least 1",
        ),
        (
            "[[case]]\nname = \"A b\"\nline = \"t=1\"",
            "s.toml:3: name `A b`: use",
        ),
        (
            "[[case]]\nname = \"a\"\nline = \"t=1\"\n[[case]]\nname = \"a\"\nline = \"t=2\"",
            "s.toml:6: entry `s/a` exists already, at line 3",
        ),
        (
            "[[case]]\nname = \"a\"\nline = \"t=1\"\nexpect = \"fail\"",
            "s.toml:3: entry `s/a`: expect = \"fail\" needs `why`",
        ),
        (
            "[[case]]\nname = \"a\"\nline = \"t=1\"\nexpect = \"maybe\"",
            "s.toml:3: entry `s/a`: expect = \"maybe\" is not \"pass\", \"fail\" or \"vacuous\"",
        ),
        (
            "[[sweep]]\nname = \"a\"\nline = \"t=1\"\nrout = [\"given\"]",
            "s.toml:3: entry `a`: unknown key `rout` (did you mean `route`?)",
        ),
        (
            "[[sweep]]\nname = \"a\"\nline = \"t=1\"",
            "s.toml:3: entry `a` sweeps no key",
        ),
        (
            "[[sweep]]\nline = \"t=1\"\ni = 2",
            "s.toml:3: missing field `name`",
        ),
        (
            "[[sweep]]\nname = \"a\"\ni = []",
            "s.toml:3: entry `a`: i = [] is not a list with",
        ),
        (
            "[[sweep]]\nname = \"a\"\ni = [1, 1]",
            "s.toml:3: entry `a`: i = [1, 1] is not free of",
        ),
        (
            "[[sweep]]\nname = \"a\"\ni = [true]",
            "s.toml:3: entry `a`: i = true is not a whole",
        ),
        (
            "[[sweep]]\nname = \"a\"\ni = [\"9..=1\"]",
            "s.toml:3: entry `a`: i = \"9..=1\" is not a",
        ),
        (
            "[[sweep]]\nname = \"a\"\ni = [\"1..=99999999999\"]",
            "s.toml:3: entry `a`: i = \"1..=9",
        ),
        (
            "[[sweep]]\nname = \"a\"\nseed = [10]",
            "s.toml:3: entry `a`: seed = 10 is not a seed in",
        ),
        (
            "[[sweep]]\nname = \"a\"\nline = \"i=2\"\ni = [1]",
            "s.toml:3: entry `s/a/i=1`: key `i` is given twice",
        ),
        (
            "[[sweep]]\nname = \"a\"\ni = [\"1..=9999\"]\nh = [\"1..=9999\"]",
            "s.toml:3: entry `a` brings the suite over 100000",
        ),
        (
            "[[plan]]\nname = \"a\"\nmodel = \"m\"\nexpect = { verdict = \"good\" }",
            "s.toml:3: entry `a`: verdict = \"good\" is not one of fits",
        ),
        (
            "[[plan]]\nname = \"a\"\nmodel = { hiden = 3 }",
            "s.toml:5: a model's name or path",
        ),
        (
            "[[plan]]\nname = \"a\"\nmodel = \"m\"\ntp = 3\nep = 2",
            "s.toml:3: entry `a`: tp, ep = 3, 2",
        ),
        (
            "[[plan]]\nname = \"a\"\nmodel = \"m\"\nrule = \"r\"\nscheme = \"pad=i2\"",
            "s.toml:3: entry `a`: give either `rule` or `scheme`",
        ),
        (
            "[[plan]]\nname = \"a\"\nmodel = \"m\"\nscheme = \"pad=j2\"",
            "s.toml:3: entry `a`: pad=j2",
        ),
        (
            "[[plan]]\nname = \"a\"\nmodel = \"m\"\nexpect = { widht = 3 }",
            "s.toml:6: unknown field `widht`",
        ),
        (
            "[[plan]]\nname = \"a\"\nmodel = \"m\"\nformat = \"fp9\"",
            "s.toml:6: ",
        ),
        (
            "[suite.coverage]\npadded = 80",
            "s.toml:1: entry `s`: padded = 80 is not a share",
        ),
        ("[[case]", "s.toml:3: "),
    ] {
        let message = message(entries);
        assert!(
            message.starts_with(wanted),
            "{entries}\n got {message}\nwant {wanted}"
        );
        assert!(!message.contains('\n'), "{message:?}");
    }
}

#[test]
fn a_large_suite_is_read_in_time_and_its_lines_are_right() {
    use std::fmt::Write;
    let mut text = "[suite]\nname = \"s\"\n".to_owned();
    let count = 50_000;
    for n in 0..count {
        write!(text, "[[case]]\nname = \"c{n}\"\nline = \"i=33\"\n").expect("memory");
    }
    let started = std::time::Instant::now();
    let suite = suite(&text);
    let line = |n: usize| suite.cases[n].line;
    assert_eq!((line(0), line(count - 1)), (3, 3 + 3 * (count - 1)));
    // Counting from the first byte for each entry took many times this.
    assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
}

#[test]
fn names_that_do_not_exist_are_refused_with_their_line() {
    let plan = |rest: &str| format!("[[plan]]\nname = \"p\"\n{rest}\n");
    for (entries, words) in [
        (
            plan("model = { experts = 8, top_k = 9 }"),
            "s.toml:3: entry `p`: model.top_k = 9, but only 8 experts",
        ),
        (
            plan("model = { base = \"Mixtral-8x7B-v0.1\", top_k = 9 }"),
            "s.toml:3: entry `p`: model.top_k = 9, but only 8 experts",
        ),
        (
            plan("model = \"x\"\nexpect = { codes = [\"PP101\", \"PP192\"] }"),
            "s.toml:3: entry `p`: codes: no code `PP192`",
        ),
        (
            plan("model = \"x\"\nexpect = { no_codes = [\"no\"] }"),
            "s.toml:3: entry `p`: no_codes: no code `no`",
        ),
        (
            "[[case]]\nname = \"c\"\nline = \"rule=no.such.rule\"\n".to_owned(),
            "s.toml:3: entry `s/c`: no rule matches `no.such.rule`",
        ),
    ] {
        let message = message(&entries);
        assert!(message.starts_with(words), "{message}");
    }
}
