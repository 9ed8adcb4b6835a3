//! Goal: a certificate or a config that padding did not write so is a finding of `verify`, whatever was edited.
//! Method: edit each entry of a certificate by itself; exit 2 is for what cannot be read.

use crate::checkpoint::invent::QWEN;
use crate::checkpoint::scene::{Asked, Made, Scene};
use crate::checkpoint::verified::{copied, json};
use crate::checkpoint::{padproof, refused};
use padproof::pad::{CERTIFICATE, Certificate, verify};
use serde_json::{Value, json};
use std::path::Path;

/// A way to an entry: keys and numbers.
type Way = Vec<String>;

/// Every entry of a value; of a list the first.
fn ways(value: &Value, at: &Way, all: &mut Vec<Way>) {
    all.push(at.clone());
    let below: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(list) => list
            .first()
            .map(|v| ("0".to_owned(), v))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    };
    for (key, value) in below {
        ways(value, &[at.as_slice(), &[key]].concat(), all);
    }
}

fn entry<'v>(value: &'v mut Value, way: &[String]) -> &'v mut Value {
    way.iter().fold(value, |value, key| match value {
        Value::Array(list) => &mut list[key.parse::<usize>().unwrap()],
        other => &mut other[key],
    })
}

/// What may be put in the place of an entry, and whether it is taken away.
fn edits(value: &Value) -> Vec<Option<Value>> {
    let mut all = match value {
        Value::Null => vec![json!(1)],
        Value::Bool(is) => vec![json!(!is), Value::Null],
        Value::Number(n) => vec![json!(n.as_u64().unwrap() + 1), json!(-1), json!("1")],
        Value::String(text) => vec![json!(format!("{text}x")), json!(""), json!(7)],
        Value::Array(list) => {
            let fewer = &list[..list.len().saturating_sub(1)];
            let more = [list.as_slice(), &list[..list.len().min(1)]].concat();
            vec![json!(fewer), json!(more), json!({})]
        }
        Value::Object(map) => {
            let mut more = map.clone();
            more.insert("more".to_owned(), json!(1));
            vec![Value::Object(more), json!([])]
        }
    };
    // Of lists that are empty, or of one, nothing is left out or repeated.
    all.retain(|new| new != value);
    let mut all: Vec<Option<Value>> = all.into_iter().map(Some).collect();
    // Nothing is said by null, as by no entry.
    all.extend((!value.is_null()).then_some(None));
    all
}

/// `audit.differing`, `request.tp`, a key too many and a seal that was taken away ended `verify` with 2.
#[test]
fn every_edit_of_a_certificate_is_a_finding() {
    let line = "e=2,h=256,i=384,tp=2,w=fp8-block,fill=wild";
    let scene = Scene::new(Made {
        shared: 1,
        ..Made::new(line, QWEN)
    });
    let (_keep, out) = scene.out();
    scene.padded(&out, &Asked::Align { tp: 2, align: 256 });
    let (_folder, out) = copied(&out);
    let path = out.join(CERTIFICATE);
    let right: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut all = Vec::new();
    ways(&right, &Vec::new(), &mut all);
    let (mut edited, mut faults) = (0, Vec::new());
    for way in &all {
        for edit in edits(entry(&mut right.clone(), way)) {
            let mut wrong = right.clone();
            let told = format!("{}={edit:?}", way.join("."));
            match (edit, way.split_last()) {
                (Some(new), _) => *entry(&mut wrong, way) = new,
                (None, Some((last, parent))) => match entry(&mut wrong, parent) {
                    Value::Object(map) => drop(map.remove(last)),
                    // Done above.
                    _ => continue,
                },
                (None, None) => continue,
            }
            std::fs::write(&path, serde_json::to_vec(&wrong).unwrap()).unwrap();
            edited += 1;
            // Another version of the form is none that this program reads.
            let version = wrong["schema"].as_u64().is_some_and(|schema| schema != 1);
            match verify(&out, &mut |_| {}) {
                Ok(found) if found.faults > 0 && !version => {}
                Err(error) if version && error.to_string().contains("this program reads") => {}
                other => faults.push(format!("{told}: {:?}", other.map(|found| found.faults))),
            }
        }
    }
    assert!(edited > 200 && faults.is_empty(), "{edited}: {faults:#?}");
    std::fs::write(&path, serde_json::to_vec(&right).unwrap()).unwrap();
    assert_eq!(verify(&out, &mut |_| {}).unwrap().faults, 0);
}

#[test]
fn a_certificate_that_cannot_be_read_is_no_finding() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    scene.padded(&out, &Asked::Align { tp: 2, align: 32 });
    let (_folder, out) = copied(&out);
    let path = out.join(CERTIFICATE);
    let right = std::fs::read(&path).unwrap();
    let verify = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        padproof(&["verify"], &[&out])
    };
    for (bytes, why) in [
        (&right[..right.len() / 2], "EOF"),
        (b"", "EOF"),
        (b"{\"schema\": 1, ", "EOF"),
        (
            b"{\"schema\": 2, \"new\": 1}",
            "schema=2, and this program reads 1",
        ),
        (&[255; 9], "expected value"),
    ] {
        refused(&verify(bytes), why);
    }
    for (bytes, why) in [
        (&b"[]"[..], "no padding wrote it so: "),
        (b"{}", "no padding wrote it so: missing field"),
        (
            b"{\"schema\": 1, \"tool\": 1}",
            "no padding wrote it so: invalid type",
        ),
    ] {
        let run = verify(bytes);
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        assert!(text.contains(why) && run.stderr.is_empty(), "{run:?}");
    }
    std::fs::remove_file(&path).unwrap();
    refused(&padproof(&["verify"], &[&out]), CERTIFICATE);
    // With a seal made anew, what no padding writes is found all the same.
    let mut odd = Certificate::parse(&right, "certificate").unwrap();
    odd.request.tp += 1;
    let run = verify(&serde_json::to_vec(&odd.sealed()).unwrap());
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    assert_eq!(run.status.code(), Some(1), "{run:?}");
    assert!(
        text.contains("bytes    padproof-certificate.json: request.tp=3, but plan.tp=2"),
        "{text}"
    );
}

/// It was found as `bytes`: that what it says is wrong was not seen.
#[test]
fn what_a_config_says_it_was_before_is_held_against_the_plan() {
    let block = "e=2,h=256,i=384,tp=2,w=fp8-block,fill=wild";
    let refined = Asked::Rule {
        tp: 2,
        id: "vllm.triton.fp8-block.refined",
    };
    let shared = Made {
        shared: 3,
        ..Made::new("e=3,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN)
    };
    let edit = |out: &Path, key: &str, new: Option<Value>| {
        json(&out.join("config.json"), |config| {
            let (map, key) = match key.strip_prefix("before.") {
                Some(key) => (&mut config["padproof"]["before"], key),
                None => (&mut config["padproof"], key),
            };
            let map = map.as_object_mut().unwrap();
            match new {
                Some(new) => map.insert(key.to_owned(), new),
                None => map.remove(key),
            };
        });
    };
    for (made, asked, keys) in [
        (
            shared,
            Asked::Align { tp: 2, align: 32 },
            &["before.moe_intermediate_size"][..],
        ),
        (
            Made::new(block, QWEN),
            refined,
            &["before.quantization_config.weight_block_size"],
        ),
    ] {
        let scene = Scene::new(made);
        let (_keep, out) = scene.out();
        scene.padded(&out, &asked);
        for key in keys
            .iter()
            .copied()
            .chain(["before.more", "tool", "certificate"])
        {
            for new in [Some(json!(7)), None] {
                if (key, &new) == ("before.more", &None) {
                    continue;
                }
                let (_folder, out) = copied(&out);
                edit(&out, key, new);
                let found = verify(&out, &mut |_| {}).unwrap();
                let first = &found.first[0];
                assert_eq!(
                    (&*first.place, first.kind),
                    ("config.json", "config"),
                    "{key}"
                );
                assert!(
                    first.why.starts_with(&format!("padproof.{key}: ")),
                    "{}",
                    first.why
                );
            }
        }
    }
}
