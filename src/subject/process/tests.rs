//! The protocol, as hostile and as slow programs speak it.

use super::child::Child;
use super::keys::{GRANULES, SIZES, SizeKey, WORDS};
use super::message::{self, PROTOCOL};
use super::supports::Supports;
use super::{Limits, Process, Program, Running, reply};
use crate::case::Case;
use crate::fill::fill;
use crate::layout::{PackedInputs, pack_layer};
use crate::plan::{Plan, plan};
use crate::subject::cpu::{Sizes, route};
use crate::subject::{Misbehaviour, Subject, SubjectError};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

const PAGE: &str = include_str!("../../../docs/subject-protocol.md");

fn packed(line: &str) -> (Plan, PackedInputs) {
    let case: Case = line.parse().unwrap();
    let plan = plan(&case).unwrap();
    let logical = fill(&case).unwrap();
    let packed = pack_layer(&plan, &logical).unwrap();
    (plan, packed)
}

fn said(metadata: &[(&str, &str)], tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
    let metadata = metadata
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let views: Vec<(String, TensorView<'_>)> = tensors
        .iter()
        .map(|&(name, dtype, shape, bytes)| {
            let view = TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
            (name.to_owned(), view)
        })
        .collect();
    safetensors::serialize(views, Some(metadata)).unwrap()
}

/// The table below a heading row: the words in backticks of its first column, and its second column.
fn table(heading: &str) -> Vec<(String, String)> {
    let rest = PAGE.split(heading).nth(1).expect(heading);
    let rows = rest.lines().skip(2).take_while(|l| l.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.split(" | ");
        let key = cells.next().unwrap().trim_matches(['|', ' ', '`']);
        let second = cells.next().unwrap().trim_matches(['|', ' ', '`']);
        (key.to_owned(), second.to_owned())
    })
    .collect()
}

#[test]
fn the_page_lists_what_a_subject_can_say() {
    let words = table("| key | left out | lists |");
    let wanted: Vec<_> = WORDS
        .iter()
        .map(|k| (k.key.to_owned(), (k.words)()[0].to_owned()))
        .collect();
    assert_eq!(words, wanted);
    for key in WORDS {
        assert!(PAGE.contains(key.meaning), "{}", key.key);
    }
    for (heading, keys) in [
        ("| `granule` | multiples of |", GRANULES),
        ("| `min`, `max` | least and largest |", SIZES),
    ] {
        let pair = |k: &SizeKey| (k.key.to_owned(), k.meaning.to_owned());
        assert_eq!(table(heading), keys.iter().map(pair).collect::<Vec<_>>());
    }
    let shown = PAGE.split("```json\n").nth(1).unwrap();
    Supports::parse(shown.split("```").next().unwrap()).unwrap();
    assert!(PAGE.contains(&format!("`protocol` = `{PROTOCOL}`")));
}

#[test]
fn the_page_lists_what_a_request_holds() {
    let plan_keys: Vec<String> = table("| key | means |")
        .into_iter()
        .map(|(k, _)| k)
        .collect();
    let lines = [
        "t=3,e=4,tp=2,ep=2,w=nvfp4,bias=both,route=sigmoid-bias,pad=h32.i32.t4",
        "t=2,w=bf16,route=given,k=1",
        "t=0,w=int4-g32,act=relu2,i=33,pad=i64",
        "t=2,w=int8,h=3,i=5",
    ];
    let named = PAGE
        .split("| tensor | type and shape | means |")
        .nth(1)
        .unwrap();
    for line in lines {
        let (plan, inputs) = packed(line);
        let routing = route(&plan, &Sizes::new(&plan).unwrap(), &inputs.router).unwrap();
        let bytes = message::request(7, line, &plan, &inputs, &routing).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let metadata = header.metadata().clone().unwrap();
        assert_eq!((&*metadata["kind"], &*metadata["id"]), ("case", "7"));
        let said: Value = serde_json::from_str(&metadata["plan"]).unwrap();
        let keys: Vec<&String> = said.as_object().unwrap().keys().collect();
        assert_eq!(keys, plan_keys.iter().collect::<Vec<_>>(), "{line}");
        let blob = SafeTensors::deserialize(&bytes).unwrap();
        for name in blob.names() {
            let general = match name.split_once('.') {
                Some((_, role)) => format!("`rankR.{role}`"),
                None => format!("`{name}`"),
            };
            assert!(named.contains(&general), "{name} is not on the page");
        }
        let w13 = blob.tensor("rank0.w13").unwrap();
        assert_eq!(
            w13.data(),
            inputs.ranks[0].get(crate::plan::Role::W13).unwrap().bytes()
        );
    }
}

#[test]
fn sizes_are_asked_and_read_as_the_page_says() {
    let (plan, _) = packed("t=1,w=mxfp4,i=33,pad=i32");
    let bytes = message::sizes(3, "t=1", &plan, 33).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    assert_eq!((&*metadata["kind"], &*metadata["id"]), ("sizes", "3"));
    let asked: Value = serde_json::from_str(&metadata["asked"]).unwrap();
    let keys: Vec<&String> = asked.as_object().unwrap().keys().collect();
    let listed: Vec<String> = table("| asked | means |")
        .into_iter()
        .map(|(k, _)| k)
        .collect();
    assert_eq!(keys, listed.iter().collect::<Vec<_>>());
    assert_eq!(
        (&asked["width"], &asked["packed"]),
        (&33.into(), &true.into())
    );

    let of = |rows, columns| {
        let words = [
            ("kind", "sizes"),
            ("id", "3"),
            ("w13_rows", rows),
            ("w2_columns", columns),
        ];
        reply::sizes(&said(&words, &[]), 3)
    };
    assert_eq!(of("128", "64"), Ok([128, 64]));
    for wrong in ["", "-1", "1.5", "18446744073709551616"] {
        let error = of("128", wrong).unwrap_err().to_string();
        assert!(error.contains("w2_columns"), "{error}");
    }
    assert!(reply::sizes(&said(&[("kind", "reply"), ("id", "3")], &[]), 3).is_err());
}

#[test]
fn a_good_reply_is_cut_and_any_other_is_named() {
    let (plan, _) = packed("t=1,h=2,i=4,tp=2,pad=h4.t2");
    let floats: Vec<u8> = (0..16u8).flat_map(|n| f32::from(n).to_le_bytes()).collect();
    let good = [("kind", "reply"), ("id", "1")];
    let read = |bytes: &[u8]| reply::reply(bytes, 1, &plan, false);
    let padded = said(&good, &[("y", Dtype::F32, &[2, 2, 4], &floats)]);
    assert_eq!(read(&padded).unwrap().shares, [[0.0, 1.0], [8.0, 9.0]]);
    let bare = said(&good, &[("y", Dtype::F32, &[2, 1, 2], &floats[..16])]);
    assert_eq!(read(&bare).unwrap().shares, [[0.0, 1.0], [2.0, 3.0]]);
    assert!(padded.len() as u64 <= reply::limit(&plan));

    let why = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let of = |metadata: &[(&str, &str)], shape: &[usize], dtype, bytes| {
        why(&said(metadata, &[("y", dtype, shape, bytes)]))
    };
    let f32 = Dtype::F32;
    for (complaint, wanted) in [
        (
            of(&good, &[2, 4, 2], f32, &floats),
            "shape [2, 4, 2], wanted [2, 2, 4] or [2, 1, 2]",
        ),
        (of(&good, &[16], f32, &floats), "shape [16]"),
        (
            of(&good, &[2, 2, 8], Dtype::BF16, &floats),
            "dtype BF16, wanted F32",
        ),
        (
            of(&[("kind", "reply"), ("id", "2")], &[2, 2, 4], f32, &floats),
            "`id`: `2`, wanted `1`",
        ),
        (
            of(&[("id", "1")], &[2, 2, 4], f32, &floats),
            "`kind`: ``, wanted `reply`",
        ),
        (
            of(
                &[("kind", "error"), ("message", "no\u{1b}[2J")],
                &[0],
                f32,
                &[],
            ),
            "says: no [2J",
        ),
        (why(&said(&good, &[])), "y: there is no such tensor"),
        (why(b""), "no safetensors"),
        (why(&[0xff; 40]), "no safetensors"),
        (why(&padded[..padded.len() - 1]), "no safetensors"),
    ] {
        assert!(complaint.contains(wanted), "{complaint}: lacks {wanted}");
    }
    // One that says that it routes must say how.
    let silent = reply::reply(&padded, 1, &plan, true).unwrap_err();
    assert!(silent.to_string().contains("topk_ids"), "{silent}");
}

#[test]
fn replies_of_any_bytes_are_errors_and_no_panics() {
    let (plan, _) = packed("t=1,h=2,i=4");
    let floats = [0u8; 8];
    let good = said(
        &[("kind", "reply"), ("id", "1")],
        &[("y", Dtype::F32, &[1, 1, 2], &floats)],
    );
    for at in 0..good.len() {
        for flip in [1u8, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            let _ = reply::reply(&bytes, 1, &plan, false);
            let _ = reply::hello(&bytes);
        }
        let _ = reply::reply(&good[..at], 1, &plan, false);
    }
}

#[test]
fn sizes_of_64_bits_are_refused_before_memory_is_taken() {
    let (plan, _) = packed("t=1,h=2,i=4");
    let blob = |tensor: &str| {
        let header = format!(
            r#"{{"__metadata__":{{"kind":"reply","id":"1"}},"y":{{"dtype":"F32",{tensor}}}}}"#
        );
        [
            &(header.len() as u64).to_le_bytes()[..],
            header.as_bytes(),
            &[0; 8],
        ]
        .concat()
    };
    for tensor in [
        r#""shape":[18446744073709551615,1,2],"data_offsets":[0,8]"#,
        r#""shape":[4294967296,4294967296,2],"data_offsets":[0,8]"#,
        r#""shape":[1,1,2],"data_offsets":[0,18446744073709551615]"#,
        r#""shape":[1,1,4611686018427387906],"data_offsets":[0,8]"#,
        r#""shape":[1,1,2],"data_offsets":[8,0]"#,
    ] {
        let error = reply::reply(&blob(tensor), 1, &plan, false).unwrap_err();
        assert!(
            error.to_string().contains("no safetensors"),
            "{tensor}: {error}"
        );
    }
    let good = blob(r#""shape":[1,1,2],"data_offsets":[0,8]"#);
    assert!(reply::reply(&good, 1, &plan, false).is_ok());
    // A header longer than the message.
    let long = [&u64::MAX.to_le_bytes()[..], &good[8..]].concat();
    assert!(reply::reply(&long, 1, &plan, false).is_err());
}

#[test]
fn what_a_subject_says_of_itself_is_read_strictly() {
    let hello = |supports: &str| {
        let words = [
            ("kind", "hello"),
            ("protocol", "1"),
            ("name", "x"),
            ("supports", supports),
        ];
        reply::hello(&said(&words, &[])).map(|h| h.supports)
    };
    let all = hello(r#"{"weights": "*", "routes": ["-llama4", "-given"]}"#).unwrap();
    assert_eq!(
        all.words("weights").len(),
        crate::terms::WeightFormat::ALL.len()
    );
    assert_eq!(
        all.words("routes").len(),
        crate::terms::Route::ALL.len() - 2
    );
    assert_eq!(hello("{}").unwrap().words("weights"), ["f32"]);
    for (text, wanted) in [
        (r#"{"wieghts": "*"}"#, "did you mean `weights`?"),
        (r#"{"weights": ["fp9"]}"#, "did you mean `fp8`?"),
        (r#"{"weights": "f32"}"#, "a list of words"),
        (r#"{"weights": []}"#, "a list of words"),
        (r#"{"granule": {"intermediate": 0}}"#, "a number of 1 to"),
        // Multiplied with others it left 64 bits.
        (
            r#"{"granule": {"hidden": 18446744073709551615}}"#,
            "a number of 1 to",
        ),
        (r#"{"max": {"tp": -1}}"#, "a positive number"),
        (r#"{"max": 8}"#, "not an object"),
        (
            r#"{"min": {"tokens": 5}, "max": {"tokens": 3}}"#,
            "min: tokens: 5 is above max: tokens: 3",
        ),
        ("", "`supports`: there is none"),
        ("[]", "not an object"),
        ("nothing", "supports"),
    ] {
        let error = hello(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    let nameless = said(
        &[("kind", "hello"), ("protocol", "1"), ("supports", "{}")],
        &[],
    );
    let error = reply::hello(&nameless).unwrap_err().to_string();
    assert!(error.contains("`name`: there is none"), "{error}");
    let other = said(&[("kind", "hello"), ("protocol", "2")], &[]);
    let error = reply::hello(&other).unwrap_err().to_string();
    assert!(error.contains("padproof speaks 1"), "{error}");
}

#[test]
fn plans_beyond_what_is_supported_say_why() {
    let supports = Supports::parse(
        r#"{"weights": ["f32", "mxfp4"], "granule": {"intermediate": 32}, "max": {"tp": 2}, "min": {"tokens": 1}}"#,
    )
    .unwrap();
    let check = |line: &str| supports.check(&packed(line).0);
    assert_eq!(check("i=64"), Ok(()));
    let gated_alone = "relu: the subject takes activations swiglu";
    for (line, wanted) in [
        ("w=fp8,i=64", "fp8: the subject takes weights f32, mxfp4"),
        ("act=relu,i=64", gated_alone),
        ("zero=2,i=64", "identity experts 2: the subject takes"),
        ("i=33", "multiples of 32"),
        ("i=64,tp=4,pad=i32", "at most 2"),
        ("i=64,t=0", "at least 1"),
        ("w=mxfp4,i=64,nib=high", "nibbles low"),
        ("w=mxfp4,i=64,store=128x4,pad=i128", "stores linear"),
    ] {
        let why = check(line).unwrap_err().to_string();
        assert!(why.contains(wanted), "{line}: {why}");
    }
    // Words that mean nothing to a plan are not asked for.
    assert_eq!(check("i=64,nib=high"), Ok(()));
}

#[cfg(unix)]
mod processes {
    use super::*;

    const SOON: Limits = Limits {
        reply: Duration::from_millis(300),
        start: Duration::from_millis(300),
    };

    /// A program that greets and goes on as the shell's words say.
    fn greets(then: &str) -> (tempfile::NamedTempFile, String) {
        let words = [
            ("kind", "hello"),
            ("protocol", "1"),
            ("name", "greeter"),
            ("supports", "{}"),
        ];
        let blob = said(&words, &[]);
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let frame = [&(blob.len() as u64).to_le_bytes()[..], &blob].concat();
        std::io::Write::write_all(&mut file, &frame).unwrap();
        let command = format!("sh -c 'cat {}; {then}'", file.path().display());
        (file, command)
    }

    /// A program that greets and echoes what is asked, but not the hello: that would come unasked,
    /// before or after the first request.
    fn echoes() -> (tempfile::NamedTempFile, String) {
        let hello = 8 + message::hello().unwrap().len();
        greets(&format!("head -c {hello} >/dev/null; exec cat"))
    }

    fn start(command: &str) -> Result<Program, SubjectError> {
        Program::start(command, SOON, &Running::default())
    }

    fn starts(command: &str) -> Misbehaviour {
        match start(command) {
            Err(SubjectError::Misbehaved { what, .. }) => what,
            other => panic!("{command}: {other:?}"),
        }
    }

    #[test]
    fn commands_that_are_no_subjects_say_why() {
        for (command, wanted) in [
            ("", "empty"),
            ("sh -c 'exit", "quote"),
            ("no/such/program at all", "cannot start `no/such/program`"),
            ("sh -c 'exit 3'", "exit status: 3"),
            ("sh -c 'kill -9 $$'", "signal: 9"),
            (
                "sh -c 'echo Loading the model'",
                "begins with `Loading the model`",
            ),
            // Where it prints less than a length is long, and waits.
            (
                "sh -c 'echo hm; sleep 60'",
                "did not greet within 300ms (--start-timeout): standard output begins with `hm`",
            ),
            (
                "sh -c 'echo Hi'",
                "3 of 8 bytes: standard output begins with `Hi`",
            ),
            ("sh -c 'cat /dev/zero'", "no safetensors"),
        ] {
            let said = starts(command).to_string();
            assert!(said.contains(wanted), "{command}: {said}");
        }
    }

    #[test]
    fn last_words_are_kept() {
        match start("sh -c 'echo no module named kernel >&2; exit 1'") {
            Err(SubjectError::Misbehaved { stderr, .. }) => {
                assert_eq!(stderr, ["no module named kernel"]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_echo_is_found_out_by_the_first_case() {
        // An echo of the greeting has no name.
        let error = start("cat").unwrap_err().to_string();
        assert!(error.contains("`name`: there is none"), "{error}");
        let (_file, command) = echoes();
        let program = Arc::new(start(&command).unwrap());
        let (plan, inputs) = packed("t=1");
        let mut subject = Process::new(&program);
        for _ in 0..2 {
            let error = subject.run(&plan, &inputs).unwrap_err();
            assert!(error.to_string().contains("kind"), "{error}");
        }
    }

    #[test]
    fn a_process_that_hangs_is_ended_in_time() {
        let words = shlex::split("sh -c 'cat >/dev/null; sleep 60'").unwrap();
        let mut child = Child::spawn(&words, &Running::default(), 0).unwrap();
        child.send(vec![0; 1 << 20], 100);
        let error = child.receive(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Misbehaviour::Timeout { .. }), "{error}");
        child.kill();
    }

    #[test]
    fn a_greeting_may_come_before_the_hello_is_sent() {
        let (_file, command) = greets("exit");
        let words = shlex::split(&command).unwrap();
        let mut child = Child::spawn(&words, &Running::default(), reply::HEADER_MAX).unwrap();
        let blob = child.receive(Duration::from_secs(30)).unwrap();
        assert_eq!(reply::hello(&blob).unwrap().name, "greeter");
    }

    #[test]
    fn one_that_does_not_read_cannot_stop_us() {
        let words = shlex::split("sh -c 'sleep 60'").unwrap();
        let mut child = Child::spawn(&words, &Running::default(), 0).unwrap();
        child.send(vec![0; 32 << 20], 100);
        assert!(child.receive(Duration::from_millis(50)).is_err());
        child.kill();
    }

    #[test]
    fn killing_a_program_ends_what_runs() {
        let (_file, command) = echoes();
        let running = Running::default();
        let program = Program::start(&command, Limits::default(), &running).unwrap();
        let mut child = program.take().unwrap();
        running.end();
        let error = child.receive(Duration::from_secs(30)).unwrap_err();
        assert_eq!(error, Misbehaviour::Interrupted);
        // None is started after that.
        let again = Program::start(&command, Limits::default(), &running).unwrap_err();
        assert!(again.to_string().contains("interrupt"), "{again}");
    }

    #[test]
    fn the_arguments_choose_the_same_program_again() {
        let (_file, command) = echoes();
        let program = start(&command).unwrap();
        let words = shlex::split(&program.arguments()).unwrap();
        assert_eq!(words[..2], ["--subject", &command]);
        let limits = ["--timeout", "300ms", "--start-timeout", "300ms"];
        assert_eq!(words[2..], limits);
        let running = Running::default();
        let program = Program::start(&command, Limits::default(), &running).unwrap();
        assert_eq!(shlex::split(&program.arguments()).unwrap().len(), 2);
    }
}
