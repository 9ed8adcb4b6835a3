//! Goal: what README.md shows is what the program prints. Method: every `$ padproof` block that
//! shows output is run and compared, and the property table with `padproof list properties`.

use std::process::Command;

fn padproof(args: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_padproof"))
        .args(args)
        .env("NO_COLOR", "1")
        .output()
        .expect("the binary runs");
    String::from_utf8(out.stdout).expect("output is text")
}

fn readme() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");
    std::fs::read_to_string(path).expect("README.md is there")
}

#[test]
fn console_blocks_show_real_output() {
    let text = readme();
    let mut compared = 0;
    for block in text.split("```console\n").skip(1) {
        let block = block.split("```").next().expect("blocks end");
        let (command, shown) = block.split_once('\n').expect("a command, then output");
        let command = command
            .strip_prefix("$ padproof ")
            .expect("blocks run padproof");
        let args: Vec<String> = command
            .split(' ')
            .map(|a| a.trim_matches('\'').to_owned())
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let printed = padproof(&args);
        assert!(!printed.is_empty(), "{command} prints nothing");
        if !shown.trim().is_empty() {
            assert_eq!(printed.trim_end(), shown.trim_end(), "{command}");
            compared += 1;
        }
    }
    assert!(compared > 0, "no block shows output");
}

#[test]
fn the_property_table_is_the_programs() {
    let listed = padproof(&["list", "properties"]);
    assert!(
        readme().contains(listed.trim_end()),
        "README.md misses the list of properties"
    );
}
