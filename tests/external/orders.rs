//! Orders of summation of real implementations, as docs/orders.md states them; and what `run` makes
//! of them.

use crate::external::{command, ends, python, script, text};

const PAGE: &str = include_str!("../../docs/orders.md");

/// A row of the page's table.
struct Stated {
    modules: &'static str,
    /// What tells the version, in Python.
    version: &'static str,
    subject: &'static str,
    /// The row's first cell, which names the version.
    row: &'static str,
    arguments: &'static [&'static str],
    said: &'static [&'static str],
}

const STATED: &[Stated] = &[
    Stated {
        modules: "onnxruntime, onnx",
        version: "'onnxruntime ' + onnxruntime.__version__",
        subject: "onnxruntime_moe.py",
        row: "onnxruntime 1.32.0, MoE operator",
        arguments: &["--axis", "intermediate"],
        said: &["order       blocked-128", "pad-stable  yes"],
    },
    Stated {
        modules: "onnxruntime, onnx",
        version: "'onnxruntime ' + onnxruntime.__version__",
        subject: "onnxruntime_moe.py",
        row: "onnxruntime 1.32.0, MoE operator",
        arguments: &["--axis", "hidden"],
        said: &["order       blocked-128", "pad-stable  yes"],
    },
    Stated {
        modules: "mlx.core, importlib.metadata",
        version: "'mlx ' + importlib.metadata.version('mlx')",
        subject: "mlx_gather_qmm.py",
        row: "mlx 0.32.4, gather_qmm, mxfp4",
        arguments: &[
            "--axis",
            "hidden",
            "--k",
            "160",
            "--k-padded",
            "192",
            "--weights",
            "mxfp4",
        ],
        said: &["order       blocked-32", "pad-stable  yes"],
    },
    Stated {
        modules: "mlx.core, importlib.metadata",
        version: "'mlx ' + importlib.metadata.version('mlx')",
        subject: "mlx_gather_qmm.py",
        row: "mlx 0.32.4, gather_qmm, mxfp4",
        arguments: &[
            "--axis",
            "intermediate",
            "--k",
            "160",
            "--k-padded",
            "192",
            "--weights",
            "mxfp4",
        ],
        said: &["order       blocked-32", "pad-stable  yes"],
    },
    Stated {
        modules: "numpy",
        version: "'numpy ' + numpy.__version__",
        subject: "numpy_moe.py",
        row: "numpy 2.4.6 matmul (OpenBLAS, `OPENBLAS_CORETYPE=Haswell`)",
        arguments: &["--axis", "intermediate"],
        said: &[
            "[0..319 by 2, [1..320 by 2], [320..639 by 2, [321..640 by 2]],",
            "products 640 and 641 meet in a sum of 160, padded in one of 168",
        ],
    },
    Stated {
        modules: "numpy",
        version: "'numpy ' + numpy.__version__",
        subject: "numpy_moe.py",
        row: "numpy 2.4.6 matmul (OpenBLAS, `OPENBLAS_CORETYPE=Haswell`)",
        arguments: &["--axis", "intermediate", "--tokens", "1"],
        said: &[
            "[0..953 by 8, [4..957 by 8],",
            "products 0 and 4 meet in a sum of 240, padded in one of 241",
        ],
    },
];

#[test]
fn the_orders_that_the_page_states_are_found() {
    for stated in STATED {
        assert!(
            PAGE.contains(&format!("| {} |", stated.row)),
            "{}",
            stated.row
        );
        let Some(python) = python(stated.modules) else {
            continue;
        };
        let tell = format!("import {}; print({})", stated.modules, stated.version);
        let told = std::process::Command::new(&python)
            .args(["-c", &tell])
            .output();
        let version = text(&told.unwrap().stdout);
        if !stated.row.starts_with(version.trim()) || !cfg!(target_arch = "x86_64") {
            println!(
                "skipped: the page speaks of {}, here is {version}",
                stated.row
            );
            continue;
        }
        let path = format!("python/subjects/{}", stated.subject);
        let subject = script(&python, &path, "");
        let out = command(&[&["reveal", &subject], stated.arguments].concat())
            .env("OPENBLAS_CORETYPE", "Haswell")
            .output()
            .unwrap();
        let found = text(&out.stdout);
        for said in stated.said {
            assert!(found.contains(said), "{}: {found}", stated.row);
        }
    }
}

#[test]
fn a_run_asks_for_equal_bits_where_the_order_found_is_kept() {
    let Some(python) = python("onnxruntime, onnx") else {
        return;
    };
    let subject = script(&python, "python/subjects/onnxruntime_moe.py", "");
    let case = "t=6,h=48,i=33,fill=wild,pad=h16.i16,order=int1";
    let asked = ["check", "pad-identity", case, "--subject", &subject];
    assert!(
        ends(&asked, 0).contains("derived bound"),
        "it promises nothing"
    );
    let revealed = [&asked[..], &["--reveal"]].concat();
    let said = ends(&revealed, 0);
    assert!(said.contains("same order"), "{said}");
    assert!(
        said.contains("--reveal"),
        "its command finds the order again: {said}"
    );
    let run = [
        "run",
        "-n",
        "30",
        "--profile",
        "small",
        "-p",
        "pad-identity",
    ];
    ends(
        &[&run[..], &["--subject", &subject, "--reveal"]].concat(),
        0,
    );
}

#[test]
fn what_promises_an_order_is_not_asked_for_one() {
    for own in ["cpu", "cpu:split-k-4"] {
        let out =
            crate::external::padproof(&["check", "tp-sum", "i=33", "--subject", own, "--reveal"]);
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out.stderr).contains("promises its order"));
    }
    let run = ["run", "i=33,pad=i16", "-p", "pad-identity"];
    let said = ends(&[&run[..], &["--subject", "cpu:split-k-4"]].concat(), 0);
    assert!(said.contains("cpu:split-k-4"), "{said}");
    let out = crate::external::padproof(&["run", "--subject", "cpu:lane-4"]);
    assert!(
        text(&out.stderr).contains("lanes-N"),
        "{}",
        text(&out.stderr)
    );
}
