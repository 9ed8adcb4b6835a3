//! Plans for another version of a stack, for one architecture or backend, and for one rank.

use crate::cli::{Folder, ends, padproof, refused, text};

/// Names of models have dots too, and are no rules' ids for that.
#[test]
fn names_with_dots_are_shown() {
    let all = padproof::model::builtin().iter();
    let dotted: Vec<&str> = all
        .map(|m| m.name.as_str())
        .filter(|name| name.matches('.').count() >= 2)
        .collect();
    assert!(!dotted.is_empty());
    for name in dotted {
        let shown = text(&ends(&["show", name], 0).stdout);
        assert!(shown.contains(name), "{name}: {shown}");
    }
}

#[test]
fn another_version_is_planned_by_the_rule_that_held_then_or_left_open() {
    let plan = |more: &[&str]| {
        let args = ["plan", "Gemma-4-26B-A4B", "--tp", "2", "--weights", "nvfp4"];
        let args: Vec<&str> = args.iter().chain(more).copied().collect();
        text(&ends(&args, 0).stdout)
    };
    let align16 = "vllm.flashinfer_trtllm.nvfp4.align-16";
    assert!(!plan(&[]).contains(align16));
    let unread = plan(&["--stack-version", "vllm=0.20"]);
    // Nothing says since when the newest rules hold; what ended with 0.33.0 is not shown for it.
    assert!(unread.contains("PP124") && unread.contains("what 0.20 does was not read"));
    assert!(!plan(&["--stack-version", "vllm=0.33.0"]).contains("PP124"));
    assert!(!plan(&["--stack-version", "vllm=0.33.0"]).contains(align16));
    // Other stacks stay as they are, and one stack alone needs no name.
    assert!(plan(&["--stack-version", "vllm=0.20"]).contains("sglang.flashinfer_trtllm.nvfp4 "));
    let alone = plan(&["--rule", "vllm.b12x.*", "--stack-version", "0.20"]);
    assert!(alone.contains("PP124"));
}

#[test]
fn an_architecture_settles_what_turns_on_it() {
    let plan = |more: &[&str]| {
        let rule = "vllm.triton_unfused.mxfp4";
        let args = ["plan", "Kimi-K3", "--tp", "8", "--rule", rule];
        let args: Vec<&str> = args.iter().chain(more).copied().collect();
        text(&ends(&args, 0).stdout)
    };
    // 3072 / 8 = 384: three times 128, and 512 in units of 256.
    assert!(plan(&[]).contains("PP119"));
    let [old, new] = ["gfx942", "gfx950"].map(|arch| plan(&["--arch", arch]));
    assert!(
        !old.contains("PP119") && !old.contains("384 -> 512"),
        "{old}"
    );
    assert!(
        !new.contains("PP119") && new.contains("384 -> 512"),
        "{new}"
    );
}

/// facts/upstream-padding.md 1.10: 1536 in strides of 256 leaves ranks 6 and 7 of 8 empty.
#[test]
fn a_loader_is_told_what_each_rank_holds() {
    let args = [
        "plan",
        "Qwen3-235B-A22B",
        "--weights",
        "fp8-block",
        "--tp",
        "8",
    ];
    let args = [
        &args[..],
        &["--rule", "sglang.aiter.fp8", "--tensors", "--rank"],
    ]
    .concat();
    let shown = text(&ends(&[&args[..], &["7"]].concat(), 0).stdout);
    for line in [
        "  192 -> 256  ",
        "shares stride: 6 x 256, 2 x 0 under sglang.aiter.fp8",
        "channels 1536..1536 of 1536, experts 0..128 of 128",
        "w13           e4m3   128 x 512 x 4096  as shape  128 x 0 x 4096  268435456",
        "w2 columns: pad 0..256",
    ] {
        assert!(shown.contains(line), "no `{line}` in\n{shown}");
    }
    refused(&[&args[..], &["8"]].concat(), &["the plans have 8 ranks"]);
    let gpt = [
        "plan",
        "gpt-oss-120b",
        "--tp",
        "8",
        "--rule",
        "vllm.cutlass.mxfp4",
        "--tensors",
        "--rank",
        "7",
    ];
    let shown = text(&ends(&gpt, 0).stdout);
    for line in [
        "shares ceil-block: 7 x 384, 1 x 192 under vllm.cutlass.mxfp4",
        "128 x 768 x 1472 bytes",
        "w13 rows up-gate (unknown), pads per-half",
        "even columns in the low nibble",
        "w13 rows: up 0..192, pad 192..384, gate 384..576, pad 576..768",
        "w13 columns: real 0..2880, pad 2880..2944",
    ] {
        assert!(shown.contains(line), "no `{line}` in\n{shown}");
    }
}

#[test]
fn a_backend_chosen_counts_like_a_rule() {
    let args = [
        "plan",
        "Qwen3-235B-A22B",
        "--weights",
        "fp8-block",
        "--tp",
        "8",
        "--backend",
    ];
    ends(&[&args[..], &["triton"]].concat(), 1);
    ends(&[&args[..], &["aiter"]].concat(), 0);
}

#[test]
fn two_versions_of_a_stack_are_compared_by_their_tables() {
    let folder = Folder::new();
    let saved = |name: &str, version: &str| {
        let args = ["plan", "Gemma-4-26B-A4B", "--tp", "2", "--weights", "nvfp4"];
        let more = ["--stack-version", version, "--format", "json"];
        let out = padproof(&[&args[..], &more].concat());
        folder.file(name, out.stdout)
    };
    let before = saved("before.json", "vllm=0.20");
    let after = saved("after.json", "vllm=0.33.0");
    ends(&["diff", &before, &before], 0);
    let human = text(&ends(&["diff", &before, &after], 1).stdout);
    assert!(human.contains("verdict unknown -> "), "{human}");
    assert!(!human.contains("sglang"), "{human}");
    let json = std::fs::read_to_string(&after).unwrap();
    let newer = json.replacen("\"version\": \"0.33.0\"", "\"version\": \"0.34.0\"", 1);
    let newer = folder.file("newer.json", newer);
    let human = text(&ends(&["diff", &after, &newer], 1).stdout);
    assert!(human.contains("version 0.33.0 -> 0.34.0"), "{human}");
}

#[test]
fn reveal_names_what_it_cannot_ask() {
    let ask = ["reveal", "--k", "20", "--axis", "hidden"];
    let with = |more: &[&'static str]| [&ask[..], more].concat();
    let out = ends(&with(&["cpu:pairwise", "--k-padded", "24"]), 0);
    let found = text(&out.stdout);
    assert!(
        found.contains("order       pairwise") && found.contains("pad-stable  no"),
        "{found}"
    );
    for (more, said) in [
        (&["gpu"][..], "unknown subject `gpu`"),
        (
            &["cpu:lanes-0"],
            "subject cpu:lanes-0: no summation order `lanes-0`",
        ),
        (&["--k-padded", "19"], "--k-padded 19 is less than --k 20"),
        (&["--tokens", "0"], "--tokens"),
    ] {
        let out = ends(&with(more), 2);
        assert!(text(&out.stderr).contains(said), "{more:?}");
    }
    let large = ["reveal", "--k", "65536", "--rows", "65536"];
    let out = ends(&large, 2);
    assert!(text(&out.stderr).contains("fewer --rows"), "{large:?}");
}

#[test]
fn a_repositorys_name_is_told_what_would_ask_for_it() {
    if !cfg!(feature = "hub") {
        refused(
            &["plan", "Qwen/NotBuiltIn", "--tp", "1"],
            &["Qwen/NotBuiltIn", "--features hub"],
        );
    }
}

/// A rule of the user's is named by cases, by suites and in what reproduces a finding.
#[test]
fn cases_run_under_a_rule_of_the_users() {
    let folder = Folder::new();
    let rule = "[[rule]]\nid = \"mine.kernel.fp8\"\nstack = \"mine\"\nversion = \"1\"\nbackend = \"kernel\"\n\
        formats = [\"fp8\"]\nsource = \"here\"\ngrade = \"source\"\ntiming = \"after-load\"\nsplit = \"floor\"\n\
        order = \"gate-up\"\nintermediate = [{ align = 16 }]\n";
    let rules = folder.file("my rules.toml", rule);
    let case = "t=3,e=4,h=32,i=961,w=fp8,rule=mine.kernel.fp8";
    refused(
        &["check", "pad-identity", case],
        &["no rule matches `mine.kernel.fp8`"],
    );
    let out = ends(&["check", "pad-identity", case, "--rules", &rules], 0);
    assert!(text(&out.stdout).contains("PASS"), "{}", text(&out.stdout));
    let lines = folder.file("cases.txt", case);
    ends(
        &["replay", &lines, "-p", "pad-identity", "--rules", &rules],
        0,
    );
    // An entry that is stale: what it says to type brings the rules along.
    let entry = format!(
        "[[case]]\nname = \"odd\"\nline = \"{case}\"\nexpect = \"fail\"\nwhy = \"no more\"\n"
    );
    let suite = folder.file("s.toml", format!("[suite]\nname = \"s\"\n{entry}"));
    refused(&["run", &suite], &["s.toml", "mine.kernel.fp8"]);
    let said = text(&ends(&["run", &suite, "-p", "pad-identity", "--rules", &rules], 1).stdout);
    let typed = said
        .lines()
        .find_map(|line| line.split_once("padproof run "));
    let (_, words) = typed.unwrap_or_else(|| panic!("{said}"));
    let words = shlex::split(words).unwrap();
    let again: Vec<&str> = ["run"]
        .into_iter()
        .chain(words.iter().map(|w| &**w))
        .collect();
    ends(&again, 1);
    // Every property of plans is asked of it too, and shrinking knows it.
    ends(
        &["run", "smoke/orders", "-p", "plan-units", "--rules", &rules],
        0,
    );
    ends(&["shrink", "pad-identity", case, "--rules", &rules], 1);
    refused(
        &["run", "--mutants", "--rules", &rules],
        &["--rules does nothing beside --mutants"],
    );
}

/// Thirteen refusals for one fact: that no rule of the pattern takes the format. That TensorRT-LLM refuses it
/// nobody read.
#[test]
fn a_pattern_that_takes_nothing_is_one_sentence() {
    let args = ["plan", "Qwen3-30B-A3B", "--tp", "8", "--rule"];
    let told = |pattern| {
        let out = ends(&[&args as &[&str], &[pattern]].concat(), 1);
        let told = text(&out.stdout);
        told.split_whitespace().collect::<Vec<&str>>().join(" ")
    };
    let none = told("trtllm*");
    let sentence = "no chosen rule takes bf16 in the routed layer: they are for fp8, fp8-block, ";
    assert!(none.contains(sentence), "{none}");
    assert!(
        !none.contains("PP111") && !none.contains("refused"),
        "{none}"
    );
    // A whole id is the pattern that matches it alone.
    let sentence = "no chosen rule takes bf16 in the routed layer: they are for fp8";
    assert!(told("trtllm.cutlass.fp8").contains(sentence));
}
