//! The CPU as a machine for the kernels, through what was compiled for it (`kernels/host/api.cpp`).
//!
//! It must not decide sizes: what it launches, `layer` has checked. Layer 5.

use super::launch::Launch;
use super::layer::Work;
use super::machine::{Machine, Reads, every};
use super::params::{Fault, Matrix, Params, activation, element};
use super::record::Record;
use super::workspace::{Addresses, Buffer, Slot, Workspace};
use crate::num::Dtype;
use crate::subject::error::{SkipReason, SubjectError};
use crate::terms::Activation;

/// Bytes around a tensor that a planted fault may reach: at most a tile of 128x4 scales of four bytes
/// (`PP_SCALE_OVER_READ`), or 15 elements of four (`PP_TAIL_READ`).
const REACH: usize = 4096;

/// In which order the blocks of a launch, and the threads of a block, take their turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Turns {
    /// The first first.
    #[default]
    Forward,
    /// The last first.
    Reverse,
    /// Drawn anew at every turn, from a seed.
    Seeded(u64),
    /// The same with a few blocks under way at a time, which others interrupt wherever blocks speak with each
    /// other; in the other orders each runs to its end before the next begins.
    Interleaved(u64),
}

impl Turns {
    /// `Order` of `kernels/host/fibers.h`, and a seed.
    pub(super) const fn code(self) -> (i32, u64) {
        match self {
            Turns::Forward => (0, 0),
            Turns::Reverse => (1, 0),
            Turns::Seeded(seed) => (2, seed),
            Turns::Interleaved(seed) => (3, seed),
        }
    }
}

/// How `mma.sync` adds the products of its sixteen columns (`kernels/host/mma.h`, with its sources).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Adder {
    /// One fused multiply-add after the other, as the general engine does.
    #[default]
    Chain,
    /// As tensor cores were found to: addends cut below the largest, sums rounded toward zero.
    Aligned {
        /// Bits that are kept below the largest exponent.
        fraction: u8,
        /// Products that are added at a time, 1 to 16.
        terms: u8,
    },
}

impl Adder {
    /// sm_80 to sm_89 (`kernels/host/mma.h`).
    pub const AMPERE: Adder = Adder::Aligned {
        fraction: 24,
        terms: 8,
    };
    /// sm_90 and later (`kernels/host/mma.h`).
    pub const HOPPER: Adder = Adder::Aligned {
        fraction: 25,
        terms: 16,
    };

    /// `mma_fraction` and `mma_terms` of `PpHostLaunch`.
    const fn code(self) -> (i32, i32) {
        match self {
            Adder::Chain => (0, 0),
            Adder::Aligned { fraction, terms } => (fraction as i32, terms as i32),
        }
    }
}

/// The registers of a warp around one `mma.sync.m16n8k16` of bfloat16, lane by lane, for tests.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostMma {
    /// Two elements of a each.
    pub a: [[u32; 4]; 32],
    /// Two elements of b each.
    pub b: [[u32; 2]; 32],
    /// The accumulator.
    pub d: [[f32; 4]; 32],
}

impl HostMma {
    /// Adds a b to d; false when the kernels were not compiled.
    pub fn run(&mut self, adder: Adder) -> bool {
        ffi::mma(adder.code(), &self.a, &self.b, &mut self.d)
    }
}

/// One of the kernels' numbers, for tests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HostNumber {
    /// A stored code of an element type.
    Code(Dtype, u32),
    /// An activation of gate and up.
    Activation(Activation, f32, f32),
    /// A float rounded to bfloat16.
    Bf16(f32),
    /// One of two pairs of neighbours that are decoded together: the bytes of each pair, the place of the one
    /// (0 to 3), and whether the high nibble is the first of its byte.
    Paired {
        /// Their type, whose codes are bfloat16.
        dtype: Dtype,
        /// The bytes of both, the lower column's first.
        pairs: [u32; 2],
        /// Which of the four.
        at: u8,
        /// Whether the high nibble is the lower column's.
        high_first: bool,
    },
}

impl HostNumber {
    /// Its value; none when the kernels were not compiled, or have no such element type.
    pub fn value(self) -> Option<f32> {
        let (what, arg, bits, more) = match self {
            HostNumber::Code(dtype, code) => (0, element(dtype)?, code, 0),
            HostNumber::Activation(act, gate, up) => {
                (1, activation(act), gate.to_bits(), up.to_bits())
            }
            HostNumber::Bf16(x) => (2, 0, x.to_bits(), 0),
            HostNumber::Paired {
                dtype,
                pairs: [first, second],
                at,
                high_first,
            } => {
                let what = 4 + 2 * i32::from(at.min(3)) + i32::from(high_first);
                (what, element(dtype)?, first, second)
            }
        };
        ffi::number(what, arg, bits, more)
    }
}

/// Whether rows, experts and tokens that lie 2 GiB and more apart give the bits of close ones, for tests; false
/// too where a launch goes wrong, none where the kernels were not compiled, or the machine has no such address space.
pub fn host_far_apart() -> Option<bool> {
    ffi::far()
}

/// Whether the kernels were compiled for this machine.
pub(super) fn available() -> Result<(), SkipReason> {
    if let Some(why) = option_env!("PP_CUDA_HOST_MISSING") {
        return Err(SkipReason::Unsupported(format!(
            "built without the kernels: {why}"
        )));
    }
    #[cfg(target_arch = "x86_64")]
    if option_env!("PP_CUDA_HOST_VECTORS").is_some()
        && !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
    {
        return Err(SkipReason::Unsupported(
            "the kernels were built for AVX2 and FMA, which this machine lacks".to_owned(),
        ));
    }
    ffi::sizes_agree()
}

/// The CPU, one fiber a CUDA thread.
#[derive(Debug, Default)]
pub(super) struct Host {
    turns: Turns,
    adder: Adder,
    fault: Fault,
    pub(super) record: Option<Record>,
    /// Whether kernels see nothing of a tensor but what they may read, and NaN in its place.
    pub(super) bare: bool,
    /// Copies of what kernels with a fault read.
    copies: Vec<Buffer>,
}

impl Host {
    pub(super) fn new(turns: Turns, adder: Adder, fault: Fault) -> Host {
        Host {
            turns,
            adder,
            fault,
            ..Host::default()
        }
    }
}

impl Machine for Host {
    const NAME: &'static str = "cuda-host";

    fn available(&self) -> Result<(), SkipReason> {
        available()
    }

    fn clear(&mut self) {
        self.copies.clear();
    }

    fn place(&mut self, bytes: &[u8], reads: Reads<'_>) -> Result<*const u8, SubjectError> {
        if self.fault == Fault::None && !self.bare {
            return Ok(bytes.as_ptr());
        }
        // What a planted fault reads beyond its tensor is memory of ours, too.
        let mut copy = Buffer::default();
        copy.reset("a copy", bytes.len(), REACH, 0xff);
        let ranges = if self.bare {
            reads(bytes.len())
        } else {
            every(bytes.len())
        };
        for range in ranges {
            copy.bytes_mut()[range.clone()].copy_from_slice(&bytes[range]);
        }
        let at = copy.pointer();
        self.copies.push(copy);
        Ok(at)
    }

    fn lend(&mut self, workspace: &mut Workspace) -> Result<Addresses, SubjectError> {
        Ok(Addresses(
            workspace.all_mut().each_mut().map(Buffer::pointer),
        ))
    }

    #[expect(unsafe_code, reason = "the kernels trust what they are told")]
    unsafe fn run(
        &mut self,
        work: &Work<'_>,
        workspace: &mut Workspace,
    ) -> Result<(), SubjectError> {
        available()?;
        for launch in work.launches.iter().filter(|launch| launch.has_blocks()) {
            // SAFETY: what the caller promises of the work.
            unsafe { ffi::launch(launch, self.turns, self.adder, &work.params) }.map_err(
                |why| SubjectError::Kernel {
                    kernel: launch.kernel.name(),
                    why,
                },
            )?;
        }
        if let Some(record) = &mut self.record {
            record.add(work, self.turns, workspace.get(Slot::Out).bytes());
        }
        Ok(())
    }

    fn fault(&self) -> Fault {
        self.fault
    }
}

/// What `PpHostLaunch` holds.
#[repr(C)]
struct HostLaunch {
    kernel: i32,
    inputs: i32,
    weights: i32,
    fast: i32,
    grid_x: u32,
    grid_y: u32,
    shared: u64,
    order: i32,
    mma_fraction: i32,
    mma_terms: i32,
    reserved: i32,
    seed: u64,
}

#[cfg(pp_cuda_host)]
#[expect(unsafe_code, reason = "the kernels are C++")]
mod ffi {
    use super::{Adder, HostLaunch, Launch, Matrix, Params, SkipReason, Turns};
    use crate::subject::cuda::params::element;
    use std::ffi::{CStr, c_char};

    /// Bytes of a message.
    const ROOM: usize = 512;

    unsafe extern "C" {
        fn pp_host_sizes(which: i32) -> u64;
        fn pp_host_launch(
            of: *const HostLaunch,
            params: *const Params,
            error: *mut c_char,
            room: u64,
        ) -> i32;
        fn pp_host_number(what: i32, arg: i32, bits: u32, more: u32) -> f32;
        fn pp_host_far() -> i32;
        fn pp_host_mma(fraction: i32, terms: i32, a: *const u32, b: *const u32, d: *mut f32)
        -> i32;
    }

    pub(super) fn mma(
        (fraction, terms): (i32, i32),
        a: &[[u32; 4]; 32],
        b: &[[u32; 2]; 32],
        d: &mut [[f32; 4]; 32],
    ) -> bool {
        let (a, b) = (a.as_flattened().as_ptr(), b.as_flattened().as_ptr());
        let d = d.as_flattened_mut().as_mut_ptr();
        // SAFETY: it reads four and two registers of each of 32 lanes, and reads and writes four floats of each.
        unsafe { pp_host_mma(fraction, terms, a, b, d) == 0 }
    }

    pub(super) fn far() -> Option<bool> {
        // SAFETY: it takes nothing, and its memory is its own.
        match unsafe { pp_host_far() } {
            same @ 0..=1 => Some(same == 1),
            _ => None,
        }
    }

    pub(super) fn number(what: i32, arg: i32, bits: u32, more: u32) -> Option<f32> {
        // SAFETY: it takes and gives plain numbers.
        Some(unsafe { pp_host_number(what, arg, bits, more) })
    }

    pub(super) fn sizes_agree() -> Result<(), SkipReason> {
        let own = [
            size_of::<Params>(),
            size_of::<Matrix>(),
            size_of::<HostLaunch>(),
        ];
        for (which, size) in (0..).zip(own) {
            // SAFETY: it takes and gives plain numbers.
            let there = unsafe { pp_host_sizes(which) };
            if there != size as u64 {
                return Err(SkipReason::Unsupported(format!(
                    "struct {which} of the kernels has {there} bytes, not {size}"
                )));
            }
        }
        Ok(())
    }

    /// Runs one kernel to its end.
    ///
    /// # Safety
    /// That of [`Machine::run`](super::Machine::run) for `params`.
    pub(super) unsafe fn launch(
        launch: &Launch,
        turns: Turns,
        adder: Adder,
        params: &Params,
    ) -> Result<(), String> {
        let (order, seed) = turns.code();
        let (mma_fraction, mma_terms) = adder.code();
        let known = |dtype| element(dtype).ok_or_else(|| format!("no kernel for {dtype}"));
        let of = HostLaunch {
            kernel: launch.kernel as i32,
            inputs: known(launch.inputs)?,
            weights: known(launch.weights)?,
            fast: launch.fast.into(),
            grid_x: launch.grid.0,
            grid_y: launch.grid.1,
            shared: launch.shared as u64,
            order,
            mma_fraction,
            mma_terms,
            reserved: 0,
            seed,
        };
        let mut error = [0u8; ROOM];
        // SAFETY: the structs are those of the kernels (`sizes_agree`), `error` has `ROOM` bytes, and
        // the caller promises what the pointers in `params` lead to. No exception leaves the call: what
        // memory runs out in is caught, and a launch that goes wrong ends with a message.
        let code = unsafe { pp_host_launch(&of, params, error.as_mut_ptr().cast(), ROOM as u64) };
        if code == 0 {
            return Ok(());
        }
        let text = CStr::from_bytes_until_nul(&error).unwrap_or(c"an error without a message");
        Err(text.to_string_lossy().into_owned())
    }
}

#[cfg(not(pp_cuda_host))]
#[expect(unsafe_code, reason = "as the other")]
mod ffi {
    use super::{Adder, HostLaunch, Launch, Matrix, Params, SkipReason, Turns};

    pub(super) fn number(_: i32, _: i32, _: u32, _: u32) -> Option<f32> {
        None
    }

    pub(super) fn mma(
        _: (i32, i32),
        _: &[[u32; 4]; 32],
        _: &[[u32; 2]; 32],
        _: &mut [[f32; 4]; 32],
    ) -> bool {
        false
    }

    pub(super) fn sizes_agree() -> Result<(), SkipReason> {
        Err(SkipReason::Unsupported(
            "built without the kernels".to_owned(),
        ))
    }

    /// Runs nothing.
    ///
    /// # Safety
    /// None.
    pub(super) unsafe fn launch(_: &Launch, _: Turns, _: Adder, _: &Params) -> Result<(), String> {
        let sizes = [size_of::<HostLaunch>(), size_of::<Matrix>()];
        Err(format!(
            "built without the kernels (structs of {sizes:?} bytes)"
        ))
    }
}
