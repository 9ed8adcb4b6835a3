//! Why a subject does not run a case, or could not.

/// Why a subject cannot run a plan; never a failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// There is no device, or none that will do.
    #[error("no device: {0}")]
    NoDevice(NoDevice),
    /// There is a device, and no compiler to make its code with.
    #[error("no compiler for the device: {0}")]
    NoCompiler(NoCompiler),
    /// The property needs no subject, or none was chosen.
    #[error("no subject")]
    NoSubject,
    /// The working memory would pass the subject's ceiling.
    #[error("{what} needs {bytes} bytes; at most {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Bytes it needs.
        bytes: u64,
        /// The ceiling in bytes.
        limit: u64,
    },
    /// The case has nothing that the claim is about; no draw of its kind could prove it.
    #[error("{0}")]
    Inapplicable(String),
    /// The subject has no code for something in the plan.
    #[error("unsupported: {0}")]
    Unsupported(String),
}

/// Why there is no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoDevice {
    /// No driver's library.
    #[error("libcuda is not found: no NVIDIA driver")]
    Library,
    /// A call to the driver failed.
    #[error("{call}: {why}")]
    Call {
        /// The call.
        call: &'static str,
        /// What it answered.
        why: String,
    },
    /// A driver older than the kernels need.
    #[error("the driver knows CUDA {major}.{minor}; it must know 12.0")]
    OldDriver {
        /// What it knows.
        major: i32,
        /// What it knows, after the dot.
        minor: i32,
    },
    /// A driver without devices.
    #[error("the driver shows none")]
    Hidden,
    /// A device older than the kernels need.
    #[error("{name} is sm_{major}{minor}; the kernels need sm_80")]
    OldDevice {
        /// Its name.
        name: String,
        /// Its compute capability.
        major: i32,
        /// Its compute capability, after the dot.
        minor: i32,
    },
    /// A fault that no later call of this process gets past.
    #[error("it was lost to an earlier fault: {fault} in {}", .case.as_deref().unwrap_or("a case without a line"))]
    Lost {
        /// What happened.
        fault: String,
        /// Of which case, where it is known.
        case: Option<String>,
    },
}

/// Why there is no compiler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCompiler {
    /// None where it was said to be.
    #[error("no NVRTC below {}", .0.display())]
    NotBelow(std::path::PathBuf),
    /// None anywhere.
    #[error(
        "no NVRTC: PADPROOF_NVRTC names the folder of a CUDA toolkit, or one that holds NVIDIA's wheels (pip install --no-deps --target FOLDER nvidia-cuda-nvrtc, for a driver of CUDA 12 nvidia-cuda-nvrtc-cu12)"
    )]
    Nowhere,
    /// One whose code the driver does not load.
    #[error(
        "NVRTC {}.{} makes code that the driver, of CUDA {}.{}, does not load: install nvidia-cuda-nvrtc-cu{} (pip install --no-deps --target FOLDER) and set PADPROOF_NVRTC=FOLDER",
        .version.0, .version.1, .driver.0, .driver.1, .driver.0
    )]
    Newer {
        /// Its version.
        version: (i32, i32),
        /// The CUDA version that the driver knows.
        driver: (i32, i32),
    },
    /// One that does not know the device.
    #[error("NVRTC {}.{} does not know sm_{arch}: a newer one, of the driver's major version, is needed", .version.0, .version.1)]
    Older {
        /// Its version.
        version: (i32, i32),
        /// The device's architecture: 90 is sm_90.
        arch: i32,
    },
    /// A library that cannot be used.
    #[error("{library}: {why}")]
    Unusable {
        /// Its path, or its name.
        library: String,
        /// Why.
        why: String,
    },
}

/// A plan and tensors that do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// The subject does not support the plan; ask `supports` first.
    #[error(transparent)]
    Skipped(#[from] SkipReason),
    /// A number of the plan contradicts another one.
    #[error("plan: {key}={value}: {why}")]
    Plan {
        /// Which number.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What it contradicts.
        why: String,
    },
    /// A tensor that the plan needs is absent.
    #[error("rank {rank}: no tensor {tensor}")]
    Missing {
        /// The rank.
        rank: usize,
        /// The tensor.
        tensor: &'static str,
    },
    /// A tensor has another size than the plan says.
    #[error("{tensor}: {actual} {unit}, wanted {wanted}")]
    Size {
        /// The tensor.
        tensor: &'static str,
        /// What is counted.
        unit: &'static str,
        /// What the plan makes it.
        wanted: u64,
        /// What it is.
        actual: u64,
    },
    /// An expert id beyond the layer's experts.
    #[error("ids: token {token} wants expert {id} of {experts}")]
    Expert {
        /// The token.
        token: usize,
        /// The id.
        id: u32,
        /// How many experts there are.
        experts: u64,
    },
    /// A kernel did what no kernel may: left a guard overwritten, stood still, missed a barrier.
    #[error("{kernel}: {why}")]
    Kernel {
        /// Its name.
        kernel: &'static str,
        /// What it did.
        why: String,
    },
    /// A call to a device's driver or compiler failed.
    #[error("{kernel}: {call}: {why}")]
    Device {
        /// The kernel, or the source, that it was for.
        kernel: &'static str,
        /// The call.
        call: &'static str,
        /// What it answered.
        why: String,
    },
    /// An external subject did something that no subject may; what it wrote to its standard error.
    #[error("{what}")]
    Misbehaved {
        /// What it did.
        what: Misbehaviour,
        /// The last lines of its standard error.
        stderr: Vec<String>,
    },
}

/// What a subject that is a process did wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misbehaviour {
    /// A command of no words.
    #[error("the command is empty")]
    NoCommand,
    /// A quote that does not end.
    #[error("a quote in the command `{command}` does not end")]
    Quote {
        /// The command.
        command: String,
    },
    /// The program cannot be started.
    #[error("cannot start `{program}`: {why}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        why: String,
    },
    /// It ended.
    #[error("ended: {how}")]
    Ended {
        /// How: a status, a signal.
        how: String,
    },
    /// Its output ended; how the process did is asked next.
    #[error("closed its output")]
    Closed,
    /// A pipe failed.
    #[error("broke its pipe: {0}")]
    Pipe(String),
    /// No reply in time.
    #[error("gave no reply within {timeout:?}{text}")]
    Timeout {
        /// The limit of time.
        timeout: std::time::Duration,
        /// What it printed, if it is words.
        text: String,
    },
    /// No answer to the greeting in time.
    #[error("did not greet within {timeout:?} (--start-timeout){text}")]
    NoGreeting {
        /// The limit of time.
        timeout: std::time::Duration,
        /// What it printed, if it is words.
        text: String,
    },
    /// It was ended because padproof was.
    #[error("was ended by an interrupt")]
    Interrupted,
    /// A reply that ends early.
    #[error("ended its output after {got} of {wanted} bytes{text}")]
    Cut {
        /// Bytes that came.
        got: u64,
        /// Bytes announced.
        wanted: u64,
        /// What they say, if they are words.
        text: String,
    },
    /// A length that no reply to this request has.
    #[error("announced a reply of {bytes} bytes where at most {limit} are taken{text}")]
    TooLong {
        /// Bytes announced.
        bytes: u64,
        /// The limit.
        limit: u64,
        /// What they say, if they are words.
        text: String,
    },
    /// A reply to nothing.
    #[error("wrote {bytes} bytes before it was asked")]
    Unasked {
        /// How many.
        bytes: u64,
    },
    /// Bytes that are no safetensors blob.
    #[error("replied with what is no safetensors blob: {0}")]
    NotSafetensors(String),
    /// A part of the reply that is absent or wrong.
    #[error("replied with a wrong {part}: {why}")]
    Reply {
        /// Which part.
        part: String,
        /// What is wrong with it.
        why: String,
    },
    /// The subject's own complaint.
    #[error("says: {0}")]
    Said(String),
    /// It grows and grows.
    #[error("grew by {} MiB of memory over {replies} replies, and on", bytes >> 20)]
    Memory {
        /// By how much (bytes).
        bytes: u64,
        /// Over how many replies.
        replies: u64,
    },
}
