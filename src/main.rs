//! The padproof command.

// Cases allocate and free megabytes; the system allocator would fault every page in again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    padproof::cli::main()
}
