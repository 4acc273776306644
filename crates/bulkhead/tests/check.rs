//! `bulkhead check` of a file that says what is perhaps not meant.
//!
//! Runs in: the test process, unprivileged. Input: a file of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot write its files should panic")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const CONFIG: &str = "[conditioning]
filters = [[\"bin/filter\"]]
[[listen]]
address = \"127.0.0.1:8443\"
tls = true
unfiltered = true
[[site]]
name = \"blog\"
host = [\"blog.test\"]
root = \"public\"
certificates = [\"blog.pem\"]
";

struct Folder(PathBuf);

/// A key and its certificate in one file. Where the program `signer` is not built, nobody looks into it.
fn certificate(file: &Path) {
    let words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 300 -subj /CN=blog.test -addext \
                 subjectAltName=DNS:blog.test -keyout - -out -";
    let made = Command::new("openssl").args(words.split(' ')).output().expect("openssl is installed");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::write(file, made.stdout).unwrap();
}

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("bulkhead-check-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(folder.join("bin")).unwrap();
        std::fs::create_dir_all(folder.join("public")).unwrap();
        std::fs::copy("/bin/true", folder.join("bin/filter")).unwrap();
        certificate(&folder.join("blog.pem"));
        std::fs::write(folder.join("bulkhead.toml"), CONFIG).unwrap();
        Self(folder)
    }

    fn check(&self, words: &[&str]) -> (bool, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bulkhead"));
        command.arg("check").args(words).arg("bulkhead.toml").current_dir(&self.0);
        let Output { status, stdout, stderr } = command.output().unwrap();
        (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_warning_is_told_and_the_file_is_good() {
    let folder = Folder::new("warning");
    std::fs::set_permissions(folder.0.join("blog.pem"), PermissionsExt::from_mode(0o644)).unwrap();
    let (good, out, err) = folder.check(&[]);
    assert!(good && out.contains("bulkhead.toml: ok: 1 site"), "{out}{err}");
    assert!(
        err.starts_with("bulkhead.toml:11:17: warning: `certificates` ") && err.contains("= help: "),
        "{err}"
    );
    let (good, out, err) = folder.check(&["--json"]);
    assert!(good && err.is_empty(), "{err}");
    assert!(out.contains("\"severity\": \"warning\"") && out.contains("\"line\": 11"), "{out}");
}

#[test]
fn filters_that_see_no_requests_are_a_mistake() {
    let folder = Folder::new("unfiltered");
    std::fs::write(folder.0.join("bulkhead.toml"), CONFIG.replace("unfiltered = true\n", "")).unwrap();
    let (good, out, err) = folder.check(&[]);
    assert!(!good, "{out}{err}");
    assert!(err.starts_with("bulkhead.toml:4:11: error: requests on 127.0.0.1:8443 come under TLS"), "{err}");
    assert!(err.contains("= help: add `unfiltered = true`"), "{err}");
}

#[test]
fn a_private_key_for_everybody_is_told() {
    let folder = Folder::new("key");
    let key = folder.0.join("blog.pem");
    let told = |mode| {
        std::fs::set_permissions(&key, PermissionsExt::from_mode(mode)).unwrap();
        let (good, out, err) = folder.check(&[]);
        assert!(good, "{out}{err}");
        err.contains("chmod o-r")
    };
    assert!(told(0o644));
    assert!(!told(0o640));
}
