//! Goal: a repository's name is a model argument, and the Hugging Face variables mean what they mean elsewhere.
//! Method: a server on the loopback interface that answers as the hub does; the built binary is pointed at it.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

const CONFIG: &str = r#"{"architectures":["MixtralForCausalLM"],"model_type":"mixtral","hidden_size":64,
"intermediate_size":961,"num_local_experts":8,"num_experts_per_tok":2,"hidden_act":"silu"}"#;
const QUANT: &str = r#"{"producer":{"name":"modelopt"},"quantization":{"quant_algo":"FP8"}}"#;
const TOKEN: &str = "hf_secret";

/// A hub with the repositories `open/m`, `gated/m` (which wants the token), `empty/m` and `large/m`.
struct Hub {
    endpoint: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away is its own business.
                let _ = answer(&stream, &log);
            }
        });
        Hub { endpoint, asked }
    }

    fn requests(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn padproof(&self, home: &Path, args: &[&str], more: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_padproof"))
            .args(args)
            .env_remove("HF_TOKEN")
            .env_remove("HF_HUB_CACHE")
            .env_remove("HF_HUB_OFFLINE")
            .env("HF_HOME", home)
            .env("HF_ENDPOINT", &self.endpoint)
            .envs(more.iter().copied())
            .output()
            .unwrap()
    }
}

fn answer(mut stream: &TcpStream, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next().unwrap_or(Ok(String::new()))?;
    let path = path.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut token = false;
    for line in lines {
        let line = line?;
        token |= line.eq_ignore_ascii_case(&format!("authorization: Bearer {TOKEN}"));
        if line.is_empty() {
            break;
        }
    }
    log.lock().unwrap().push(path.clone());
    let head = "Connection: close\r\nX-Repo-Commit: 0123abc\r\n";
    let files = match path
        .split('/')
        .nth(if path.starts_with("/api/") { 3 } else { 1 })
    {
        Some("open") => r#"[{"rfilename":"config.json"},{"rfilename":"hf_quant_config.json"}]"#,
        Some("gated") if !token => {
            return write!(
                stream,
                "HTTP/1.1 401 Unauthorized\r\n{head}Content-Length: 0\r\n\r\n"
            );
        }
        Some("gated" | "large") => r#"[{"rfilename":"config.json"}]"#,
        Some("empty") => "[]",
        _ => {
            return write!(
                stream,
                "HTTP/1.1 404 Not Found\r\n{head}Content-Length: 0\r\n\r\n"
            );
        }
    };
    if path.starts_with("/api/") {
        let body = format!(r#"{{"sha":"0123abc","siblings":{files}}}"#);
        let length = body.len();
        return write!(
            stream,
            "HTTP/1.1 200 OK\r\n{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
    }
    let body = if path.ends_with("/hf_quant_config.json") {
        QUANT
    } else {
        CONFIG
    };
    let length = body.len();
    let total = if path.starts_with("/large/") {
        1 << 40
    } else {
        length
    };
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\n{head}ETag: \"{length:x}{}\"\r\nContent-Range: bytes 0-{}/{total}\r\nContent-Length: {length}\r\n\r\n{body}",
        path.len(),
        length - 1,
    )
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_repository_is_planned_from_its_config_and_what_lies_beside_it() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let out = hub.padproof(
        home.path(),
        &["plan", "open/m", "--tp", "1", "--format", "json"],
        &[],
    );
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["model"]["intermediate"], 961);
    // hf_quant_config.json says FP8, config.json alone would be BF16.
    assert_eq!(json["model"]["quant"]["format"], "fp8", "{}", json["model"]);
    assert_eq!(
        (&json["model"]["name"], &json["model"]["source"]),
        (&"m".into(), &"open/m".into())
    );
    assert!(
        said(&out).contains("asking http://127.0.0.1"),
        "{}",
        said(&out)
    );
}

#[test]
fn offline_takes_what_was_fetched_and_asks_nobody() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let offline = [("HF_HUB_OFFLINE", "1")];
    let plan = ["plan", "open/m", "--tp", "1"];
    let cold = hub.padproof(home.path(), &plan, &offline);
    assert_eq!(cold.status.code(), Some(2));
    assert!(
        said(&cold).contains("open/m: HF_HUB_OFFLINE is set"),
        "{}",
        said(&cold)
    );
    assert_eq!(hub.requests(), 0);
    assert_eq!(hub.padproof(home.path(), &plan, &[]).status.code(), Some(0));
    let asked = hub.requests();
    assert!(asked > 0);
    let warm = hub.padproof(home.path(), &plan, &offline);
    assert_eq!(warm.status.code(), Some(0), "{}", said(&warm));
    assert_eq!(hub.requests(), asked);
}

#[test]
fn the_cache_variable_wins_over_the_home() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let cache = home.path().join("elsewhere");
    let more = [("HF_HUB_CACHE", cache.to_str().unwrap())];
    let out = hub.padproof(&home.path().join("home"), &["show", "open/m"], &more);
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    assert!(cache.join("models--open--m").is_dir());
    assert!(!home.path().join("home/hub/models--open--m").exists());
}

#[test]
fn a_gated_repository_wants_the_token() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    let plan = ["plan", "gated/m", "--tp", "1"];
    let refused = hub.padproof(home.path(), &plan, &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        said(&refused).contains("gated/m: ") && said(&refused).contains("HF_TOKEN"),
        "{}",
        said(&refused)
    );
    let allowed = hub.padproof(home.path(), &plan, &[("HF_TOKEN", TOKEN)]);
    assert_eq!(allowed.status.code(), Some(0), "{}", said(&allowed));
    assert!(!said(&allowed).contains(TOKEN));
}

#[test]
fn what_cannot_be_had_is_one_sentence() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    for (name, why) in [
        ("none/m", "there is no such model"),
        ("empty/m", "has no config.json"),
        ("large/m", "over the 16777216 that are read"),
    ] {
        let out = hub.padproof(home.path(), &["plan", name, "--tp", "1"], &[]);
        assert_eq!(out.status.code(), Some(2), "{name}");
        assert!(
            said(&out).contains(&format!("error: {name}: ")) && said(&out).contains(why),
            "{}",
            said(&out)
        );
        assert!(out.stdout.is_empty());
    }
    // Nobody listens there, and no endpoint at all.
    for endpoint in ["http://127.0.0.1:9", "not a url"] {
        let out = hub.padproof(
            home.path(),
            &["plan", "open/m", "--tp", "1"],
            &[("HF_ENDPOINT", endpoint)],
        );
        assert_eq!(out.status.code(), Some(2), "{endpoint}: {}", said(&out));
        assert!(said(&out).contains("error: open/m: "), "{}", said(&out));
        assert!(!said(&out).contains("panicked"), "{}", said(&out));
    }
}

#[test]
fn built_in_names_and_paths_ask_nobody() {
    let (hub, home) = (Hub::start(), tempfile::tempdir().unwrap());
    for (name, code) in [("Qwen/Qwen3-30B-A3B", 0), ("./none/m", 2), ("a/b/c", 2)] {
        let out = hub.padproof(home.path(), &["plan", name, "--tp", "1"], &[]);
        assert_eq!(out.status.code(), Some(code), "{name}: {}", said(&out));
    }
    assert_eq!(hub.requests(), 0);
}
