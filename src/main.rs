//! The padproof command.

fn main() -> std::process::ExitCode {
    padproof::cli::main()
}
