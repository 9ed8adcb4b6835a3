//! Exports: where they are put, and what becomes of them when a stream fails.

#![cfg(unix)]

use super::{Folder, command, ends, padproof, refused, text};
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const RUN: [&str; 4] = ["run", "smoke/orders", "-p", "plan-units"];

/// A short run with one more word for each export.
fn run<'a>(exports: &[&'a str]) -> Vec<&'a str> {
    let mut args = RUN.to_vec();
    for export in exports {
        args.extend(["--export", export]);
    }
    args
}

fn junit(path: &Path) -> String {
    format!("junit={}", path.display())
}

fn whole(path: &Path) -> bool {
    let report = fs::read_to_string(path).unwrap();
    report.starts_with("<?xml") && report.trim_end().ends_with("</testsuites>")
}

fn fifo(folder: &Folder) -> PathBuf {
    let pipe = folder.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    pipe
}

#[test]
fn an_export_goes_through_a_pipe_and_leaves_it_there() {
    let folder = Folder::new();
    let pipe = fifo(&folder);
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    ends(&run(&[&junit(&pipe)]), 0);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert!(reader.join().unwrap().starts_with("<?xml"));
}

/// No device is named here: as root, a fault would replace the machine's own.
#[test]
fn a_pipe_that_breaks_is_named_and_standard_output_is_not_blamed_for_it() {
    let folder = Folder::new();
    let pipe = fifo(&folder);
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || drop(fs::File::open(pipe).unwrap())
    });
    // More than a pipe holds: the write waits for the reader to leave, however late.
    let report = junit(&pipe);
    let args = ["run", "boundary", "-p", "plan-units", "--export", &report];
    let out = padproof(&args);
    reader.join().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("/pipe: Broken pipe"), "{said}");
}

#[test]
fn an_export_is_put_where_a_link_points_and_the_link_stays() {
    let folder = Folder::new();
    fs::create_dir(folder.path("deep")).unwrap();
    folder.file("deep/old.xml", "old");
    for name in ["old.xml", "new.xml"] {
        let (link, target) = (folder.path(name), folder.path("deep").join(name));
        symlink(Path::new("deep").join(name), &link).unwrap();
        ends(&run(&[&junit(&link)]), 0);
        assert!(link.is_symlink(), "{name}");
        assert!(whole(&target), "{name}");
    }
}

#[test]
fn an_export_keeps_the_permissions_of_the_file_it_replaces() {
    let folder = Folder::new();
    let path = folder.file("r.xml", "old");
    fs::set_permissions(&path, Permissions::from_mode(0o606)).unwrap();
    ends(&run(&[&format!("junit={path}")]), 0);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o606
    );
    assert!(whole(Path::new(&path)));
}

#[test]
fn an_export_to_an_open_file_is_written_straight() {
    let folder = Folder::new();
    let path = folder.path("r.xml");
    let script = "exec \"$0\" run smoke/orders -p plan-units --export junit=/dev/fd/3 3>\"$1\"";
    let ended = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_padproof")])
        .arg(&path)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(ended.success());
    assert!(whole(&path));
}

#[test]
fn a_closed_standard_output_ends_neither_an_export_nor_the_exit_code() {
    let folder = Folder::new();
    let path = folder.path("r.xml");
    let export = junit(&path);
    let wrong = folder.file(
        "s.toml",
        "[suite]\nname = \"s\"\n[[case]]\nname = \"a\"\nline = \"i=33\"\nexpect = \"fail\"\nwhy = \"it does not\"\n",
    );
    for (what, code) in [("smoke/orders", 0), (wrong.as_str(), 1)] {
        let args = ["run", what, "-p", "plan-units", "--export", &export];
        let mut child = command(&args).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{what}");
        assert!(whole(&path), "{what}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_standard_output_is_named_and_the_export_is_whole() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let folder = Folder::new();
    let path = folder.path("r.xml");
    let out = command(&run(&[&junit(&path)]))
        .stdout(full())
        .output()
        .unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("error: standard output: No space left"),
        "{said}"
    );
    assert!(whole(&path));

    let out = command(&["--help"]).stdout(full()).output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("error: standard output: No space left"),
        "{said}"
    );
}

#[test]
fn an_export_that_has_no_place_is_named_as_it_was_given() {
    let out = padproof(&run(&["junit=/no/such/x.xml"]));
    assert_eq!(
        text(&out.stderr),
        "error: /no/such/x.xml: No such file or directory (os error 2)\n"
    );
    let folder = Folder::new();
    let (path, link) = (folder.path("r.xml"), folder.path("link"));
    symlink("r.xml", &link).unwrap();
    let twice = [junit(&path), format!("json={}", link.display())];
    refused(
        &run(&[&twice[0], &twice[1]]),
        &["link: two exports to one file"],
    );
    let circle = folder.path("circle");
    symlink("circle", &circle).unwrap();
    refused(&run(&[&junit(&circle)]), &["circle: "]);
}
