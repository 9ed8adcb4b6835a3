//! Goal: what headers and a certificate claim is held too, and what is form alone is free.
//! Method: rewrite either of a padded checkpoint.

use crate::checkpoint::invent::QWEN;
use crate::checkpoint::scene::{Asked, Made, Scene};
use crate::checkpoint::verified::{SHARD, answer, copied, json, resealed};
use padproof::checkpoint::TensorFile;
use padproof::pad::{CERTIFICATE, verify};
use serde_json::Value;

/// What readers of the format look at beside tensors, and what the certificate says of itself.
#[test]
fn headers_and_claims_are_held_too() {
    let scene = Scene::new(Made::new("e=2,h=64,i=96,tp=2,w=nvfp4,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    scene.padded(&out, &Asked::Align { tp: 2, align: 64 });
    {
        let (_folder, out) = copied(&out);
        let path = out.join(SHARD);
        let bytes = std::fs::read(&path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        header["__metadata__"] = serde_json::json!({"format": "tf"});
        let text = serde_json::to_vec(&header).unwrap();
        let new = [
            &(text.len() as u64).to_le_bytes(),
            &text[..],
            &bytes[8 + length..],
        ]
        .concat();
        std::fs::write(&path, new).unwrap();
        assert!(answer(&out).contains("__metadata__"), "{}", answer(&out));
    }
    let told = |change: &dyn Fn(&mut Value), again: bool| {
        let (_folder, out) = copied(&out);
        json(&out.join(CERTIFICATE), change);
        if again {
            resealed(&out);
        }
        answer(&out)
    };
    for (key, value) in [("tool", "other"), ("rule", "x"), ("seal", "")] {
        let changed = told(&|v| v[key] = value.into(), false);
        assert_ne!(changed, "holds", "{key}");
    }
    let tp = told(&|v| v["request"]["tp"] = 4.into(), true);
    assert!(tp.contains("request.tp"), "{tp}");
    let differing = told(&|v| v["audit"]["differing"] = 9.into(), true);
    assert!(differing.contains("audit.differing"), "{differing}");
    let nan = |v: &mut Value| v["plan"]["routed"]["scale_pad"] = serde_json::json!([0x7f, 0x7f]);
    let nan = told(&nan, true);
    assert!(nan.contains("do not agree"), "{nan}");
}

#[test]
fn a_hostile_certificate_is_one_sentence() {
    let scene = Scene::new(Made::new("e=2,h=32,i=44,tp=2,w=bf16,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    scene.padded(&out, &Asked::Align { tp: 2, align: 16 });
    let told = |change: &dyn Fn(&mut Value)| {
        let (_folder, out) = copied(&out);
        json(&out.join(CERTIFICATE), change);
        match verify(&out, &mut |_| {}) {
            Err(error) => error.to_string(),
            Ok(found) => {
                assert!(found.faults > 0);
                found.first[0].why.clone()
            }
        }
    };
    let width = |key: &'static str, value: Value| {
        move |v: &mut Value| v["plan"]["routed"]["width"][key] = value.clone()
    };
    for (change, word) in [
        (width("to", (1_u64 << 60).into()), "do not agree"),
        (width("slot", 0.into()), "do not agree"),
        (
            width("pieces", serde_json::json!([[0, 40], [41, 3]])),
            "do not agree",
        ),
        (
            width("pieces", serde_json::json!([[0, u64::MAX], [44, 0]])),
            "do not agree",
        ),
        (width("pieces", "x".into()), "invalid type"),
    ] {
        let why = told(&change);
        assert!(why.contains(word) && why.lines().count() == 1, "{why}");
    }
    assert!(told(&|v| v["schema"] = 2.into()).contains("schema=2"));
    assert!(told(&|v| v["more"] = 1.into()).contains("unknown field"));
    // Sizes that fit each other and nothing else.
    told(&|v| v["plan"]["experts"] = u64::MAX.into());
    told(&|v| v["plan"]["routed"]["blocks"] = serde_json::json!({"from": 0, "to": 0}));
    told(&|v| v["plan"]["routed"]["blocks"] = serde_json::json!({"from": 1, "to": 7}));
    told(&|v| v["plan"]["routed"]["format"] = "fp8-block".into());
    told(&|v| v["tensors"][0]["shape"] = serde_json::json!([u64::MAX, u64::MAX]));
    told(&|v| v["tensors"][0]["file"] = "../config.json".into());
    told(&|v| v["files"][0]["name"] = "../config.json".into());
    told(&|v| v["plan"]["gated"] = false.into());
    std::fs::remove_file(out.join(CERTIFICATE)).unwrap();
    let gone = verify(&out, &mut |_| {}).unwrap_err().to_string();
    assert!(gone.contains(CERTIFICATE), "{gone}");
}

/// What `docs/pad.md` promises: form that no reader of the format sees is free.
#[test]
fn the_form_of_headers_and_of_the_certificate_is_free() {
    let scene = Scene::new(Made::new("e=2,h=64,i=96,tp=2,w=nvfp4,fill=wild", QWEN));
    let (_keep, out) = scene.out();
    scene.padded(&out, &Asked::Align { tp: 2, align: 64 });
    // Keys sorted, no spaces; then data in the order of names, where it was in that of types.
    json(&out.join(CERTIFICATE), |_| {});
    assert_eq!(answer(&out), "holds");
    let path = out.join(SHARD);
    let file = TensorFile::open(&path).unwrap();
    let mut names: Vec<String> = file.in_order().iter().map(|n| n.to_string()).collect();
    names.reverse();
    let outputs: Vec<_> = names
        .iter()
        .map(|name| {
            let entry = file.entry(name).unwrap();
            padproof::checkpoint::Output {
                name,
                dtype: entry.dtype,
                shape: &entry.shape,
                bytes: entry.bytes,
            }
        })
        .collect();
    let mut bytes = padproof::checkpoint::header("shard", file.metadata(), &outputs).unwrap();
    for name in &names {
        bytes.extend(file.data(name, 0..file.entry(name).unwrap().bytes).unwrap());
    }
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(answer(&out), "holds");
    // Bytes of a file without tensors are not free.
    json(&out.join("config.json"), |_| {});
    assert!(answer(&out).contains("config.json"), "{}", answer(&out));
}
