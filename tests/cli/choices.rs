//! Plans for another version of a stack, and for one architecture.

use crate::{ends, text};

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
